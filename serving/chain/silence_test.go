package chain_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestASlowLiarIsNotTheHead: one of three takes nearly all the time of a poll to tell a lower block of its own. The others
// have time to contradict it, and do not rest.
func TestASlowLiarIsNotTheHead(t *testing.T) {
	node := newNode(t)
	block := mine(t, node, 10)
	const poll = 400 * time.Millisecond
	liar := rpctest.NewLiar(t, node.HTTP(), poll-30*time.Millisecond)
	one, two := rpctest.NewLiar(t, node.HTTP(), 40*time.Millisecond), rpctest.NewLiar(t, node.HTTP(), 40*time.Millisecond)
	reg, log := quiet()
	c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.PollTimeout = poll }, one.URL, two.URL, liar.URL)
	refresh(t, c)
	liar.Tells(forgedBelow(1))
	var asked atomic.Int64
	one.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if isCall(req) {
			asked.Add(1)
		}
		return false
	})
	for poll := range int64(4) {
		if head := refresh(t, c); head.Hash != block.Hash {
			t.Errorf("poll %d: the head is %d %s", poll, head.Number, head.Hash)
		}
		if _, err := c.Call(t.Context(), block.Hash, chain.Call{To: numbering}); err != nil || asked.Load() != poll+1 {
			t.Errorf("poll %d: who was to confirm the block is asked %d times: %v", poll, asked.Load(), err)
		}
	}
}

// TestASilentNodeIsWaitedFor: who is alone is not believed as soon as others stall. It is after a while.
func TestASilentNodeIsWaitedFor(t *testing.T) {
	for nodes := 2; nodes <= 3; nodes++ {
		node := newNode(t)
		mine(t, node, 10)
		const silence = 600 * time.Millisecond
		var all []*rpctest.Liar
		var urls []string
		for range nodes {
			l := rpctest.NewLiar(t, node.HTTP(), 0)
			all, urls = append(all, l), append(urls, l.URL)
		}
		reg, log := quiet()
		c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.MaxSilent = silence }, urls...)
		agreed := refresh(t, c)
		began := time.Now()
		for _, l := range all[1:] {
			l.Tells(away(true))
		}
		fake := common.Hash{0xfa}
		all[0].Tells(forged(func(block map[string]any) { block["hash"], block["number"] = fake.Hex(), hexutil.EncodeUint64(11) }))
		polltest.Until(t, "who is alone for long is believed", func() bool {
			head := refresh(t, c)
			if head.Hash == fake {
				if waited := time.Since(began); waited < silence {
					t.Errorf("of %d nodes one is believed alone after %v", nodes, waited)
				}
				return true
			}
			if head.Hash != agreed.Hash {
				t.Fatalf("the head is %+v", head)
			}
			return false
		})
	}
}

// TestTimeThatOthersUsedUp: a caller's deadline says nothing of the endpoint that was asked last before it, nor does a
// request that waits for others.
func TestTimeThatOthersUsedUp(t *testing.T) {
	node := newNode(t)
	mine(t, node, 1)
	var asked atomic.Int64
	slow, other := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	reg, log := quiet()
	c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.Timeout, cfg.Parallel = time.Minute, 1 }, slow.URL, other.URL)
	head := refresh(t, c)
	called, answer := make(chan struct{}), make(chan struct{})
	slow.Tells(func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if !isCall(req) {
			return false
		}
		if asked.Add(1) == 2 {
			close(called)
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		return false
	})
	number := func(ctx context.Context) error {
		_, err := c.Call(ctx, head.Hash, chain.Call{To: numbering})
		return err
	}
	hurried := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := number(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller without time: %v", err)
		}
	}
	hurried() // the endpoint had no time
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := number(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-called
	hurried() // it was not even asked
	if _, err := c.Refresh(t.Context()); err != nil {
		t.Errorf("a poll beside as many calls as there may be: %v", err)
	}
	close(answer)
	wg.Wait()
	if n := asked.Load(); n != 2 {
		t.Errorf("the endpoint is asked %d times", n)
	}
}

