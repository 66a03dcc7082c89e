package read

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// links are upgraded connections to a node, which all reads of it share.
type links struct {
	mu      sync.Mutex
	open    []*link   // those that end included
	plain   time.Time // until when the node is not asked to upgrade
	over    bool
	readers sync.WaitGroup
}

const (
	maxLinks = 16
	// linkDepth is how many reads share a link before another one is used: together they take one packet each way, and the
	// node answers them one after the other.
	linkDepth = 4
	plainFor  = 10 * time.Second // until a node that did not upgrade is asked again
)

// errPlain: the node does not upgrade connections, as one that ends or runs an older build.
var errPlain = errors.New("the node does not upgrade connections")

// take returns the first link that has room, or the one that has least under way if all that there may be are full. Nil: one is
// to be opened.
func (l *links) take() (*link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.plain) {
		return nil, errPlain
	}
	best, least, inUse := l.emptiest()
	if best != nil && (least < linkDepth || inUse >= maxLinks) {
		return best, nil
	}
	return nil, nil //nolint:nilnil // one is to be opened
}

// emptiest is the first link that has room, or else the one that has least under way. The lock is held.
func (l *links) emptiest() (best *link, least, inUse int) {
	for _, c := range l.open {
		under, ok := c.load()
		if !ok {
			continue
		}
		if inUse++; best == nil || least >= linkDepth && under < least {
			best, least = c, under
		}
	}
	return best, least, inUse
}

// add has a link that was opened be used, by others too unless there are enough.
func (l *links) add(c *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		c.end(net.ErrClosed)
		return
	}
	if _, _, inUse := l.emptiest(); inUse >= maxLinks {
		c.retired = true
	}
	l.open = append(l.open, c)
	l.readers.Go(func() {
		c.read()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = slices.DeleteFunc(l.open, func(o *link) bool { return o == c })
	})
}

// close ends all of them, and each that is added.
func (l *links) close() {
	l.mu.Lock()
	l.over = true
	for _, c := range l.open {
		c.end(net.ErrClosed)
	}
	l.mu.Unlock()
	l.readers.Wait()
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
			n.links.add(c)
		}
		frame, err := c.ask(ctx, request)
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
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
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
	in := bufio.NewReaderSize(conn, linkBuffer)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return nil, errPlain
	}
	if !stop() {
		return nil, ctx.Err()
	}
	return &link{conn: conn, in: in, timeout: n.timeout}, nil
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
