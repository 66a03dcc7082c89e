package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
)

// TestStandingHasNoSay: of three endpoints one is stalled and another one pretends to be, or both end below the final
// block. While the third goes on, they revert its blocks for no longer than Config.Silence; but if they end at the
// same block, so does the chain.
func TestStandingHasNoSay(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	for _, test := range []struct {
		name  string
		final uint64
		apart uint64 // the two, from each other
		first int    // who have a say at first
		next  int    // and after a while
		third uint64
	}{
		{"while another one rises", 0, 1, 2, 0, 1},
		{"at one block, while another one rises", 0, 0, 2, 2, 1},
		{"below what is final", 160, 0, 0, 0, 1},
		{"as all do", 0, 1, 2, 2, 0},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			honest := reaching(chain, 200, test.third)
			c := piped(t, func(*Config) {}, honest, reaching(chain, 150, 0), reaching(chain, 150-test.apart, 0))
			c.Final(test.final)
			lacked := func() int {
				t.Helper()
				for range c.endpoints {
					if _, err := c.Head(t.Context(), 150); err != nil {
						t.Fatal(err)
					}
				}
				below, _, err := c.Lacked(t.Context(), honest.head.Load(), 200)
				if err != nil {
					t.Fatal(err)
				}
				return len(below)
			}
			if n := lacked(); n != test.first {
				t.Errorf("%d have a say at first", n)
			}
			n := 0
			for began := time.Now(); time.Since(began) < c.cfg.Silence+5*time.Second; <-time.After(time.Second) {
				n = lacked()
			}
			if n != test.next {
				t.Errorf("%d have a say after %s", n, c.cfg.Silence)
			}
			counts := false
			for _, a := range c.Newest() {
				counts = counts || a.By == 0
			}
			if counts != (test.next == 0) {
				t.Errorf("the heads of the third count: %t", counts)
			}
		})
	}
}

// TestOneBlockDisarmsNobody: the chain halts for longer than Config.Silence, and one of three endpoints makes up the
// next blocks. The two others keep ending below them.
func TestOneBlockDisarmsNobody(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	inBubble(t, "", func(t *testing.T) {
		liar := reaching(chain, 200, 0)
		c := piped(t, func(*Config) {}, liar, reaching(chain, 200, 0), reaching(chain, 200, 0))
		says := func(during time.Duration) (have int) {
			t.Helper()
			for began := time.Now(); time.Since(began) < during; <-time.After(time.Second) {
				heads(t, c)
				below, _, err := c.Lacked(t.Context(), 201, 200)
				if err != nil && !errors.Is(err, ErrGone) {
					t.Fatal(err)
				}
				have = len(below)
			}
			return have
		}
		says(2 * c.cfg.Silence)
		liar.head.Store(201)
		if n := says(time.Second); n != 2 {
			t.Errorf("%d have a say at once", n)
		}
		if n := says(c.cfg.Silence - 5*time.Second); n != 2 {
			t.Errorf("%d have a say after nearly %s", n, c.cfg.Silence)
		}
		liar.head.Store(202) // as it would where the two others stand
		if n := says(10 * time.Second); n != 2 {
			t.Errorf("%d have a say in the end", n)
		}
		for _, a := range c.Newest() {
			if a.By == 0 {
				t.Errorf("head %d is followed, which one endpoint alone has", a.Number)
			}
		}
	})
}

// TestSubscriptionTellsWhoHasABlock: a block that came by subscription is fetched from the endpoint that announced it.
func TestSubscriptionTellsWhoHasABlock(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	inBubble(t, "", func(t *testing.T) {
		c, ahead := piped(t, func(*Config) {}, reaching(chain, 200, 0), reaching(chain, 200, 0)), piped(t, func(*Config) {}, chain)
		heads(t, c)
		h, err := ahead.endpoints[0].byNumber(t.Context(), 201)
		if err != nil {
			t.Fatal(err)
		}
		c.announce(c.endpoints[1], h)
		if e := c.owner(t.Context(), 201, nil, time.Now().Add(time.Second)); e != c.endpoints[1] {
			t.Error("the endpoint that told of the block is not known to have it")
		}
	})
}

