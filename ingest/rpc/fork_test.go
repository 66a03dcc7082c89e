package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// chains are nodes of two chains, with so many blocks.
func chains(t *testing.T, ofLiar, ofHonest int) (liar, honest *rpctest.Sparse) {
	t.Helper()
	log := types.Log{Address: common.Address{1}, Topics: []common.Hash{{9}}, Data: make([]byte, 32)}
	liar, honest = rpctest.NewSparse(7, ofLiar, 5, log), rpctest.NewSparse(7, ofHonest, 10, log)
	t.Cleanup(liar.Close)
	t.Cleanup(honest.Close)
	return liar, honest
}

// voters is a client of nodes, the liar first.
func voters(t *testing.T, set func(*Config), nodes ...http.Handler) *Client {
	t.Helper()
	cfg := DefaultConfig()
	cfg.ChainID, cfg.Addresses = 7, []common.Address{{1}}
	for _, node := range nodes {
		server := httptest.NewServer(node)
		t.Cleanup(server.Close)
		cfg.Endpoints = append(cfg.Endpoints, Endpoint{URL: server.URL})
	}
	set(&cfg)
	c, err := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// busy is a node that can be told to ask for fewer requests.
type busy struct {
	http.Handler
	now   atomic.Bool
	retry string
}

func (b *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !b.now.Load() {
		b.Handler.ServeHTTP(w, r)
		return
	}
	if b.retry != "" {
		w.Header().Set("Retry-After", b.retry)
	}
	w.WriteHeader(http.StatusTooManyRequests)
}

// refuse has the node refuse one request of the endpoint.
func (b *busy) refuse(t *testing.T, e *endpoint) {
	t.Helper()
	b.now.Store(true)
	_, err := e.header(t.Context(), `"latest"`)
	if err == nil {
		t.Fatal("it is not busy")
	}
	e.failed(err)
	b.now.Store(false)
}

// TestBusyIsNotSilent: who answers, and then asks once for fewer requests, still has a say, however long ago the last vote
// was and whatever pause it asks for.
func TestBusyIsNotSilent(t *testing.T) {
	for _, retry := range []string{"", "1"} {
		liar, honest := chains(t, 300, 300)
		inBubble(t, fmt.Sprintf("Retry-After %q", retry), func(t *testing.T) {
			node := &busy{Handler: honest, retry: retry}
			const silence = 700 * time.Millisecond
			c := piped(t, func(cfg *Config) { cfg.Silence = silence }, liar, node)
			if _, err := c.Vote(t.Context(), 100, true); !errors.Is(err, ErrSplit) {
				t.Fatal(err)
			}
			for began := time.Now(); time.Since(began) < 2*silence; <-time.After(voteApart) {
				if _, err := c.endpoints[1].header(t.Context(), `"latest"`); err != nil {
					t.Fatal(err)
				}
			}
			node.refuse(t, c.endpoints[1])
			for began := time.Now(); time.Since(began) < 2*silence; <-time.After(voteApart) {
				if h, err := c.Vote(t.Context(), 101, true); err == nil {
					t.Fatalf("one endpoint's word is final, the liar's: %t", h.Hash == liar.Hash(101))
				}
			}
		})
	}
}

// voteApart is the time between votes, where time is virtual.
const voteApart = 10 * time.Millisecond

// TestAQuietChainIsNotSilent: endpoints that answer each vote without the block are heard, although the chain makes none, and
// however many others do not answer.
func TestAQuietChainIsNotSilent(t *testing.T) {
	liar, honest := chains(t, 500, 100)
	dead := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	for name, others := range map[string][]http.Handler{"two": {honest, honest}, "one": {honest}, "one beside a dead one": {honest, dead}} {
		inBubble(t, name, func(t *testing.T) {
			const silence = 300 * time.Millisecond
			c := piped(t, func(cfg *Config) { cfg.Silence = silence }, append([]http.Handler{liar}, others...)...)
			for began := time.Now(); time.Since(began) < 3*silence; <-time.After(voteApart) {
				if h, err := c.Vote(t.Context(), 300, true); err == nil {
					t.Fatalf("one endpoint's word is final, the liar's: %t", h.Hash == liar.Hash(300))
				}
			}
		})
	}
}

// TestVoteBesideABackfill: a vote does not wait until the rate limit lets all fetches of a backfill pass.
func TestVoteBesideABackfill(t *testing.T) {
	_, honest := chains(t, 1, 5000)
	c := voters(t, func(cfg *Config) {
		for i := range cfg.Endpoints {
			cfg.Endpoints[i].Rate = 25
		}
	}, honest, honest)
	ctx, cancel := context.WithCancel(t.Context())
	fetched := make(chan error, 1)
	go func() {
		_, err := c.Headers(ctx, 1, 4000, common.Hash{})
		fetched <- err
	}()
	defer func() {
		cancel()
		if err := <-fetched; !errors.Is(err, context.Canceled) {
			t.Errorf("the backfill ended: %v", err)
		}
	}()
	polltest.Within(t, 10*time.Second, func() error {
		for _, e := range c.endpoints {
			if e.limiter.Tokens() <= 0 {
				return nil
			}
		}
		return errors.New("nobody waits for the rate limit")
	})
	for n := range uint64(3) {
		if _, err := c.Vote(t.Context(), 100+n, true); err != nil {
			t.Error(err)
		}
	}
}
