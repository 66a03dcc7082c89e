package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// forged is a node whose blocks are changed.
func forged(change func(block map[string]any)) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if block, _ := rpctest.Header(req, resp); block != nil {
			change(block)
			resp.Say(block)
		}
		return false
	}
}

// forgedBelow is a node that is some blocks behind, on a chain of its own.
func forgedBelow(blocks uint64) rpctest.Lie {
	return forged(func(block map[string]any) {
		n, _ := hexutil.DecodeUint64(block["number"].(string))
		block["number"], block["hash"] = hexutil.EncodeUint64(n-blocks), common.Hash{0xbb}.Hex()
	})
}

// refuses is a node that answers some calls with an error.
func refuses(fault string, which func(req rpctest.Message) bool) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if which(req) {
			resp.Result, resp.Error = nil, json.RawMessage(fault)
		}
		return false
	}
}

func isCall(req rpctest.Message) bool { return req.Method == "eth_call" }

// TestHeadersMustAgree: a hash says nothing of what one node alone says of the block.
func TestHeadersMustAgree(t *testing.T) {
	node := newNode(t)
	mine(t, node, 10)
	for field, value := range map[string]string{
		"timestamp": "0xffffffff", "gasLimit": "0xc350", "baseFeePerGas": "0x1", "parentHash": common.Hash{1}.Hex(),
	} {
		for _, first := range []bool{true, false} {
			liar, honest := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
			liar.Tells(forged(func(block map[string]any) { block[field] = value }))
			urls := []string{honest.URL, liar.URL}
			if first {
				urls = []string{liar.URL, honest.URL}
			}
			reg, log := quiet()
			head, err := newClient(t, log, reg, nil, urls...).Refresh(t.Context())
			if _, ok := errors.AsType[*chain.DisagreementError](err); !ok {
				t.Errorf("%s of one of two, liar first %t: %+v, %v", field, first, head, err)
			} else if err.Error() == "" {
				t.Error("it does not say so")
			}
		}
	}
}

// TestAHeadIsConfirmed: an endpoint that tells its latest block, and no other, is live. What it does not confirm is no
// head, and the last one stays for a while.
func TestAHeadIsConfirmed(t *testing.T) {
	node := newNode(t)
	mine(t, node, 10)
	reg := prometheus.NewRegistry()
	liar, honest := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	c := newClient(t, zap.NewNop(), reg, func(cfg *chain.Config) { cfg.MaxStill = 200 * time.Millisecond }, liar.URL, honest.URL)
	silent := refuses(`{"code":-32000,"message":"the backend is not ready"}`, func(req rpctest.Message) bool {
		return req.Method == "eth_getBlockByNumber" && string(req.Params[0]) != `"latest"`
	})
	honest.Tells(silent)
	liar.Tells(forgedBelow(1))
	if head, err := c.Refresh(t.Context()); !errors.Is(err, chain.ErrUnavailable) {
		t.Errorf("what one of two says is the head: %+v, %v", head, err)
	}
	liar.Tells(nil)
	honest.Tells(nil)
	agreed := refresh(t, c)
	honest.Tells(silent)
	liar.Tells(forgedBelow(1))
	if head := refresh(t, c); head.Hash != agreed.Hash {
		t.Errorf("the head is %d %s", head.Number, head.Hash)
	}
	if n := testutil.ToFloat64(counter(t, reg, "lienstream_chain_unconfirmed_total")); n != 2 {
		t.Errorf("%v polls are counted", n)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err := c.Refresh(t.Context()); errors.Is(err, chain.ErrUnavailable) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a head that nobody confirms stays for ever")
		}
	}
}

// counter is what a registry has under a name, over all labels, as a collector.
func counter(t *testing.T, reg *prometheus.Registry, name string) prometheus.Collector {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name})
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			c.Add(m.GetCounter().GetValue())
		}
	}
	return c
}