// TestLateIsNoReorg: two endpoints are some blocks behind the third, and come nearer.
func TestLateIsNoReorg(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	inBubble(t, "", func(t *testing.T) {
		late := []*upTo{reaching(chain, 200, 0), reaching(chain, 199, 0)}
		c := piped(t, func(*Config) {}, reaching(chain, 205, 0), late[0], late[1])
		heads(t, c)
		late[0].head.Store(203)
		if below, _, err := c.Lacked(t.Context(), 205, 200); !errors.Is(err, ErrLate) {
			t.Errorf("%d end below: %v", len(below), err)
		}
		if c.endpoints[0].isAhead(205) {
			t.Error("the first is not followed")
		}
		if below, _, err := c.Lacked(t.Context(), 205, 203); err != nil || len(below) != 2 {
			t.Errorf("%d end below: %v", len(below), err)
		}
	})
}

// TestBusyClaims: one of three endpoints announces blocks above the others', and throttles requests for them. This
// causes failed requests, less and less often; but an endpoint that throttles for a moment is followed again soon.
func TestBusyClaims(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	for _, test := range []struct {
		name string
		busy time.Duration
		most int // requests in vain
	}{{"for ever", time.Hour, 6}, {"for a moment", 3 * time.Second, 3}} {
		inBubble(t, test.name, func(t *testing.T) {
			began := time.Now()
			node := reaching(chain, 202, 0)
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if time.Since(began) > 0 && time.Since(began) < test.busy {
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				node.ServeHTTP(w, r)
			}), reaching(chain, 200, 0), reaching(chain, 200, 0))
			claim, err := c.endpoints[0].header(t.Context(), `"latest"`)
			if err != nil {
				t.Fatal(err)
			}
			vain, came := 0, false
			for i := 0; time.Since(began) < 20*time.Second && !came; i++ {
				<-time.After(50 * time.Millisecond)
				c.announce(c.endpoints[0], claim) // its subscription goes on
				for _, e := range c.endpoints[1:] {
					h, err := e.header(t.Context(), `"latest"`)
					if err != nil {
						t.Fatal(err)
					}
					e.recordHead(h, false)
				}
				for _, a := range c.Newest() {
					if a.By != 0 {
						continue
					}
					if _, err := c.Blocks(t.Context(), 201, 202, 0); errors.Is(err, ErrGone) {
						vain++
						c.Forget(0, false)
					} else if came = err == nil; !came {
						t.Fatal(err)
					}
				}
			}
			if vain > test.most || came != (test.busy < 20*time.Second) {
				t.Errorf("after %s %d requests were in vain, and the blocks came: %t", time.Since(began), vain, came)
			}
		})
	}
}

// TestOldChain: the chain has halted for hours, or goes on with timestamps that are hours old. Two of three endpoints
// end below a block that one has made up, and keep their votes.
func TestOldChain(t *testing.T) {
	_, chain := chains(t, 1, 100_000)
	for _, rises := range []uint64{0, 1} {
		t.Run(fmt.Sprint("rises by ", rises), func(t *testing.T) {
			c := voters(t, func(*Config) {}, chain, reaching(chain, 50_000, rises), reaching(chain, 50_000, rises))
			for range 3 {
				below, most, err := c.Lacked(t.Context(), 51_000, 51_000)
				if err != nil || len(below) < 2 {
					t.Errorf("two end below; %d were heard, and most have block %d: %v", len(below), most.Number, err)
				}
			}
		})
	}
}

// stalls tells of its head, and answers nothing else before it shows the others.
func stalls(node http.Handler, shows *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !shows.Load() && bytes.Contains(body, []byte(`["0x`)) {
			<-r.Context().Done()
			return
		}
		node.ServeHTTP(w, r)
	})
}

// TestHeadFromBeforeAVote: a head that was polled does not count once a vote has shown that most endpoints end below it.
func TestHeadFromBeforeAVote(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	inBubble(t, "", func(t *testing.T) {
		c := piped(t, func(*Config) {}, reaching(chain, 202, 0), reaching(chain, 200, 0), reaching(chain, 200, 0))
		var heads []Announcement
		for range c.endpoints {
			head, err := c.Head(t.Context(), 200)
			if err != nil {
				t.Fatal(err)
			}
			heads = append(heads, head)
		}
		if below, _, err := c.Lacked(t.Context(), 202, 200); err != nil || len(below) != 2 {
			t.Fatalf("%d end below: %v", len(below), err)
		}
		for _, head := range heads {
			if c.Counts(head) != (head.Number == 200) {
				t.Errorf("head %d of endpoint %d counts: %t", head.Number, head.By, c.Counts(head))
			}
		}
	})
}