// TestOneOfThreeDoesNotTurnTheHeadBack: it says, with a block that is on the chain, that it is behind. The head is what the
// other two have, also from then on, until they say that the chain was reorganised.
func TestOneOfThreeDoesNotTurnTheHeadBack(t *testing.T) {
	node := newNode(t)
	mine(t, node, 30)
	for place := range 3 {
		var all []*rpctest.Liar
		var urls []string
		for range 3 {
			l := rpctest.NewLiar(t, node.HTTP(), 0)
			all, urls = append(all, l), append(urls, l.URL)
		}
		reg, log := quiet()
		c := newClient(t, log, reg, nil, urls...)
		first := refresh(t, c)
		all[place].Tells(stuckAt(t, node, first.Number-20))
		for range 2 {
			if head := refresh(t, c); head.Hash != first.Hash {
				t.Errorf("with node %d behind the head is %d", place, head.Number)
			}
		}
		next := mine(t, node, 2)
		if head := refresh(t, c); head.Hash != next.Hash {
			t.Errorf("with node %d behind the head is %d, and not %d", place, head.Number, next.Number)
		}
		if _, err := c.Call(t.Context(), next.Hash, chain.Call{To: numbering}); err != nil {
			t.Errorf("a call at the head, with node %d behind: %v", place, err)
		}
		all[(place+1)%3].Tells(stuckAt(t, node, first.Number-10)) // by two of three it would fall back
		if head := refresh(t, c); head.Hash != next.Hash {
			t.Errorf("while node %d has it still, the head is %d", (place+2)%3, head.Number)
		}
		all[(place+2)%3].Tells(stuckAt(t, node, first.Number-10))
		if head := refresh(t, c); head.Number != first.Number-10 {
			t.Errorf("when nobody has it any more, the head is %d", head.Number)
		}
	}
}

// TestAForkBelowTheHead: one of three is behind, on a chain of its own. It is asked for nothing.
func TestAForkBelowTheHead(t *testing.T) {
	node := newNode(t)
	block := mine(t, node, 10)
	liar, one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	reg, log := quiet()
	c := newClient(t, log, reg, nil, liar.URL, one.URL, two.URL)
	var asked atomic.Int64
	fork := forgedBelow(3)
	liar.Tells(func(w http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if isCall(req) {
			asked.Add(1)
		}
		return fork(w, r, req, resp)
	})
	if head := refresh(t, c); head.Hash != block.Hash {
		t.Errorf("the head is %d %s", head.Number, head.Hash)
	}
	one.Tells(away(false))
	two.Tells(away(false))
	if said, err := c.Call(t.Context(), block.Hash, chain.Call{To: numbering}); err == nil || asked.Load() > 0 {
		t.Errorf("who is on a fork is asked: %x, %v", said, err)
	}
}

// TestASlowNodeIsAskedLast: its calls succeed, and would hold up all others for ever.
func TestASlowNodeIsAskedLast(t *testing.T) {
	node := newNode(t)
	mine(t, node, 1)
	slow, other := rpctest.NewLiar(t, node.HTTP(), time.Second), rpctest.NewLiar(t, node.HTTP(), 0)
	var asked atomic.Int64
	slow.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if isCall(req) {
			asked.Add(1)
		}
		return false
	})
	reg, log := quiet()
	c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.Timeout, cfg.PollTimeout = 3*time.Second, 3*time.Second }, slow.URL, other.URL)
	head := refresh(t, c)
	for range 3 {
		if _, err := c.Call(t.Context(), head.Hash, chain.Call{To: numbering}); err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("of three calls %d are waited for", n)
	}
	ctx := chain.Apart(t.Context())
	for range 2 {
		if _, err := c.Call(ctx, head.Hash, chain.Call{To: numbering}); err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("its opinion is asked %d times beside the other's", n-1)
	}
}