// TestOneOfThreeIsOutvoted: a majority of nodes decides about a block, and a node that contradicts it is asked for
// nothing until it agrees again.
func TestOneOfThreeIsOutvoted(t *testing.T) {
	node := newNode(t)
	block := mine(t, node, 10)
	for name, lie := range map[string]rpctest.Lie{
		"another block":       forgedBelow(0),
		"another block below": forgedBelow(1),
		"another header":      forged(func(block map[string]any) { block["timestamp"] = "0x1" }),
	} {
		reg, log := quiet()
		liar := rpctest.NewLiar(t, node.HTTP(), 0)
		one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
		c := newClient(t, log, reg, nil, liar.URL, one.URL, two.URL)
		liar.Tells(lie)
		head := refresh(t, c)
		if head.Hash != block.Hash || head.Timestamp != genesisTime+10 {
			t.Errorf("%s: the head is %+v", name, head)
		}
		var asked atomic.Int64
		liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if isCall(req) {
				asked.Add(1)
			}
			return false
		})
		for _, ctx := range []context.Context{t.Context(), chain.WithOtherNode(t.Context())} {
			for range 3 {
				if _, err := c.Call(ctx, head.Hash, chain.Call{To: numbering}); err != nil {
					t.Error(err)
				}
			}
		}
		if asked.Load() > 0 {
			t.Errorf("%s: who is outvoted is asked", name)
		}
		refresh(t, c)
		if _, err := c.Call(t.Context(), head.Hash, chain.Call{To: numbering}); err != nil || asked.Load() == 0 {
			t.Errorf("%s: who agrees again is not asked: %v", name, err)
		}
		// Two of three lie, each differently: there is no majority.
		liar.Tells(forgedBelow(1))
		one.Tells(forged(func(block map[string]any) { block["hash"] = common.Hash{0xcc}.Hex() }))
		if _, err := c.Refresh(t.Context()); err == nil {
			t.Errorf("%s: three blocks, and one is the head", name)
		}
	}
}

// TestANodeHasOneVote: the endpoints of a node do not outvote another.
func TestANodeHasOneVote(t *testing.T) {
	node, other := newNode(t), newNode(t)
	mine(t, node, 5)
	mine(t, other, 4)
	block, err := other.Mine(t.Context(), genesisTime+50, nil)
	if err != nil {
		t.Fatal(err)
	}
	reg, log := quiet()
	c := newClient(t, log, reg, nil, node.HTTP(), node.WS(), other.HTTP())
	head, err := c.Refresh(t.Context())
	if _, ok := errors.AsType[*chain.DisagreementError](err); !ok {
		t.Errorf("two nodes, block %s of one: %+v, %v", block.Hash, head, err)
	}
}

// away is a node that fails all requests, or those of state.
func away(all bool) rpctest.Lie {
	return func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if all || isCall(req) {
			w.WriteHeader(http.StatusBadGateway)
		}
		return all || isCall(req)
	}
}

// TestWhoWasContradictedNeedsAnother: two nodes disagree, and one request or poll of either fails. The other does not
// win by that, by whichever of its endpoints it speaks.
func TestWhoWasContradictedNeedsAnother(t *testing.T) {
	node := newNode(t)
	block := mine(t, node, 10)
	fork := newNode(t)
	mine(t, fork, 9)
	if _, err := fork.Mine(t.Context(), genesisTime+50, nil); err != nil {
		t.Fatal(err)
	}
	for _, polls := range []bool{false, true} {
		honest, forked := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, fork.HTTP(), 0)
		reg, log := quiet()
		c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.MaxSilent = 100 * time.Millisecond }, forked.URL, honest.URL)
		disagree := func(when string) {
			t.Helper()
			if head, err := c.Refresh(t.Context()); err == nil {
				t.Errorf("%s (polls fail: %t) the head is %s", when, polls, head.Hash)
			}
		}
		disagree("at first")
		for name, silent := range map[string]*rpctest.Liar{"the honest": honest, "the forked": forked} {
			silent.Tells(away(polls))
			for range 2 {
				ctx := chain.WithOtherNode(t.Context())
				for range 2 {
					_, _ = c.Call(ctx, block.Hash, chain.Call{To: numbering})
				}
				disagree("beside " + name)
			}
			silent.Tells(nil)
		}
		forked.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			var said json.RawMessage // it is on the chain again
			params := make([]any, len(req.Params))
			for i := range params {
				params[i] = req.Params[i]
			}
			if err := node.Client().Client().CallContext(t.Context(), &said, req.Method, params...); err == nil {
				resp.Result = said
			}
			return false
		})
		atHead := func() bool {
			head, err := c.Refresh(t.Context())
			return err == nil && head.Hash == block.Hash
		}
		polltest.Until(t, "they agree again", atHead)
		honest.Tells(away(true))
		block = mine(t, node, 1)
		polltest.Until(t, "who agreed again and is alone is believed", atHead)
	}
}

// TestWhoIsOutvotedNeedsAnother: the two nodes that outvoted it are throttled, and then away.
func TestWhoIsOutvotedNeedsAnother(t *testing.T) {
	node := newNode(t)
	block := mine(t, node, 10)
	reg, log := quiet()
	liar, one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.MaxStill = 50 * time.Millisecond }, liar.URL, one.URL, two.URL)
	liar.Tells(forgedBelow(0))
	head := refresh(t, c)
	throttled := refuses(`{"code":429,"message":"Too Many Requests"}`, isCall)
	one.Tells(throttled)
	two.Tells(throttled)
	_, _ = c.Call(t.Context(), head.Hash, chain.Call{To: numbering})
	if head := refresh(t, c); head.Hash != block.Hash {
		t.Errorf("beside two that rest the head is %s", head.Hash)
	}
	one.Tells(away(true))
	two.Tells(away(true))
	polltest.Until(t, "there is no head without them", func() bool {
		head, err := c.Refresh(t.Context())
		if err == nil && head.Hash != block.Hash {
			t.Fatalf("the head is the fork %s", head.Hash)
		}
		return err != nil
	})
	liar.Tells(nil)
	one.Tells(nil)
	polltest.Until(t, "it agrees with one of them again", func() bool {
		head, err := c.Refresh(t.Context())
		return err == nil && head.Hash == block.Hash
	})
}