// TestSlowBesideAFrozenHead: of two endpoints one answers at once, always with the same head, and the honest one
// answers later than the wait for it. Its head is announced all the same. It used to be lost, and ingestion stood.
func TestSlowBesideAFrozenHead(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	const takes = 2 * patience
	inBubble(t, "", func(t *testing.T) {
		var asked atomic.Int64
		honest := reaching(chain, 200, 0)
		c := piped(t, func(*Config) {}, reaching(chain, 200, 0), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			<-time.After(takes)
			honest.ServeHTTP(w, r)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		highest := func(during time.Duration) (top uint64) {
			t.Helper()
			for began := time.Now(); time.Since(began) < during; <-time.After(100 * time.Millisecond) {
				head, err := c.Head(ctx, 200)
				if err != nil {
					t.Fatal(err)
				}
				top = max(top, head.Number)
				all, _ := c.Announced()
				for _, a := range all {
					if a.New {
						top = max(top, a.Number)
					}
				}
			}
			return top
		}
		highest(10 * time.Second)
		before := asked.Load()
		honest.head.Store(201)
		if top := highest(2*staleAgain + takes); top != 201 {
			t.Errorf("the head is %d", top)
		}
		if n := asked.Load() - before; n > 10 {
			t.Errorf("it was asked %d times", n)
		}
		cancel()
		<-time.After(takes) // for its last answer
	})
}

// TestReplacedForEver: an endpoint announces a head above the others' which they know by its hash, as after a reorg,
// and has no blocks below it. It is followed less and less often, and again in the end.
func TestReplacedForEver(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	inBubble(t, "", func(t *testing.T) {
		c := piped(t, func(*Config) {}, reaching(chain, 202, 0), reaching(chain, 200, 0))
		counts := func() bool {
			t.Helper()
			heads(t, c)
			return len(c.Newest()) == 2
		}
		vain := 0
		for began := time.Now(); time.Since(began) < 10*time.Minute; <-time.After(time.Second) {
			if counts() {
				vain++
				c.Forget(0, true)
			}
		}
		if vain < 5 || vain > 20 {
			t.Errorf("it was followed %d times", vain)
		}
		<-time.After(doubtFor + time.Second)
		if !counts() {
			t.Error("it is not followed any more")
		}
	})
}

// TestSeveralNodesBehindAURL: the only endpoint is several nodes, and one announces a head while another is asked for
// the blocks below. That they were missing once is no lie, and costs later heads no further call.
func TestSeveralNodesBehindAURL(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	inBubble(t, "", func(t *testing.T) {
		var asked atomic.Int64
		nodes := []*upTo{reaching(chain, 203, 0), reaching(chain, 200, 0)}
		c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			nodes[asked.Add(1)%2].ServeHTTP(w, r) // in turn
		}))
		c.Forget(0, false)
		asked.Store(0)
		for range 4 {
			n := asked.Load()
			head, err := c.Head(t.Context(), 200)
			if err != nil || head.Number < 200 || n > 0 && asked.Load() != n+1 {
				t.Errorf("head %d took %d requests: %v", head.Number, asked.Load()-n, err)
			}
		}
	})
}

// TestHeadOfTwo: above what is verified, a head counts if two endpoints reached it. A silent endpoint takes no part,
// nor one far below what is verified: then a single other endpoint counts only as far as its own headers lead.
func TestHeadOfTwo(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	const verified = 200
	deaf := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or its end would not be noticed
		<-r.Context().Done()
	})
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	at := func(head uint64) http.Handler { return reaching(chain, head, 0) }
	for _, test := range []struct {
		name  string
		nodes []http.Handler
		polls int
		want  uint64
	}{
		{"alone", []http.Handler{at(240)}, 3, math.MaxUint64},
		{"one above the other", []http.Handler{at(240), at(203)}, 10, 203},
		{"two above a third", []http.Handler{at(240), at(203), at(202)}, 10, 203},
		{"above one that was not asked yet", []http.Handler{at(240), at(203)}, 1, 0},
		{"above one that is late", []http.Handler{at(203), at(185)}, 10, 185},
		{"above one that stands", []http.Handler{at(203), at(180)}, 10, 0},
		{"above one that stands, and another one", []http.Handler{at(240), at(180), at(203)}, 10, 203},
		{"beside one that fails", []http.Handler{at(203), refuses}, 10, 0},
		{"beside one that is silent", []http.Handler{at(203), deaf}, 10, 0},
		{"far above, beside one that is silent", []http.Handler{at(300), deaf}, 10, 300},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			c := piped(t, func(*Config) {}, test.nodes...)
			for range test.polls {
				if _, err := c.Head(t.Context(), verified); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second)
			}
			if n := c.HeadOfTwo(); n != test.want {
				t.Errorf("the head is %d, not %d", n, test.want)
			}
		})
	}
}

