package chain_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestASlowLiarIsNotTheHead: one of three takes nearly all the time of a poll to tell a lower block of its own. The others
// have time to contradict it, and do not rest.
func TestASlowLiarIsNotTheHead(t *testing.T) {
	node := newNode(t)
	block := mine(t, node, 10)
	const poll = 1500 * time.Millisecond
	liar := rpctest.NewLiar(t, node.HTTP(), poll-150*time.Millisecond)
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

// TestASilentNodeIsWaitedFor: of two nodes one is not believed alone as soon as the other stalls. It is after a while.
func TestASilentNodeIsWaitedFor(t *testing.T) {
	node := newNode(t)
	mine(t, node, 10)
	const silence = 600 * time.Millisecond
	one, other := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	reg := prometheus.NewRegistry()
	c := newClient(t, zap.NewNop(), reg, func(cfg *chain.Config) { cfg.MaxSilent = silence }, one.URL, other.URL)
	alone := func() float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "lienstream_chain_alone" })
		return families[at].GetMetric()[0].GetGauge().GetValue()
	}
	agreed := refresh(t, c)
	began := time.Now()
	other.Tells(away(true))
	one.Tells(forged(forkAhead))
	polltest.Until(t, "who is alone for long is believed", func() bool {
		head := refresh(t, c)
		if head.Hash == (common.Hash{0xfa}) {
			if waited := time.Since(began); waited < silence || c.Quorum() != 1 || alone() != 1 {
				t.Errorf("it is believed alone after %v, by a quorum of %d, and told so by %v", waited, c.Quorum(), alone())
			}
			return true
		}
		if head.Hash != agreed.Hash || c.Quorum() != 2 || alone() != 0 {
			t.Fatalf("the head is %+v, by a quorum of %d", head, c.Quorum())
		}
		return false
	})
	one.Tells(nil)
	other.Tells(nil)
	polltest.Until(t, "both are back", func() bool {
		head, err := c.Refresh(t.Context())
		return err == nil && head.Hash == agreed.Hash && c.Quorum() == 2 && alone() == 0
	})
}

func forkAhead(block map[string]any) {
	block["hash"], block["number"] = common.Hash{0xfa}.Hex(), hexutil.EncodeUint64(111)
}

// TestOneOfThreeIsNeverBelievedAlone: the other two are silent for longer than one of two is waited for, or the chain stands
// still, and one claims to be far ahead. There is no head then, until two say the same.
func TestOneOfThreeIsNeverBelievedAlone(t *testing.T) {
	node := newNode(t)
	mine(t, node, 10)
	for name, others := range map[string]rpctest.Lie{"silent": away(true), "still": nil} {
		liar, one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
		reg, log := quiet()
		c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.MaxSilent, cfg.MaxStill = 50*time.Millisecond, 200*time.Millisecond }, liar.URL, one.URL, two.URL)
		agreed := refresh(t, c)
		one.Tells(others)
		two.Tells(others)
		liar.Tells(forged(forkAhead))
		alone := func() error {
			t.Helper()
			head, err := c.Refresh(t.Context())
			if err == nil && head.Hash != agreed.Hash || c.Quorum() != 2 {
				t.Fatalf("%s: the head is %+v, by a quorum of %d", name, head, c.Quorum())
			}
			return err
		}
		polltest.Until(t, "there is no head any more", func() bool { return errors.Is(alone(), chain.ErrUnavailable) })
		for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
			if err := alone(); !errors.Is(err, chain.ErrUnavailable) {
				t.Fatalf("%s: alone for long: %v", name, err)
			}
		}
		liar.Tells(nil)
		two.Tells(nil)
		polltest.Until(t, "two of three say the same", func() bool {
			head, err := c.Refresh(t.Context())
			return err == nil && head.Hash == agreed.Hash
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
	c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.Timeout, cfg.PollTimeout, cfg.Parallel = time.Minute, time.Minute, 1 }, slow.URL, other.URL)
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
	ctx := chain.WithOtherNode(t.Context())
	for range 2 {
		if _, err := c.Call(ctx, head.Hash, chain.Call{To: numbering}); err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("its opinion is asked %d times beside the other's", n-1)
	}
}
