package rpc

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// TestFinalBesideTheSlow: of three endpoints two are slow. The block that two of them call final is known as soon as
// the second has answered. Before, it was the last answer of a slow one.
func TestFinalBesideTheSlow(t *testing.T) {
	_, chain := chains(t, 1, 10_000)
	inBubble(t, "", func(t *testing.T) {
		const late = 600 * time.Millisecond
		var slow, slower atomic.Int64
		slow.Store(int64(late))
		slower.Store(int64(2 * late))
		nodes := []*upTo{reaching(chain, 5000, 1), reaching(chain, 5000, 1), reaching(chain, 5000, 1)}
		c := piped(t, func(*Config) {}, nodes[0], lateBy(&slow, nodes[1]), lateBy(&slower, nodes[2]))
		for final := uint64(4000); final < 4010; final++ {
			for _, n := range nodes {
				n.final.Store(final)
			}
			began := time.Now()
			n, err := c.Finalized(t.Context())
			if took := time.Since(began); err != nil || final > 4000 && (n != final || took > late) {
				t.Errorf("block %d is final after %s, %v, want %d", n, took, err, final)
			}
			<-time.After(2 * time.Second)
		}
	})
}

// TestTagsWaitForTheRate: a wait for our own rate limit that exceeds the request timeout is no failure of the
// endpoint.
func TestTagsWaitForTheRate(t *testing.T) {
	_, chain := chains(t, 1, 10_000)
	inBubble(t, "", func(t *testing.T) {
		node := reaching(chain, 5000, 1)
		node.final.Store(4000)
		c := piped(t, func(cfg *Config) { cfg.Endpoints[0].Rate = 1 }, node)
		e := c.endpoints[0]
		e.limiter.ReserveN(time.Now(), e.limiter.Burst())
		e.limiter.ReserveN(time.Now(), 30) // half a minute of other calls
		go func() { _, _ = c.Finalized(t.Context()) }()
		<-time.After(40 * time.Second)
		if two, one := c.claims(tagFinalized); two != 0 || one != 4000 || e.failures > 0 {
			t.Errorf("final is %d, %d, and the endpoint counts %d failures; want 4000 of one, and none", two, one, e.failures)
		}
	})
}

// TestFinalBeforeAnybodySaysSo: while all endpoints are slow, the final block is unknown, and not block 0; later it is
// their last answer.
func TestFinalBeforeAnybodySaysSo(t *testing.T) {
	_, chain := chains(t, 1, 10_000)
	inBubble(t, "", func(t *testing.T) {
		var slow atomic.Int64
		slow.Store(int64(3 * time.Second))
		node := reaching(chain, 5000, 1)
		node.final.Store(4000)
		c := piped(t, func(*Config) {}, lateBy(&slow, node))
		for range 2 {
			if n, err := c.Finalized(t.Context()); err == nil {
				t.Errorf("block %d is final, and nobody has said so", n)
			}
			<-time.After(500 * time.Millisecond)
		}
		for range 10 {
			<-time.After(5 * time.Second)
			if n, err := c.Finalized(t.Context()); err != nil || n != 4000 {
				t.Errorf("block %d is final, %v; want 4000", n, err)
			}
		}
	})
}

// TestTagsOfWhoRests: the only endpoint is not asked for tags while it is paused after failures.
func TestTagsOfWhoRests(t *testing.T) {
	_, chain := chains(t, 1, 10_000)
	inBubble(t, "", func(t *testing.T) {
		var asked atomic.Int64
		node := reaching(chain, 5000, 1)
		node.final.Store(4000)
		c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			node.ServeHTTP(w, r)
		}))
		e := c.endpoints[0]
		e.mu.Lock()
		e.restFor(10 * time.Second)
		e.mu.Unlock()
		if n, err := c.Finalized(t.Context()); err == nil || asked.Load() > 0 {
			t.Errorf("it was asked %d times while it rested: block %d is final, %v", asked.Load(), n, err)
		}
		<-time.After(9 * time.Second) // a moment before it has rested
		if n, err := c.Finalized(t.Context()); err != nil || n != 4000 {
			t.Errorf("block %d is final, %v; want 4000", n, err)
		}
	})
}
