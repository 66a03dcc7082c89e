package rpc

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// bySocket is a node that answers by WebSocket.
type bySocket struct {
	answer      func(rpctest.Message) string
	opened      func(*websocket.Conn) // nil: nobody wants to know
	connections atomic.Int32

	tells string       // what it tells of after each header, held back by its kernel while that is not acknowledged; empty: nothing
	told  atomic.Int64 // when it did, in ns
}

func (n *bySocket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.connections.Add(1)
	var up websocket.Upgrader
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if n.opened != nil {
		n.opened(conn)
	}
	if tcp, ok := conn.NetConn().(*net.TCPConn); ok && tcp.SetNoDelay(n.tells == "") != nil {
		return
	}
	for {
		_, msg, err := conn.ReadMessage()
		if err != nil {
			return
		}
		answer, tells := httptest.NewRecorder(), false
		rpctest.Serve(answer, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(msg)), func(m rpctest.Message) string {
			tells = n.tells != "" && m.Method == "eth_getBlockByNumber"
			if m.Method == "eth_subscribe" {
				return `"0x1"`
			}
			return n.answer(m)
		})
		if err := conn.WriteMessage(websocket.TextMessage, answer.Body.Bytes()); err != nil {
			return
		}
		if !tells {
			continue
		}
		n.told.Store(time.Now().UnixNano())
		if err := conn.WriteMessage(websocket.TextMessage, []byte(n.tells)); err != nil {
			return
		}
	}
}

// both is a node that answers by HTTP and by WebSocket at one port.
func both(answer func(rpctest.Message) string) http.HandlerFunc {
	bySocket := &bySocket{answer: answer}
	return func(w http.ResponseWriter, r *http.Request) {
		if websocket.IsWebSocketUpgrade(r) {
			bySocket.ServeHTTP(w, r)
			return
		}
		rpctest.Serve(w, r, answer)
	}
}

// client is one of the node, and runs until the test ends.
func (n *bySocket) client(t *testing.T, set func(*Config)) *Client {
	t.Helper()
	server := httptest.NewServer(n)
	t.Cleanup(server.Close)
	cfg := DefaultConfig()
	cfg.ChainID, cfg.Addresses = 7, []common.Address{{1}}
	cfg.Endpoints = []Endpoint{{URL: "ws" + strings.TrimPrefix(server.URL, "http"), Name: "node"}}
	set(&cfg)
	c, err := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	runs(t, c)
	return c
}

// runs has the client connect until the test ends.
func runs(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestTooBigByWebSocket: a response by WebSocket exceeds MaxBody. The data comes in by smaller requests, and the
// connection and its subscription stay.
func TestTooBigByWebSocket(t *testing.T) {
	chain := rpctest.NewBusy(7, 16, 1, 62, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	n := &bySocket{answer: chain.Answer}
	c := n.client(t, func(cfg *Config) { cfg.MaxBody = 128 << 10 }) // of the receipts of eight blocks, less than nine times of it
	checkBig(t, c, chain, 1, chain.Head())
	if now := c.endpoints[0].limits.batch.now(); now == c.cfg.MaxBatch {
		t.Errorf("nothing was too big: batches of %d", now)
	}
	if got := n.connections.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
}

// TestRefusedByWebSocket: by WebSocket the only node refuses a batch of more than 10 by one error without an ID, or what
// that would be in a batch. No refusal is waited for.
func TestRefusedByWebSocket(t *testing.T) {
	chain := rpctest.NewSparse(7, 200, 10, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	for _, refusal := range []string{
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch too large"}}`,
		`{"jsonrpc":"2.0","error":{"code":-32000,"message":"no"}}`,
		`[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch too large"}}]`,
	} {
		provider := rpctest.NewProvider(t, chain.URL, func(_ *http.Request, asked []rpctest.Message) rpctest.Refusal {
			if len(asked) > 10 {
				return rpctest.Refusal{Body: refusal}
			}
			return rpctest.Refusal{}
		})
		c := piped(t, func(cfg *Config) { cfg.Dial, cfg.Endpoints = nil, []Endpoint{{URL: provider.WS, Name: "node"}} })
		runs(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), c.cfg.Timeout-time.Second)
		_, err := c.Blocks(ctx, 1, 200, 200)
		cancel()
		if _, _, refused, _ := provider.Counts(); err != nil || refused == 0 {
			t.Errorf("%s: %d refused: %v", refusal, refused, err)
		}
	}
}
