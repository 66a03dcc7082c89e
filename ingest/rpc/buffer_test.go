package rpc

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// vast is a node whose every answer, but that of its chain, is as long as it may be. It does not end one before it is told to.
type vast struct {
	size  int
	end   chan struct{}
	begun atomic.Int32 // answers
	large atomic.Int32 // those of which more than a small one was read and that are not ended
}

// write writes an answer, after spaces.
func (n *vast) write(msg []byte, write func([]byte) error) error {
	said := httptest.NewRecorder()
	rpctest.Serve(said, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(msg)), func(rpctest.Message) string { return `"0x7"` })
	answer := said.Body.Bytes()
	if bytes.Contains(msg, []byte("eth_chainId")) || bytes.Contains(msg, []byte("eth_subscribe")) {
		return write(answer)
	}
	n.begun.Add(1)
	const piece = 1 << 20
	large := false
	for left := n.size - len(answer); left > 0; left -= piece {
		if err := write(bytes.Repeat([]byte(" "), min(left, piece))); err != nil {
			return err
		}
		if !large && n.size-left > maxSmall+piece {
			large = true
			n.large.Add(1)
		}
	}
	<-n.end
	n.large.Add(-1)
	return write(answer)
}

func (n *vast) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if websocket.IsWebSocketUpgrade(r) {
		n.socket(w, r)
		return
	}
	var msg bytes.Buffer
	if _, err := msg.ReadFrom(r.Body); err != nil {
		return
	}
	_ = n.write(msg.Bytes(), func(b []byte) error {
		_, err := w.Write(b)
		return err
	})
}

func (n *vast) socket(w http.ResponseWriter, r *http.Request) {
	var up websocket.Upgrader
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	for {
		_, msg, err := conn.ReadMessage()
		if err != nil {
			return
		}
		frames, err := conn.NextWriter(websocket.TextMessage)
		if err != nil {
			return
		}
		err = n.write(msg, func(b []byte) error {
			_, err := frames.Write(b)
			return err
		})
		if err = errors.Join(err, frames.Close()); err != nil {
			return
		}
	}
}

// ask asks for something whose answer is skipped.
func ask(ctx context.Context, e *endpoint) error {
	return e.do(ctx, []call{{method: "eth_gasPrice", params: []byte("[]"), result: (*scanner).skip}})
}

// TestOneLargeResponse: two nodes answer every request with the maximum size. One response of each is read at a time,
// and neither waits for those of the other.
func TestOneLargeResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := &vast{size: 2 * maxSmall, end: make(chan struct{})}, &vast{size: 2 * maxSmall, end: make(chan struct{})}
		c := piped(t, func(cfg *Config) { cfg.MaxBody = 2 * maxSmall }, one, two)
		var g errgroup.Group
		for _, e := range c.endpoints {
			for range c.cfg.Parallel {
				g.Go(func() error { return ask(t.Context(), e) })
			}
		}
		synctest.Wait()
		for i, n := range []*vast{one, two} {
			if begun, large := n.begun.Load(), n.large.Load(); int(begun) != c.cfg.Parallel || large != 1 {
				t.Errorf("node %d: %d answers are begun, %d large ones are read", i, begun, large)
			}
		}
		close(one.end)
		close(two.end)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestLateLargeResponse: a large response comes by WebSocket after its request was given up. The next ones come in.
func TestLateLargeResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &vast{size: 2 * maxSmall, end: make(chan struct{})}
		c := piped(t, func(cfg *Config) {
			cfg.MaxBody, cfg.Timeout = 2*maxSmall, pingEvery/4 // it reads no ping meanwhile
			cfg.Endpoints[0].URL = "ws://node0"
		}, n)
		ctx := subscribed(t, c)
		if err := ask(ctx, c.endpoints[0]); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an answer that does not end: %v", err)
		}
		close(n.end)
		for range 2 {
			if err := ask(ctx, c.endpoints[0]); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRoomOfAResponse: a response gets the memory for the length that it claims, at most the limit, and ends where it
// ends, whatever it claims.
func TestRoomOfAResponse(t *testing.T) {
	const most = 8 * maxSmall
	e := &endpoint{large: make(chan struct{}, 1)}
	for _, test := range []struct {
		name         string
		size, length int
		room         int // at most
		want         error
	}{
		{"as long as it says", maxSmall + 1, maxSmall + 1, maxSmall + 1, nil},
		{"small, as long as it says", 1 << 20, 1 << 20, 1 << 20, nil},
		{"it does not say", maxSmall + 1, -1, most, nil},
		{"longer than it says", 2*maxSmall + 5, maxSmall + 3, most, nil},
		{"longer than it says, which is little", 2 * maxSmall, 7, most, nil},
		{"shorter than it says", maxSmall + 5, 4 * maxSmall, 4 * maxSmall, nil},
		{"small, and it says that it is large", 10, most, maxSmall, nil},
		{"as long as it may be", most, most, most, nil},
		{"longer than it may be, and it does not say", most + 1, -1, most, errTooBig},
		{"longer than it may be and than it says", most + 1, 2 * maxSmall, most, errTooBig},
		{"it says that it is longer than it may be", maxSmall + 1, 1 << 40, maxSmall, errTooBig},
		{"small, and it says that it is longer than it may be", 10, 1 << 40, maxSmall, nil},
	} {
		said := bytes.Repeat([]byte("0123456789"), test.size/10+1)[:test.size]
		var b buffer
		err := b.read(t.Context(), e, bytes.NewReader(said), int64(test.length), most)
		if !errors.Is(err, test.want) || err == nil && !bytes.Equal(b.Bytes(), said) {
			t.Errorf("%s: %d bytes: %v", test.name, b.Len(), err)
		}
		if b.Cap() > test.room+16<<10 { // whole pages
			t.Errorf("%s: %d bytes of room for %d", test.name, b.Cap(), test.room)
		}
		b.release()
		if len(e.large) > 0 {
			t.Fatalf("%s: the turn is not given back", test.name)
		}
	}
}
