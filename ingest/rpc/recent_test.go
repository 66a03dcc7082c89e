package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestForgottenBlocks: an endpoint reports a made-up block, then many real ones, and some far above. It is counted as
// if it had reported only the first.
func TestForgottenBlocks(t *testing.T) {
	other, chain := chains(t, 3000, 3000)
	inBubble(t, "", func(t *testing.T) {
		c, both := piped(t, func(*Config) {}, chain, chain, chain), piped(t, func(*Config) {}, other, chain)
		e, numbers := c.endpoints[0], make([]uint64, chain.Head())
		for i := range numbers {
			numbers[i] = uint64(i)
		}
		forged, theirs := make([]follow.Header, len(numbers)), make([]follow.Header, len(numbers))
		for i, all := range [][]follow.Header{forged, theirs} {
			if err := both.endpoints[i].headers(t.Context(), numbers, all); err != nil {
				t.Fatal(err)
			}
		}
		for n := uint64(900); n < 900+lostOften; n++ {
			c.announce(c.endpoints[1], theirs[n])
			c.announce(e, forged[n])
			for i := range n {
				c.announce(e, theirs[i])
			}
			for i := n + 2*maxJump; i < chain.Head(); i++ {
				c.announce(e, forged[i])
			}
			if _, err := c.Vote(t.Context(), n, false); err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * lostApart)
		}
		if e.forks.n == 0 {
			t.Errorf("it lost %d votes and was not counted", e.losses)
		}
	})
}

// TestForgerOfASlowChain: an endpoint reports a made-up block beside each real one, which come every 12 s.
func TestForgerOfASlowChain(t *testing.T) {
	other, chain := chains(t, 1000, 1000)
	inBubble(t, "", func(t *testing.T) {
		c, forger := piped(t, func(*Config) {}, chain, chain, chain), piped(t, func(*Config) {}, other)
		e := c.endpoints[0]
		for n := uint64(900); n < 900+lostOften; n++ {
			h, err := forger.endpoints[0].byNumber(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			c.announce(e, h)
			if _, err := c.Vote(t.Context(), n, false); err != nil {
				t.Fatal(err)
			}
			<-time.After(12 * time.Second)
		}
		if e.forks.n == 0 {
			t.Errorf("it lost %d votes and was not counted", e.losses)
		}
	})
}

// TestOneWordBlamesNobody: an endpoint reported blocks that were rolled back, and ends below them. A single other
// endpoint has different blocks at these heights, which may be made up, so the first is not counted.
func TestOneWordBlamesNobody(t *testing.T) {
	other, before := chains(t, 300, 300)
	inBubble(t, "", func(t *testing.T) {
		c, rolledBack := piped(t, func(*Config) {}, other, reaching(before, 199, 0)), piped(t, func(*Config) {}, before)
		e := c.endpoints[1]
		for n := uint64(200); n < 200+2*lostOften; n++ {
			h, err := rolledBack.endpoints[0].byNumber(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			e.remember(h)
			if _, err := c.Vote(t.Context(), n, false); err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * lostApart)
		}
		if e.forks.n > 0 || e.losses > 0 {
			t.Errorf("by one endpoint's word it lost %d votes and was counted %d times", e.losses, e.forks.n)
		}
	})
}

// twofaced answers batches as one node, and single calls, among them votes, as another.
func twofaced(batches, single http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
			batches.ServeHTTP(w, r)
		} else {
			single.ServeHTTP(w, r)
		}
	})
}

func later(node *rpctest.Sparse, t *testing.T, d time.Duration) http.Handler {
	return rpctest.NewLiar(t, node.URL, d)
}