// TestWhoStallsOnStateIsLetBe: a node that tells its head at once, and stalls on calls, rests the longer the more it
// stalls.
func TestWhoStallsOnStateIsLetBe(t *testing.T) {
	node := newNode(t)
	mine(t, node, 1)
	stalls, ready := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	var asked atomic.Int64
	stalls.Tells(func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if isCall(req) {
			asked.Add(1)
			<-r.Context().Done()
		}
		return isCall(req)
	})
	reg, log := quiet()
	c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.Timeout = 100 * time.Millisecond }, stalls.URL, ready.URL)
	for began := time.Now(); time.Since(began) < 2*time.Second; { // it rests 0.1, 0.2, 0.4, 0.8 s: four times, and not twenty
		if _, err := c.Call(t.Context(), refresh(t, c).Hash, chain.Call{To: numbering}); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n < 2 || n > 5 {
		t.Errorf("in two seconds it was waited for %d times", n)
	}
}

// TestSecondOpinions: a node that has a say and does not have the block, refuses or does not respond is not passed over
// for the one that is to be checked. One that has no say is not needed.
func TestSecondOpinions(t *testing.T) {
	node := newNode(t)
	mine(t, node, 3)
	for _, fault := range []string{
		`{"code":-32000,"message":"hash is not currently canonical"}`,
		`{"code":-32603,"message":"internal error"}`,
		`{"code":-32004,"message":"the method is not available now"}`,
		`{"code":429,"message":"Too Many Requests"}`,
	} {
		for _, at := range []uint64{3, 1} { // with a say, and without
			one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
			reg, log := quiet()
			c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.MaxBehind, cfg.MaxStill = 1, time.Nanosecond }, one.URL, two.URL)
			two.Tells(stuckAt(t, node, at))
			refresh(t, c)
			head := refresh(t, c)
			if head.Number != 3 {
				t.Fatalf("head %d", head.Number)
			}
			two.Tells(refuses(fault, isCall))
			ctx := chain.WithOtherNode(t.Context())
			if _, err := c.Call(ctx, head.Hash, chain.Call{To: numbering}); err != nil {
				t.Fatal(err)
			}
			_, err := c.Call(ctx, head.Hash, chain.Call{To: numbering})
			if want := at == 1; (err == nil) != want || (c.Quorum() == 1) != want {
				t.Errorf("%s at %d: %v, by a quorum of %d", fault, at, err, c.Quorum())
			}
		}
	}
}

// TestAMissingMethodIsNoOpinion: a node that agreed on the head and lacks a method is no second opinion. It is still
// asked before the node that is checked.
func TestAMissingMethodIsNoOpinion(t *testing.T) {
	node := newNode(t)
	mine(t, node, 3)
	one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	reg, log := quiet()
	c := newClient(t, log, reg, nil, one.URL, two.URL)
	head := refresh(t, c)
	opinions := func() (err error) {
		ctx := chain.WithOtherNode(t.Context())
		for range 2 {
			if _, err = c.Call(ctx, head.Hash, chain.Call{To: numbering}); err != nil {
				return err
			}
		}
		return nil
	}
	two.Tells(refuses(`{"code":-32601,"message":"the method eth_call does not exist/is not available"}`, isCall))
	for range 2 {
		if err := opinions(); !errors.Is(err, chain.ErrUnsupported) {
			t.Errorf("a second opinion of one that has no method: %v", err)
		}
	}
	var asked atomic.Int64
	two.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if isCall(req) {
			asked.Add(1)
		}
		return false
	})
	if err := opinions(); err != nil || asked.Load() != 1 {
		t.Errorf("it has the method again, and is asked %d times: %v", asked.Load(), err)
	}
}

// lacksBlocks is a node that has none but the latest.
func lacksBlocks(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	if req.Method == "eth_getBlockByNumber" && string(req.Params[0]) != `"latest"` {
		resp.Result = json.RawMessage("null")
	}
	return false
}

