package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// numbers is a node that returns another block number, and counts its requests.
func numbers(n uint64, asked *atomic.Int64) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if isCall(req) {
			asked.Add(1)
			resp.Say(common.BigToHash(new(big.Int).SetUint64(n)).Hex())
		}
		return false
	}
}

// numberTwice is what two nodes say is the head's number.
func numberTwice(ctx context.Context, c *chain.Client, at chain.Block) (uint64, error) {
	return chain.Agreed(ctx, c, func(ctx context.Context) (n uint64, err error) {
		ctx = chain.WithOtherNode(ctx)
		for i := range 2 {
			said, err := c.Call(ctx, at.Hash, chain.Call{To: numbering})
			got := new(big.Int).SetBytes(said).Uint64()
			if err != nil || i > 0 && got != n {
				return 0, errors.Join(err, chain.ErrDiffer)
			}
			n = got
		}
		return n, nil
	})
}

// TestTwoOfThreeDecide: one of three nodes agrees on the head and lies of its state, whichever it is. It is asked last
// from then on.
func TestTwoOfThreeDecide(t *testing.T) {
	node := newNode(t)
	mine(t, node, 3)
	for place := range 3 {
		var urls []string
		var liar *rpctest.Liar
		for i := range 3 {
			next := rpctest.NewLiar(t, node.HTTP(), 0)
			if i == place {
				liar = next
			}
			urls = append(urls, next.URL)
		}
		var lies atomic.Int64
		liar.Tells(numbers(9, &lies))
		reg := prometheus.NewRegistry()
		c := newClient(t, zap.NewNop(), reg, nil, urls...)
		head := refresh(t, c)
		for range 4 {
			if n, err := numberTwice(t.Context(), c, head); err != nil || n != 3 {
				t.Errorf("liar %d: %d, %v", place, n, err)
			}
		}
		if lies.Load() > 2 {
			t.Errorf("liar %d is asked %d times", place, lies.Load())
		}
		contradicted := testutil.ToFloat64(counter(t, reg, "lienstream_chain_contradicted_total"))
		if contradicted != float64(min(lies.Load(), 1)) {
			t.Errorf("liar %d is contradicted %v times", place, contradicted)
		}
	}
}

// TestWhoWasContradictedAgreesAgain: another is away, and it tells the truth. It is asked as before.
func TestWhoWasContradictedAgreesAgain(t *testing.T) {
	node := newNode(t)
	mine(t, node, 3)
	moody, one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	var asked atomic.Int64
	moody.Tells(numbers(9, &asked))
	reg, log := quiet()
	c := newClient(t, log, reg, nil, moody.URL, one.URL, two.URL)
	head := refresh(t, c)
	for range 2 {
		if n, err := numberTwice(t.Context(), c, head); err != nil || n != 3 {
			t.Fatal(n, err)
		}
	}
	if asked.Load() != 1 {
		t.Fatalf("it is asked %d times", asked.Load())
	}
	two.Tells(away(false))
	if n, err := numberTwice(t.Context(), c, head); !errors.Is(err, chain.ErrDiffer) {
		t.Errorf("of two that differ, beside one that is away: %d, %v", n, err)
	}
	moody.Tells(nil)
	if n, err := numberTwice(t.Context(), c, head); err != nil || n != 3 {
		t.Error(n, err)
	}
	moody.Tells(numbers(3, &asked))
	asked.Store(0)
	if _, err := numberTwice(t.Context(), c, head); err != nil || asked.Load() != 1 {
		t.Errorf("it agreed again, and is asked %d times: %v", asked.Load(), err)
	}
}

// TestOneOpinionDecidesNothing: of two nodes that differ neither is believed, also when the other is throttled before
// it is asked again, or if the others return only their head.
func TestOneOpinionDecidesNothing(t *testing.T) {
	node := newNode(t)
	mine(t, node, 3)
	liar, honest, third := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	var lies, told atomic.Int64
	liar.Tells(numbers(9, &lies))
	honest.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if isCall(req) && told.Add(1) > 1 {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":429,"message":"Too Many Requests"}`)
		}
		return false
	})
	third.Tells(away(false))
	for _, urls := range [][]string{{liar.URL, honest.URL}, {liar.URL, honest.URL, third.URL}} {
		told.Store(0)
		reg := prometheus.NewRegistry()
		c := newClient(t, zap.NewNop(), reg, func(cfg *chain.Config) { cfg.Timeout = time.Second }, urls...)
		head := refresh(t, c)
		if n, err := numberTwice(t.Context(), c, head); !errors.Is(err, chain.ErrDiffer) {
			t.Errorf("of %d nodes: %d, %v", len(urls), n, err)
		}
	}
	for _, urls := range [][]string{{liar.URL, third.URL}, {liar.URL, third.URL, honest.URL}} {
		reg, log := quiet()
		c := newClient(t, log, reg, nil, urls...)
		if n, err := numberTwice(t.Context(), c, refresh(t, c)); !errors.Is(err, chain.ErrUnavailable) {
			t.Errorf("beside %d that are away: %d, %v", len(urls)-1, n, err)
		}
	}
}

// TestWhoWasContradictedIsNotBelievedAlone: the nodes that contradicted it are throttled and paused. It is believed
// again when one of them agrees.
func TestWhoWasContradictedIsNotBelievedAlone(t *testing.T) {
	node := newNode(t)
	mine(t, node, 3)
	liar, one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	var asked atomic.Int64
	liar.Tells(numbers(9, &asked))
	reg, log := quiet()
	c := newClient(t, log, reg, nil, liar.URL, one.URL, two.URL)
	head := refresh(t, c)
	if n, err := numberTwice(t.Context(), c, head); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	busy := refuses(`{"code":429,"message":"Too Many Requests"}`, isCall)
	one.Tells(busy)
	two.Tells(busy)
	asked.Store(0)
	for range 2 {
		if n, err := numberTwice(t.Context(), c, head); err == nil {
			t.Errorf("who was contradicted is alone: %d", n)
		}
	}
	if asked.Load() == 0 {
		t.Error("it is not asked, so nothing is tried here")
	}
	liar.Tells(nil)
	two.Tells(nil)
	polltest.Until(t, "it says the same as another", func() bool {
		n, err := numberTwice(t.Context(), c, head)
		return err == nil && n == 3
	})
}
