package read

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"time"
)

const linkBuffer = 16 << 10 // for responses that come together

var errUnasked = errors.New("a response that nobody waits for")

// link is an upgraded connection. Reads of many goroutines are under way on it at once.
//
// Invariants:
//  1. a request is in out, or was written, in the order of waiting: in this order the node answers;
//  2. one goroutine at a time writes, the one that came while none did: what others add meanwhile it writes too;
//  3. the deadline is within timeout of when the node last answered, or was asked while it had nothing to do;
//  4. once there is an error, nobody waits or will.
type link struct {
	conn    net.Conn
	in      *bufio.Reader // of the goroutine that runs read
	timeout time.Duration // for the node to answer the next request

	mu       sync.Mutex
	waiting  []chan<- []byte // for the frames of responses; closed: the link has ended
	out, old []byte
	writing  bool
	until    time.Time // the deadline
	retired  bool      // it ends once nobody waits
	err      error
}

// load is how many reads are under way; false: it is to be used no more.
func (l *link) load() (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting), l.err == nil && !l.retired
}

// ask sends a request and returns the frame of its response. Who gives up has the link be used no more.
func (l *link) ask(ctx context.Context, request []byte) ([]byte, error) {
	response := make(chan []byte, 1)
	if err := l.send(request, response); err != nil {
		return nil, err
	}
	select {
	case frame, ok := <-response:
		if !ok {
			return nil, l.ended()
		}
		return frame, nil
	case <-ctx.Done():
		l.retire()
		return nil, ctx.Err()
	}
}

func (l *link) send(request []byte, response chan<- []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if len(l.waiting) == 0 {
		l.extend()
	}
	l.waiting = append(l.waiting, response)
	l.out = append(binary.BigEndian.AppendUint32(l.out, uint32(len(request))), request...)
	if l.writing {
		return nil
	}
	l.writing = true
	l.mu.Unlock()
	runtime.Gosched() // who is about to ask too goes along
	l.mu.Lock()
	for len(l.out) > 0 {
		out := l.out
		l.out, l.old = l.old[:0], nil
		l.mu.Unlock()
		_, err := l.conn.Write(out)
		l.mu.Lock()
		if cap(out) <= maxBriefBytes {
			l.old = out
		}
		if err != nil {
			l.fail(err)
		}
	}
	l.writing = false
	return nil
}

// read hands out responses until the link ends.
func (l *link) read() {
	for {
		_, err := l.in.Peek(1)
		if err != nil && l.idle(err) {
			continue
		}
		var frame []byte
		if err == nil {
			frame, err = readFrame(l.in, nil, outcomeBytes+maxAnswerBytes)
		}
		if !l.hand(frame, err) {
			return
		}
	}
}

// idle reports whether an error is only that of a deadline that counts no more.
func (l *link) idle(err error) bool {
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		return time.Now().Before(l.until) // it was set anew meanwhile
	}
	l.until = time.Time{}
	return l.err == nil && l.conn.SetDeadline(l.until) == nil
}

// hand gives the frame of a response to the first that waits. False: the link has ended.
func (l *link) hand(frame []byte, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && len(l.waiting) == 0 {
		err = errUnasked
	}
	if err != nil {
		l.fail(err)
		return false
	}
	l.waiting[0] <- frame
	l.waiting[0] = nil
	if l.waiting = l.waiting[1:]; len(l.waiting) > 0 {
		l.extend()
	} else if l.retired {
		l.fail(net.ErrClosed)
	}
	return l.err == nil
}

// extend gives the node time for the next response. A deadline costs more than the rest of a request, so one that is nearly as
// late stays. The lock is held.
func (l *link) extend() {
	if now := time.Now(); l.until.Sub(now) < l.timeout*3/4 {
		l.until = now.Add(l.timeout)
		_ = l.conn.SetDeadline(l.until) // a connection that is closed says so when it is used
	}
}

// retire has the link be taken by nobody, and end once nobody waits.
func (l *link) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired = true; len(l.waiting) == 0 {
		l.fail(net.ErrClosed)
	}
}

func (l *link) end(err error) {
	l.mu.Lock()
	l.fail(err)
	l.mu.Unlock()
}

func (l *link) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// fail ends the link. The lock is held.
func (l *link) fail(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	for _, w := range l.waiting {
		close(w)
	}
	l.waiting, l.out = nil, nil
	_ = l.conn.Close()
}
