package read

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// links are upgraded connections to a node that nobody asks over now.
type links struct {
	mu    sync.Mutex
	idle  []*link   // the one that was used last is the last
	plain time.Time // until when the node is not asked to upgrade
	over  bool
}

// link is an upgraded connection. One goroutine at a time asks over it.
type link struct {
	net.Conn
	in    *bufio.Reader
	out   []byte
	since time.Time // when it was last used
}

const (
	maxIdleLinks = 64
	plainFor     = 10 * time.Second // until a node that did not upgrade is asked again
)

// errPlain: the node does not upgrade connections, as one that ends or runs an older build.
var errPlain = errors.New("the node does not upgrade connections")

// take returns an idle link, or nil.
func (l *links) take() (*link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.plain) {
		return nil, errPlain
	}
	n := len(l.idle)
	if n == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	last := l.idle[n-1]
	l.idle[n-1] = nil
	l.idle = l.idle[:n-1]
	return last, nil
}

// put takes a link back.
func (l *links) put(c *link) {
	c.since = time.Now()
	l.mu.Lock()
	var out *link
	switch {
	case l.over || len(l.idle) >= maxIdleLinks:
		out = c
	case len(l.idle) > 0 && c.since.Sub(l.idle[0].since) > linkIdle: // the node has closed it
		out = l.idle[0]
		l.idle = append(l.idle[1:], c)
	default:
		l.idle = append(l.idle, c)
	}
	l.mu.Unlock()
	if out != nil {
		_ = out.Close()
	}
}

// close ends all of them, and each that is put back.
func (l *links) close() {
	l.mu.Lock()
	idle := l.idle
	l.idle, l.over = nil, true
	l.mu.Unlock()
	for _, c := range idle {
		_ = c.Close()
	}
}

func (l *links) goPlain() {
	l.mu.Lock()
	l.plain = time.Now().Add(plainFor)
	l.mu.Unlock()
}

// askBriefly asks over a link. errPlain: it cannot be done. A link that the node has closed meanwhile is not its failure.
func (n *remote) askBriefly(ctx context.Context, request []byte) (*Response, error) {
	until := time.Now().Add(n.timeout)
	for {
		c, err := n.links.take()
		if err != nil {
			return nil, err
		}
		kept := c != nil
		if !kept {
			if c, err = n.link(ctx, until); errors.Is(err, errPlain) {
				n.links.goPlain()
				return nil, err
			} else if err != nil {
				return nil, fmt.Errorf("read from %s: %w: %w", n.addr, ErrUnavailable, err)
			}
		}
		frame, again, err := c.exchange(ctx, request, until)
		if err != nil || !again {
			_ = c.Close()
		} else {
			n.links.put(c)
		}
		if err == nil {
			return n.outcome(frame)
		}
		if !kept || ctx.Err() != nil || !time.Now().Before(until) {
			return nil, fmt.Errorf("read from %s: %w: %w", n.addr, ErrUnavailable, err)
		}
	}
}

// link opens a connection and has the node upgrade it.
func (n *remote) link(ctx context.Context, until time.Time) (_ *link, err error) {
	conn, err := n.dial(ctx, "tcp", n.addr)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := conn.SetDeadline(until); err != nil {
		return nil, err
	}
	out := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n", Path, n.addr, protocol)
	if n.token != "" {
		out = fmt.Appendf(out, "%s: %s%s\r\n", authorizationHeader, bearer, n.token)
	}
	if _, err := conn.Write(append(out, "\r\n"...)); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return nil, errPlain
	}
	return &link{Conn: conn, in: in}, nil
}

// exchange sends a request and returns the frame of its response. again: the link can be used again.
func (c *link) exchange(ctx context.Context, request []byte, until time.Time) (frame []byte, again bool, err error) {
	if err := c.SetDeadline(until); err != nil {
		return nil, false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer func() { again = stop() && err == nil }()
	c.out = append(binary.BigEndian.AppendUint32(c.out[:0], uint32(len(request))), request...)
	if _, err := c.Write(c.out); err != nil {
		return nil, false, err
	}
	frame, err = readFrame(c.in, nil, outcomeBytes+maxAnswerBytes)
	return frame, false, err
}

// outcome decodes the frame of a response.
func (n *remote) outcome(frame []byte) (*Response, error) {
	if len(frame) < outcomeBytes {
		return nil, fmt.Errorf("read from %s: %w: %w", n.addr, ErrUnavailable, ErrMalformed)
	}
	status, lacking, body := int(binary.BigEndian.Uint16(frame)), int32(binary.BigEndian.Uint32(frame[2:])), frame[outcomeBytes:]
	if status != http.StatusOK {
		return nil, n.refused(status, lacking, body)
	}
	a, err := decodeResponse(body)
	if err != nil {
		return nil, fmt.Errorf("read from %s: %w: %w", n.addr, ErrUnavailable, err)
	}
	return a, nil
}