// TestABlockThatOneNodeLacks: that a node does not have a block is not what the chain has, least of all of a node that
// is far behind.
func TestABlockThatOneNodeLacks(t *testing.T) {
	node := newNode(t)
	mine(t, node, 60)
	for _, latest := range []uint64{60, 5} {
		behind, one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
		reg, log := quiet()
		c := newClient(t, log, reg, nil, behind.URL, one.URL, two.URL)
		stuck := stuckAt(t, node, latest)
		var asked atomic.Int64
		behind.Tells(func(w http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if isCall(req) {
				asked.Add(1)
			}
			return stuck(w, r, req, resp) || lacksBlocks(w, r, req, resp)
		})
		head := refresh(t, c)
		if head.Number != 60 {
			t.Fatalf("head %d", head.Number)
		}
		if b, err := c.BlockByNumber(t.Context(), chain.NumberOf(55)); err != nil || b.Number != 55 {
			t.Errorf("two of three have block 55, beside one at %d: %v", latest, err)
		}
		if _, err := c.Call(t.Context(), head.Hash, chain.Call{To: numbering}); err != nil || (asked.Load() > 0) != (latest == 60) {
			t.Errorf("one at %d is asked first %t: %v", latest, asked.Load() > 0, err)
		}
		one.Tells(lacksBlocks)
		two.Tells(lacksBlocks)
		counted, requests := chain.Counting(t.Context())
		if _, err := c.BlockByNumber(counted, chain.NumberOf(55)); !errors.Is(err, chain.ErrBlockGone) || requests.Load() != 3 {
			t.Errorf("a block that none of %d has: %v", requests.Load(), err)
		}
		// No other node has it.
		one.Tells(nil)
		two.Tells(away(true))
		ctx, errs := chain.WithOtherNode(t.Context()), [2]error{}
		for i := range errs {
			_, errs[i] = c.BlockByNumber(ctx, chain.NumberOf(55))
		}
		if errs[0] != nil || !errors.Is(errs[1], chain.ErrBlockGone) {
			t.Errorf("beside one at %d: %v", latest, errs)
		}
	}
}

// TestARefusalIsTakenElsewhere: another endpoint may accept what one refuses, and a throttled one is paused.
func TestARefusalIsTakenElsewhere(t *testing.T) {
	node := newNode(t)
	mine(t, node, 1)
	for fault, rests := range map[string]bool{
		`{"code":429,"message":"Too Many Requests"}`:                   true,
		`{"code":-32007,"message":"100/second request limit reached"}`: true,
		`{"code":-32005,"message":"limit exceeded"}`:                   true,
		`{"code":-32000,"message":"too many concurrent requests"}`:     true,
		`{"code":-32603,"message":"internal error"}`:                   false,
		`{"code":-32000,"message":"the backend is not ready"}`:         false,
		`{"code":-32000,"message":"execution aborted (timeout = 5s)"}`: false,
	} {
		moody, ready := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
		var asked atomic.Int64
		refuse := refuses(fault, isCall)
		moody.Tells(func(w http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if isCall(req) {
				asked.Add(1)
			}
			return refuse(w, r, req, resp)
		})
		reg, log := quiet()
		c := newClient(t, log, reg, nil, moody.URL, ready.URL)
		head := refresh(t, c)
		for range 2 {
			results, err := c.Calls(t.Context(), head.Hash, []chain.Call{{To: numbering}, {To: reverting}})
			if err != nil || results[0].Err != nil || len(results[0].Data) == 0 {
				t.Errorf("%s: %+v, %v", fault, results, err)
			}
		}
		if got := asked.Load() == 2; got != rests {
			t.Errorf("%s: it was asked for %d calls", fault, asked.Load())
		}
	}
	// What is refused because of the transaction is refused by all.
	strict, other := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	strict.Tells(refuses(`{"code":-32000,"message":"gas required exceeds allowance (21000)"}`, isCall))
	reg, log := quiet()
	c := newClient(t, log, reg, nil, strict.URL, other.URL)
	_, err := c.Call(t.Context(), refresh(t, c).Hash, chain.Call{From: rich, To: numbering})
	if refused, ok := errors.AsType[*chain.NodeError](err); !ok || !refused.OfTransaction() {
		t.Errorf("a refusal of the transaction: %v", err)
	}
	// Where the other does not respond, the refusal is what is known.
	strict.Tells(refuses(`{"code":-32603,"message":"internal error"}`, isCall))
	c = newClient(t, log, prometheus.NewRegistry(), func(cfg *chain.Config) { cfg.MaxSilent = 0 }, strict.URL, "http://127.0.0.1:1")
	_, err = c.Call(t.Context(), refresh(t, c).Hash, chain.Call{To: numbering})
	if refused, ok := errors.AsType[*chain.NodeError](err); !ok || refused.OfTransaction() {
		t.Errorf("beside an endpoint that is away: %v", err)
	}
}