// TestUnshownClaim: an endpoint announces a head two above all others', and does not answer requests for the blocks
// below. That stops the blocks shortly and once, not 25 s for each claim.
func TestUnshownClaim(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	inBubble(t, "", func(t *testing.T) {
		var shows atomic.Bool
		liar, others := reaching(chain, 202, 0), []*upTo{reaching(chain, 200, 0), reaching(chain, 200, 0)}
		c := piped(t, func(cfg *Config) { cfg.Silence = doubtFor / 6 }, stalls(liar, &shows), others[0], others[1])
		head := func() Announcement {
			t.Helper()
			h, err := c.Head(t.Context(), others[0].head.Load())
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		var claim Announcement
		for range c.endpoints {
			if h := head(); h.By == 0 {
				claim = h
			}
		}
		began := time.Now()
		if _, err := c.Blocks(t.Context(), 201, claim.Number, 0); !errors.Is(err, ErrGone) || time.Since(began) > 2*claimWait {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		shows.Store(true)
		for i := range 40 {
			c.Forget(claim.By, false) // as often as it is followed in vain
			if i < 20 {               // then the chain stands
				for _, n := range append(others, liar) {
					n.head.Add(1)
				}
			}
			for range c.endpoints {
				if h := head(); h.Number > others[0].head.Load() {
					t.Fatalf("head %d is followed after %ds, which is above block %d of the others", h.Number, i, others[0].head.Load())
				}
			}
			<-time.After(time.Second)
		}
	})
}

// TestBusyClaim: the endpoint that announced a block throttles once, and the other endpoint is stalled. The block is
// not gone.
func TestBusyClaim(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	inBubble(t, "", func(t *testing.T) {
		var busy atomic.Bool
		node := reaching(chain, 201, 0)
		c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if busy.CompareAndSwap(true, false) {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			node.ServeHTTP(w, r)
		}), reaching(chain, 200, 0))
		h, err := c.Head(t.Context(), 200)
		if err != nil || h.By != 0 {
			t.Fatalf("endpoint %d told first: %v", h.By, err)
		}
		busy.Store(true)
		began := time.Now()
		headers, err := c.Headers(t.Context(), 201, 201, common.Hash{})
		if err != nil || headers[0].Hash != chain.Hash(201) {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestFirstClaim: the first endpoint that is asked does not decide what is safe and final if others have an answer
// too.
func TestFirstClaim(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	for _, test := range []struct {
		name   string
		others uint64
		want   uint64
	}{{"others have an answer", 150, 150}, {"no other has one", 0, 190}} {
		inBubble(t, test.name, func(t *testing.T) {
			nodes := []http.Handler{}
			for _, final := range []uint64{190, test.others, test.others} {
				n := reaching(chain, 900, 1)
				n.final.Store(final)
				nodes = append(nodes, n)
			}
			c := piped(t, func(*Config) {}, nodes...)
			safe := func(ctx context.Context) (uint64, error) {
				err := c.AskSafe(ctx)
				return c.Safe(func(b topics.BlockRef) (uint64, bool) { return b.Number, true }).Number, err
			}
			for range 4 {
				for name, ask := range map[string]func(context.Context) (uint64, error){"safe": safe, "final": c.Finalized} {
					if n, err := ask(t.Context()); err != nil || n != test.want {
						t.Errorf("%s: %d, want %d: %v", name, n, test.want, err)
					}
				}
				<-time.After(2 * time.Second)
			}
		})
	}
}
