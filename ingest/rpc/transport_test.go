package rpc

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestOneNodeHasOneVote: a liar is named by its WebSocket and by its HTTP, beside an honest node, and has a longer chain
// of its own. It does not decide what is final, nor the head.
func TestOneNodeHasOneVote(t *testing.T) {
	theirs, honest := chains(t, 200, 100)
	server := httptest.NewServer(both(theirs.Answer))
	t.Cleanup(server.Close)
	c := piped(t, func(cfg *Config) {
		cfg.Dial = nil
		cfg.Endpoints = Endpoints([]string{"ws" + strings.TrimPrefix(server.URL, "http"), server.URL, honest.URL})
	})
	runs(t, c)
	polltest.Until(t, "the liar's WebSocket is open", c.Subscribed)
	if len(c.endpoints) != 2 {
		t.Errorf("%d endpoints of two nodes", len(c.endpoints))
	}
	for _, e := range c.endpoints {
		h, err := e.header(t.Context(), `"latest"`)
		if err != nil {
			t.Fatal(err)
		}
		e.recordHead(h, false)
	}
	if n := c.HeadOfTwo(); n != 100 {
		t.Errorf("the head of two is %d", n)
	}
	if h, err := c.Vote(t.Context(), 50, true); err == nil {
		t.Errorf("the vote is for block %s: the liar's is %s", h.Hash, theirs.Hash(50))
	}
}

// twoWays is a node whose HTTP or WebSocket may be down, in its way.
type twoWays struct {
	chain        *rpctest.Sparse
	http, socket atomic.Pointer[http.HandlerFunc] // what it does in place of an answer; nil: it answers

	mu    sync.Mutex
	conns []*websocket.Conn
	by    [2]atomic.Int64 // answers by HTTP, by WebSocket
}

// refuses ends the connection of a request.
func refuses(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func (n *twoWays) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !websocket.IsWebSocketUpgrade(r) {
		if down := n.http.Load(); down != nil {
			(*down)(w, r)
			return
		}
		n.by[0].Add(1)
		rpctest.Serve(w, r, n.chain.Answer)
		return
	}
	if down := n.socket.Load(); down != nil {
		(*down)(w, r)
		return
	}
	(&bySocket{
		answer: func(m rpctest.Message) string {
			n.by[1].Add(1)
			return n.chain.Answer(m)
		},
		opened: func(conn *websocket.Conn) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.conns = append(n.conns, conn)
		},
	}).ServeHTTP(w, r)
}

// cut ends the connections of the WebSocket.
func (n *twoWays) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.conns {
		_ = conn.Close()
	}
	n.conns = nil
}

// TestOneOfTwoTransportsIsDown: while HTTP or WebSocket of the only node is down, in whatever way, blocks come in by the
// other, at once and without a failure of the node; then by HTTP again.
func TestOneOfTwoTransportsIsDown(t *testing.T) {
	chain := rpctest.NewSparse(7, 200, 10, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	chain.Close() // it answers without a connection
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	mute := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else it does not see that the client has left
		<-r.Context().Done()
	}
	for _, test := range []struct {
		name     string
		http, ws http.HandlerFunc
		patience time.Duration // until the first blocks come in
		failures float64
	}{
		{"HTTP is cut off", refuses, nil, time.Second, 0},
		{"HTTP is a gateway to nothing", status(http.StatusBadGateway), nil, time.Second, 0},
		{"HTTP is not served there", status(http.StatusMethodNotAllowed), nil, time.Second, 0},
		{"HTTP does not answer", mute, nil, (muteAfter + 1) * DefaultConfig().Timeout, muteAfter},
		{"WebSocket is cut off", nil, refuses, time.Second, 0},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			n := &twoWays{chain: chain}
			c := piped(t, func(cfg *Config) { cfg.Endpoints[0].WS = "ws://node0" }, n)
			ctx := subscribed(t, c)
			blocks := func(patience time.Duration) {
				t.Helper()
				ctx, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				if _, err := c.Blocks(ctx, 1, 200, 200); err != nil {
					t.Fatal(err)
				}
			}
			blocks(time.Second)
			if n.by[0].Load() == 0 {
				t.Error("it is not asked by HTTP")
			}
			if test.http != nil {
				n.http.Store(&test.http)
			}
			if test.ws != nil {
				n.socket.Store(&test.ws)
				n.cut()
				synctest.Wait()
			}
			patience := test.patience
			for range 5 {
				blocks(patience)
				patience = time.Second
				<-time.After(4 * time.Second)
			}
			failed := testutil.ToFloat64(c.metrics.errors.WithLabelValues("node0", "failure"))
			if failed > test.failures {
				t.Errorf("the node failed %v times", failed)
			}
			n.http.Store(nil)
			n.socket.Store(nil)
			<-time.After(2*pingEvery + time.Second) // between two pings
			before := n.by[0].Load()
			if blocks(time.Second); n.by[0].Load() == before || !c.Subscribed() {
				t.Errorf("when both are back: by HTTP %d requests, subscribed: %t", n.by[0].Load()-before, c.Subscribed())
			}
		})
	}
}

// TestHTTPOfAnotherChain: HTTP of the only node is down when the process starts, and then serves another chain. No
// request but for the chain's ID is sent there.
func TestHTTPOfAnotherChain(t *testing.T) {
	log := types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}}
	chain, other := rpctest.NewSparse(7, 20, 10, log), rpctest.NewSparse(8, 20, 10, log)
	chain.Close()
	other.Close()
	synctest.Test(t, func(t *testing.T) {
		n := &twoWays{chain: chain}
		down, moved := http.HandlerFunc(refuses), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rpctest.Serve(w, r, func(m rpctest.Message) string {
				if m.Method != "eth_chainId" {
					t.Errorf("it is asked for %s", m.Method)
				}
				return other.Answer(m)
			})
		})
		n.http.Store(&down)
		c := piped(t, func(cfg *Config) { cfg.Endpoints[0].WS = "ws://node0" }, n)
		ctx := subscribed(t, c)
		blocks := func() error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := c.Blocks(ctx, 1, 20, 20)
			return err
		}
		if err := blocks(); err != nil {
			t.Fatal(err)
		}
		n.http.Store(&moved)
		<-time.After(2*pingEvery + time.Second) // between two pings
		if blocks() == nil {
			t.Error("blocks came in")
		}
		if lies := testutil.ToFloat64(c.metrics.lies.WithLabelValues("node0", "chain_id")); lies == 0 {
			t.Error("nobody noticed")
		}
	})
}
