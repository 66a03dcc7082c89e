package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// TestStandingHasNoSay: of three endpoints one stands and another one pretends to, or both end below what is final. Where the third
// goes on, they take its blocks back for no longer than Config.Silence.
func TestStandingHasNoSay(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	for _, test := range []struct {
		name  string
		final uint64
		first int // who have a say at first
		next  int // and after a while
		third uint64
	}{
		{"while another one rises", 0, 2, 0, 1},
		{"below what is final", 160, 0, 0, 1},
		{"as all do", 0, 2, 2, 0},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			honest := reaching(chain, 200, test.third)
			c := piped(t, func(*Config) {}, honest, reaching(chain, 150, 0), reaching(chain, 150, 0))
			c.Final(test.final)
			lacked := func() int {
				t.Helper()
				for range c.endpoints {
					if _, err := c.Head(t.Context(), 150); err != nil {
						t.Fatal(err)
					}
				}
				below, _, err := c.Lacked(t.Context(), honest.head.Load())
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

// TestOldChain: the chain stood for hours, and stands, or goes on with timestamps that are hours old. Two of three endpoints end
// below a block that one has made up, and have a say.
func TestOldChain(t *testing.T) {
	_, chain := chains(t, 1, 100_000)
	for _, rises := range []uint64{0, 1} {
		t.Run(fmt.Sprint("rises by ", rises), func(t *testing.T) {
			c := voters(t, func(*Config) {}, chain, reaching(chain, 50_000, rises), reaching(chain, 50_000, rises))
			for range 3 {
				below, most, err := c.Lacked(t.Context(), 51_000)
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

// TestUnshownClaim: an endpoint tells of a head two above all others', and does not answer who asks for what leads there. That
// stops the blocks shortly and once, not 25 s for each claim.
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
			c.Forget(claim.By) // as often as it is followed in vain
			if i < 20 {        // then the chain stands
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

// TestBusyClaim: who tells of a block asks once for fewer requests, and the other endpoint stands. The block is not gone.
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

// TestFirstClaim: what is safe and what is final is not the word of whoever is asked first, where others have an answer, too.
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
				n.final = final
				nodes = append(nodes, n)
			}
			c := piped(t, func(*Config) {}, nodes...)
			for range 4 {
				for name, ask := range map[string]func(context.Context) (uint64, error){"safe": c.Safe, "final": c.Finalized} {
					if n, err := ask(t.Context()); err != nil || n != test.want {
						t.Errorf("%s: %d, want %d: %v", name, n, test.want, err)
					}
				}
				<-time.After(2 * time.Second)
			}
		})
	}
}
