package rpc

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestHeadAfterAnswer: a head that a node tells of right after an answer is heard at once, not once the kernel acknowledges the answer
// by itself.
func TestHeadAfterAnswer(t *testing.T) {
	chain := rpctest.NewSparse(7, 16, 1, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	n := &bySocket{answer: chain.Answer, tells: `{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":{}}}`}
	server := httptest.NewServer(n)
	t.Cleanup(server.Close)
	cfg := DefaultConfig()
	cfg.ChainID, cfg.Addresses = 7, []common.Address{{1}}
	cfg.Endpoints = []Endpoint{{URL: "ws" + strings.TrimPrefix(server.URL, "http"), Name: "node"}}
	c, err := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	const rounds, first = 40, 20 // at first a kernel acknowledges at once
	took := make([]time.Duration, rounds)
	for i := range took {
		if _, err := c.endpoints[0].header(ctx, `"latest"`); err != nil {
			t.Fatal(err)
		}
		<-c.Heads()
		took[i] = time.Since(time.Unix(0, n.told.Load()))
	}
	if least := slices.Min(took[first:]); least > 20*time.Millisecond {
		t.Errorf("a head is heard %s after it was told, at best", least)
	}
}