// TestRangesOfAnotherChain: an endpoint votes with the others, and has headers of another chain in every batch. Ranges
// are of one chain, and once there is a vote on a block to which a range does not link, that endpoint is counted, and
// no other.
func TestRangesOfAnotherChain(t *testing.T) {
	other, chain := chains(t, 1000, 1000)
	c := voters(t, func(*Config) {}, twofaced(other, chain), later(chain, t, 5*time.Millisecond), later(chain, t, 5*time.Millisecond))
	polltest.Within(t, time.Minute, func() error {
		headers, err := c.Headers(t.Context(), 11, 900, chain.Hash(900))
		if err != nil {
			return err
		}
		for i := range headers {
			if h := &headers[i]; h.Hash != chain.Hash(h.Number) {
				t.Fatalf("block %d is another chain's", h.Number)
			}
		}
		if headers, err = c.Headers(t.Context(), 11, 900, headers[0].Parent); err == nil {
			t.Fatalf("%d headers end with a hash that nobody has", len(headers))
		}
		if headers, err = c.Headers(t.Context(), 11, 110, [32]byte{}); err == nil && headers[0].Parent != chain.Hash(10) {
			if _, err := c.Vote(t.Context(), 10, false); err != nil { // as follow does
				return err
			}
		}
		if c.endpoints[0].forks.n == 0 {
			return errors.New("the liar was not counted")
		}
		return nil
	})
	for _, e := range c.endpoints[1:] {
		if e.forks.n > 0 {
			t.Errorf("%s was counted", e.name)
		}
	}
}

// TestFirstToSeeAReorg: of three endpoints one has another block than the others, as during a reorg. It is paused
// shortly and not counted, unless that goes on.
func TestFirstToSeeAReorg(t *testing.T) {
	other, chain := chains(t, 300, 300)
	inBubble(t, "", func(t *testing.T) {
		c := piped(t, func(*Config) {}, other, chain, chain)
		for began := time.Now(); time.Since(began) < lostApart; <-time.After(voteApart) {
			h, err := c.Vote(t.Context(), 200, false)
			if err != nil || h.Hash != chain.Hash(200) {
				t.Fatalf("%s: %v", h.Hash, err)
			}
			e := c.endpoints[0]
			if rest, _ := e.score(time.Now()); e.forks.n > 0 || rest > reorgRest {
				t.Fatalf("it rests for %s and was counted %d times", rest, e.forks.n)
			}
		}
		polltest.Within(t, 20*time.Second, func() error {
			if _, err := c.Vote(t.Context(), 201, false); err != nil {
				return err
			}
			if c.endpoints[0].forks.n == 0 {
				return errors.New("it was not counted")
			}
			return nil
		})
	})
}

// TestAReorgThatAllToldOf: blocks that all endpoints reported, and no longer have, are no lie.
func TestAReorgThatAllToldOf(t *testing.T) {
	before, chain := chains(t, 300, 300)
	now := &atomic.Bool{}
	node := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now.Load() {
			chain.ServeHTTP(w, r)
		} else {
			before.ServeHTTP(w, r)
		}
	})
	c := voters(t, func(*Config) {}, node, node, node)
	for _, e := range c.endpoints {
		h, err := e.byNumber(t.Context(), 200)
		if err != nil {
			t.Fatal(err)
		}
		e.remember(h)
	}
	now.Store(true)
	if _, err := c.Vote(t.Context(), 200, false); err != nil {
		t.Fatal(err)
	}
	for _, e := range c.endpoints {
		if e.resting() || e.forks.n > 0 {
			t.Errorf("%s rests", e.name)
		}
	}
}

// TestSlowIsNotSilent: two honest endpoints take longer than a second for a vote on a block that is not final, and the
// third, which answers at once, has another block.
func TestSlowIsNotSilent(t *testing.T) {
	liar, honest := chains(t, 300, 300)
	late := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		slow(1300*time.Millisecond)(w, r)
		honest.ServeHTTP(w, r)
	})
	inBubble(t, "", func(t *testing.T) {
		c := piped(t, func(*Config) {}, liar, late, late)
		h, err := c.Vote(t.Context(), 200, false)
		if err != nil || h.Hash != honest.Hash(200) {
			t.Errorf("%s: %v", h.Hash, err)
		}
	})
}

