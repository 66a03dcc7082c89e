package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
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

// TestBusyIsNotSilent: an endpoint that answers, and then throttles once, keeps its vote, however long ago the last
// vote was and whatever pause it asks for.
func TestBusyIsNotSilent(t *testing.T) {
	for _, retry := range []string{"", "1"} {
		liar, honest := chains(t, 300, 300)
		inBubble(t, fmt.Sprintf("Retry-After %q", retry), func(t *testing.T) {
			node := &busy{Handler: honest, retry: retry}
			const silence = 700 * time.Millisecond
			c := piped(t, func(cfg *Config) { cfg.Alone = silence }, liar, node)
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

// TestWhoDecidesAlone: one endpoint alone decides what is final once all others have shown nothing new for
// Config.Alone: they hang, or are stalled below a head that rises. Not before, nor if they end at the same block, come
// nearer, or answer again.
func TestWhoDecidesAlone(t *testing.T) {
	liar, chain := chains(t, 10_000, 10_000)
	const alone, never = 10 * time.Minute, 0
	dead := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	for _, test := range []struct {
		name   string
		alone  time.Duration
		others func() []http.Handler
		want   bool
	}{
		{"one hangs", alone, func() []http.Handler { return []http.Handler{hanging(nil, 0)} }, true},
		{"one stands", alone, func() []http.Handler { return []http.Handler{reaching(chain, 150, 0)} }, true},
		{"one stands, one is dead", alone, func() []http.Handler { return []http.Handler{reaching(chain, 150, 0), dead} }, true},
		{"two stand at different blocks", alone, func() []http.Handler { return []http.Handler{reaching(chain, 150, 0), reaching(chain, 140, 0)} }, true},
		{"two end at one block", alone, func() []http.Handler { return []http.Handler{reaching(chain, 150, 0), reaching(chain, 150, 0)} }, false},
		{"one comes nearer", alone, func() []http.Handler { return []http.Handler{reaching(chain, 150, 1)} }, false},
		{"one hangs, and answers again in time", alone, func() []http.Handler { return []http.Handler{hanging(chain, alone-time.Minute)} }, false},
		{"one hangs, and nobody decides alone", never, func() []http.Handler { return []http.Handler{hanging(nil, 0)} }, false},
		{"one stands, and nobody decides alone", never, func() []http.Handler { return []http.Handler{reaching(chain, 150, 0)} }, false},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			c := piped(t, func(cfg *Config) { cfg.Alone = test.alone }, append([]http.Handler{reaching(liar, 5000, 1)}, test.others()...)...)
			began := time.Now()
			for time.Since(began) < alone+alone/2 {
				_, _ = c.Head(t.Context(), 150) // of some there is none
				h, err := c.Vote(t.Context(), 4000, true)
				if err == nil && (!test.want || time.Since(began) < alone || h.Hash != liar.Hash(4000)) {
					t.Fatalf("after %s block %s is final", time.Since(began), h.Hash)
				}
				if said := c.Alone(); (said != "") != (err == nil) {
					t.Fatalf("after %s, of who decides alone: %q; the vote: %v", time.Since(began), said, err)
				}
				<-time.After(5 * time.Second)
			}
			began = time.Now()
			if _, err := c.Vote(t.Context(), 4001, true); test.want != (err == nil) || test.want && time.Since(began) > time.Second {
				t.Errorf("in the end, after %s: %v", time.Since(began), err)
			}
		})
	}
}

// TestNobodyAnswers: no endpoint is reached for long, or there is no vote for long after one that the honest endpoint
// missed. Then a liar answers first, which decides nothing.
func TestNobodyAnswers(t *testing.T) {
	_, liar := chains(t, 1, 500)
	for _, votes := range []bool{true, false} {
		inBubble(t, fmt.Sprint("votes meanwhile: ", votes), func(t *testing.T) {
			began := time.Now()
			first := 2 * DefaultConfig().Alone
			dead := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
			answers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if votes && time.Since(began) < first {
					dead(w, r)
				} else {
					liar.ServeHTTP(w, r)
				}
			})
			c := piped(t, func(*Config) {}, answers, dead)
			for time.Since(began) < first {
				if _, err := c.Vote(t.Context(), 300, true); err == nil {
					t.Fatal("one endpoint's word is final")
				}
				if votes {
					<-time.After(2 * time.Second)
				} else {
					<-time.After(first - time.Since(began))
				}
			}
			for range 3 {
				if _, err := c.Vote(t.Context(), 300, true); err == nil {
					t.Errorf("one endpoint's word is final %s after nobody answered", time.Since(began)-first)
				}
				<-time.After(2 * time.Second)
			}
		})
	}
}

// TestVoteOfABusyOne: a single endpoint throttles now and then. That means nothing about a block: a vote waits until
// the endpoint may be asked, or what was fetched would be fetched again. While it throttles, the block is not gone.
func TestVoteOfABusyOne(t *testing.T) {
	_, chain := chains(t, 1, 500)
	inBubble(t, "", func(t *testing.T) {
		asked, dead := 0, false
		c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked++; asked%3 == 0 || dead {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			chain.ServeHTTP(w, r)
		}))
		for n := range uint64(10) {
			if h, err := c.Vote(t.Context(), 100+n, false); err != nil || h.Number != 100+n {
				t.Errorf("block %d: %d, %v", 100+n, h.Number, err)
			}
		}
		dead = true
		if _, err := c.Vote(t.Context(), 200, false); !errors.Is(err, ErrSlow) || errors.Is(err, ErrGone) {
			t.Errorf("while nobody answers: %v", err)
		}
	})
}

// hanging is a node that answers nothing at first, for so long; 0: for ever.
func hanging(then http.Handler, during time.Duration) http.Handler {
	var mu sync.Mutex
	var began time.Time
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if began.IsZero() {
			began = time.Now()
		}
		answers := during > 0 && time.Since(began) > during
		mu.Unlock()
		if answers {
			then.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // or the end of the request is not seen
		<-r.Context().Done()
	})
}

// TestFinalBesideOneThatStands: the finalized block of a stalled endpoint is no bound for longer than Config.Alone.
func TestFinalBesideOneThatStands(t *testing.T) {
	_, chain := chains(t, 1, 10_000)
	inBubble(t, "", func(t *testing.T) {
		goes, stuck := reaching(chain, 5000, 1), reaching(chain, 150, 0)
		goes.final.Store(4900)
		stuck.final.Store(100)
		c := piped(t, func(*Config) {}, goes, stuck)
		for began := time.Now(); ; <-time.After(5 * time.Second) {
			if _, err := c.Head(t.Context(), 150); err != nil {
				t.Fatal(err)
			}
			n, err := c.Finalized(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if over := time.Since(began) > c.cfg.Alone+time.Minute; over && n == goes.final.Load() {
				return
			} else if over || time.Since(began) < c.cfg.Alone && n != stuck.final.Load() {
				t.Fatalf("block %d is final after %s", n, time.Since(began))
			}
		}
	})
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
