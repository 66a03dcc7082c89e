package read

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// briefly is a remote that asks a node for a brief read, and the request.
func briefly(t *testing.T, addr string) (*remote, *nodeRequest) {
	op := toy(nil).Operations[0].Brief()
	to := &remote{addr: addr, client: http.DefaultClient, dial: inTime(nil), timeout: time.Minute, token: "0123456789abcdef"}
	t.Cleanup(to.links.close)
	return to, &nodeRequest{Application: "toy", Operation: op.name, Partitions: []int32{0}, op: op, query: &page{Limit: 1}}
}

func (l *links) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// whole is a node that holds partition 0, which is empty.
type whole struct{ marked }

func (*whole) View(context.Context, int32, *topics.BlockRef) (state.View, error) {
	return emptyView{}, nil
}

type emptyView struct{ state.View }

func (emptyView) At() topics.BlockRef { return markAt(0, 1).At }
func (emptyView) Close()              {}

// echoing serves an application whose answers are as many as the limit of the query. It calls before for each.
func echoing(t *testing.T, before func(limit int)) (addr string) {
	n := &whole{}
	n.set(markAt(0, 1))
	app := toy(func(_ context.Context, _ *Views, q *page) ([]Item, error) {
		before(q.Limit)
		return make([]Item, q.Limit), nil
	})
	server := httptest.NewServer(NewHandler(t.Context(), zap.NewNop(), Served{n, app}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func limited(r *nodeRequest, limit int) *nodeRequest {
	own := *r
	own.query = &page{Limit: limit}
	return &own
}

// Reads that are under way together share connections, and each has its own answer.
func TestReadsShareLinks(t *testing.T) {
	const each, readers = 50, maxLinks * linkDepth
	to, request := briefly(t, echoing(t, func(int) {}))
	var g errgroup.Group
	for i := range readers {
		g.Go(func() error {
			for j := range each {
				limit := 1 + (i*each+j)%1000
				a, err := to.ask(t.Context(), limited(request, limit))
				if err != nil || len(a.Items) != limit {
					return fmt.Errorf("of %d items: %v, %w", limit, a, err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := to.links.count(); n == 0 || n > maxLinks {
		t.Errorf("%d connections", n)
	}
}

// Who gives up takes nobody along: the others that share its link are answered, and then it ends.
func TestWhoGivesUpTakesNobodyAlong(t *testing.T) {
	first, goOn := make(chan struct{}), make(chan struct{})
	to, request := briefly(t, echoing(t, func(limit int) {
		if limit == 7 {
			close(first)
			<-goOn
		}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp, other := make(chan error), make(chan error)
	go func() { _, err := to.ask(ctx, limited(request, 7)); gaveUp <- err }()
	<-first
	go func() {
		a, err := to.ask(t.Context(), limited(request, 8))
		if err == nil && len(a.Items) != 8 {
			err = fmt.Errorf("%d items, want 8", len(a.Items))
		}
		other <- err
	}()
	polltest.Until(t, "both share a link", func() bool { _, under, _ := to.emptiest(); return under == 2 })
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	close(goOn)
	if err := <-other; err != nil {
		t.Errorf("the other: %v", err)
	}
	polltest.Until(t, "the link ends", func() bool { return to.links.count() == 0 })
}

func (n *remote) emptiest() (*link, int, int) {
	n.links.mu.Lock()
	defer n.links.mu.Unlock()
	return n.links.emptiest()
}

// Who waits over an upgraded connection for a node that is frozen gives up with its context, and the connection is not used again.
func TestAFrozenLinkIsGivenUp(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	asked := make(chan bool)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(asked)
				return
			}
			defer func() { _ = c.Close() }() // when the test ends
			in := bufio.NewReader(c)
			r, err := http.ReadRequest(in)
			token := err == nil && r.Header.Get("Authorization") == "Bearer 0123456789abcdef"
			_, _ = c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lienstream-read\r\n\r\n"))
			_, err = readFrame(in, nil, maxBriefBytes)
			asked <- token && err == nil
		}
	}()
	to, request := briefly(t, l.Addr().String())
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { _, err := to.ask(ctx, request); done <- err }()
		if !<-asked {
			t.Fatal("no request comes, or no token")
		}
		cancel()
		if err := <-done; !errors.Is(err, ErrUnavailable) {
			t.Errorf("after it was given up: %v", err)
		}
	}
}

// What a node lacks is told alike over an upgraded connection and by HTTP. Connections end with the node, and then HTTP says so.
func TestLinksEndWithTheNode(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	h := NewHandler(ctx, zap.NewNop(), Served{&marked{}, toy(nil)})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if r.Method == http.MethodGet {
			ended <- struct{}{}
		}
	})}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()
	to, request := briefly(t, l.Addr().String())
	lacks := func() {
		t.Helper()
		_, err := to.ask(t.Context(), request)
		if lacking, ok := errors.AsType[*lackingError](err); !ok || lacking.partition != 0 || !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "503") {
			t.Fatalf("partition 0 is not there, but: %v", err)
		}
	}
	lacks()
	lacks()
	if n := to.links.count(); n != 1 {
		t.Fatalf("%d connections for one read after the other", n)
	}
	end()
	<-ended
	go func() { <-ended }() // who asks for an upgrade now is refused
	lacks()
	if _, err := to.links.take(); !errors.Is(err, errPlain) {
		t.Errorf("a node that ends is asked to upgrade: %v", err)
	}
}

// A node that stops to answer is given up after the timeout, by all that share a link to it, although more of them come.
func TestASilentLinkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		l := &link{conn: here, in: bufio.NewReader(here), timeout: time.Second}
		done := make(chan struct{})
		go func() { l.read(); close(done) }()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		<-time.After(time.Hour) // while nobody asks no time is up
		began := time.Now()
		var g errgroup.Group
		for i := range 3 {
			g.Go(func() error {
				<-time.After(time.Duration(i) * l.timeout / 4)
				_, err := l.ask(t.Context(), []byte("request"))
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					return fmt.Errorf("%d: %w", i, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil || time.Since(began) > l.timeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		<-done
		_ = there.Close()
	})
}

// What comes together is answered together and in order, and so is the rest of a request that comes in parts.
func TestTheNodeAnswersFramesInOrder(t *testing.T) {
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", echoing(t, func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	out := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Path, protocol)
	_, request := briefly(t, "")
	limits := []int{3, 1000, 1, 500, 2}
	for _, limit := range limits {
		own := limited(request, limit)
		if own.Payload, err = wire.Append(nil, own.query); err != nil {
			t.Fatal(err)
		}
		body, err := encodeRequest(own)
		if err != nil {
			t.Fatal(err)
		}
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(body))), body...)
	}
	in := bufio.NewReader(conn)
	for _, part := range [][]byte{out[:len(out)-1], out[len(out)-1:]} {
		if _, err := conn.Write(part); err != nil {
			t.Fatal(err)
		}
		if len(part) > 1 {
			a, err := http.ReadResponse(in, nil)
			if err != nil || a.Body.Close() != nil || a.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(a, err)
			}
		}
	}
	for _, limit := range limits {
		frame, err := readFrame(in, nil, outcomeBytes+maxAnswerBytes)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := (&remote{}).outcome(frame); err != nil || len(a.Items) != limit {
			t.Fatalf("of %d items: %v, %v", limit, a, err)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 6, 0, 200, 255, 255, 255, 255})
	f.Add([]byte{0, 1, 0, 1, 0, 200, 255, 255, 255, 255})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := readFrame(bufio.NewReader(bytes.NewReader(b)), nil, outcomeBytes+maxAnswerBytes)
		if err != nil {
			return
		}
		if len(frame) > len(b)-lengthBytes || cap(frame) > max(2*len(b), maxBriefBytes) {
			t.Fatalf("%d bytes in memory of %d, out of %d", len(frame), cap(frame), len(b))
		}
		if a, err := (&remote{}).outcome(frame); err == nil && a == nil {
			t.Fatal("neither a response nor an error")
		}
	})
}