// upTo is a node that has less of a chain: up to a head, which rises by so much whenever it is asked for.
type upTo struct {
	*rpctest.Sparse
	head    atomic.Uint64
	rises   uint64
	syncing bool          // it says so
	final   atomic.Uint64 // what it says is final, and safe; 0: nothing is
}

func reaching(chain *rpctest.Sparse, head, rises uint64) *upTo {
	n := &upTo{Sparse: chain, rises: rises}
	n.head.Store(head)
	return n
}

func (n *upTo) ServeHTTP(w http.ResponseWriter, r *http.Request) { rpctest.Serve(w, r, n.answer) }

func (n *upTo) answer(m rpctest.Message) string {
	switch m.Method {
	case "eth_syncing":
		if n.syncing {
			return `{"currentBlock":"0x10","highestBlock":"0x100","startingBlock":"0x0"}`
		}
		return "false"
	case "eth_getBlockByNumber":
		var tag string
		_ = json.Unmarshal(m.Params[0], &tag)
		var number uint64
		if tag == "latest" {
			number = n.head.Add(n.rises)
		} else if tag == "finalized" || tag == "safe" {
			if number = n.final.Load(); number == 0 {
				return "null"
			}
		} else if _, err := fmt.Sscanf(tag, "0x%x", &number); err != nil || number > n.head.Load() {
			return "null"
		}
		m.Params[0] = json.RawMessage(fmt.Sprintf(`"0x%x"`, number))
	case "eth_getBlockReceipts", "eth_getBlockByHash":
		var hash common.Hash
		_ = json.Unmarshal(m.Params[0], &hash)
		for number := n.head.Load() + 1; number <= n.Head(); number++ {
			if n.Hash(number) == hash {
				return "null"
			}
		}
	}
	return n.Answer(m)
}

// TestSyncing: an endpoint whose head rises below the block that is to be final keeps its vote, however old its head
// is: the chain may have halted for hours. But if it is syncing, as it reports or as a head below the final block
// shows, it is silent, however often it is polled.
func TestSyncing(t *testing.T) {
	const silence, blocks = 300 * time.Millisecond, 100_000 // ten a second
	for _, test := range []struct {
		name  string
		says  bool
		final uint64
		hears bool
	}{
		{"rises", false, 0, true},
		{"says that it is syncing", true, 0, false},
		{"rises below what is final", false, blocks / 2, false},
	} {
		_, chain := chains(t, 1, blocks)
		inBubble(t, test.name, func(t *testing.T) {
			node := reaching(chain, 1, 1)
			node.syncing = test.says
			c := piped(t, func(cfg *Config) { cfg.Alone = silence }, chain, node)
			c.Final(test.final)
			ctx, cancel := context.WithTimeout(t.Context(), 5*silence)
			defer cancel()
			_, err := c.Vote(ctx, blocks-100, true)
			for err != nil && ctx.Err() == nil {
				if _, polled := c.Head(ctx, blocks-100); polled != nil && ctx.Err() == nil {
					t.Fatal(polled)
				}
				<-time.After(voteApart)
				_, err = c.Vote(ctx, blocks-100, true)
			}
			if test.hears == (err == nil) {
				t.Errorf("the vote ended with: %v", err)
			}
		})
	}
}

// Each time that comes soon after another costs twice as long, up to a bound.
func TestStrikes(t *testing.T) {
	var s strikes
	now := time.Now()
	for i, want := range []int{1, 2, 4, 8, 10, 10} {
		now = now.Add(time.Minute)
		if d := s.add(now, time.Minute, time.Second, 10*time.Second); d != time.Duration(want)*time.Second {
			t.Errorf("the %d. time costs %s, not %d s", i+1, d, want)
		}
	}
	for range 100 {
		s.add(now, time.Minute, time.Second, time.Hour)
	}
	if d := s.add(now, time.Minute, time.Second, time.Hour); d != time.Hour {
		t.Errorf("after a hundred times it costs %s", d)
	}
	if d := s.add(now.Add(time.Minute+1), time.Minute, time.Second, time.Hour); d != time.Second {
		t.Errorf("once it is forgotten it costs %s", d)
	}
}
