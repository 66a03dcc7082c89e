package ingest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// deepWorld is a chain of which all is final but the window, by the finality given, and three endpoints.
func deepWorld(t *testing.T, finality ingest.Finality) (w *world, nodes []*rpctest.Liar, cfg ingest.Config, topic string) {
	t.Helper()
	w = newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 900, FinalizedBlocks: 1000})
	w.step(t, 60)
	var endpoints []rpc.Endpoint
	for i := range 3 {
		node := rpctest.NewLiar(t, w.chain.HTTP(), time.Duration(min(i, 1))*5*time.Millisecond) // the first is asked first
		node.Tells(w.allFinal)
		nodes, endpoints = append(nodes, node), append(endpoints, rpc.Endpoint{URL: node.URL, Name: fmt.Sprint("honest", i-1)})
	}
	endpoints[0].Name = "liar"
	cfg, topic = w.lyingConfig(t, "deep", endpoints...)
	cfg.Finality, cfg.FinalizedEvery = finality, 50*time.Millisecond
	return w, nodes, cfg, topic
}

// allFinal says that the head is final.
func (w *world) allFinal(_ http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	var tag string
	if req.Method != "eth_getBlockByNumber" || json.Unmarshal(req.Params[0], &tag) != nil || tag != "finalized" {
		return false
	}
	if head, err := w.chain.Client().HeaderByNumber(r.Context(), nil); err == nil {
		resp.Error = nil
		resp.Say(head)
	}
	return false
}

// untilFinal mines until all but the window is final, and returns the head.
func (w *world) untilFinal(t *testing.T, in *running, window uint64) (head uint64) {
	t.Helper()
	polltest.Within(t, time.Minute, func() (err error) {
		w.step(t, 1)
		if head, err = w.chain.Client().BlockNumber(t.Context()); err != nil {
			return err
		}
		if n := in.Status().Finalized; n+window+2 < head {
			return fmt.Errorf("at block %d block %d is final: %s", head, n, in.Status().Disputed)
		}
		return nil
	})
	return head
}

// TestDeepReorgOfOne: one of three endpoints, the fastest, has another chain from a final block on, longer than that
// of the two others. Blocks keep coming in and becoming final, nothing published is reverted, no session ends, and the
// endpoint is counted.
func TestDeepReorgOfOne(t *testing.T) {
	t.Parallel()
	for _, finality := range []ingest.Finality{ingest.FinalityTag, ingest.FinalityWindow} {
		t.Run(string(finality), func(t *testing.T) {
			t.Parallel()
			w, nodes, cfg, topic := deepWorld(t, finality)
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			head := w.untilFinal(t, in, cfg.ReorgWindow)
			f := &forger{t: t, w: w, ahead: 2}
			nodes[0].Tells(f.forge(head - 3*cfg.ReorgWindow))
			polltest.Within(t, time.Minute, func() error {
				w.step(t, 1)
				if count(t, in.reg, "liar", "fork") == 0 {
					return fmt.Errorf("the liar was never counted: %+v", in.Status())
				}
				return nil
			})
			for range 2 * cfg.ReorgWindow {
				w.step(t, 1)
				if reverts := checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client()); reverts > 0 {
					t.Fatalf("%d barriers were reverted", reverts)
				}
			}
			if later := w.untilFinal(t, in, cfg.ReorgWindow); in.Status().Finalized <= head {
				t.Errorf("at block %d nothing after block %d is final", later, head)
			}
			if n := value(t, in.reg, "lienstream_ingest_sessions_failed_total"); n > 0 {
				t.Errorf("%v sessions ended", n)
			}
			blameless(t, in, 2)
		})
	}
}

// TestDeepReorgOfAll: all three endpoints have another chain from a final block on. The ingester publishes nothing of
// it, and ends with an error that tells the operator what to do; after that, the topic equals the chain.
func TestDeepReorgOfAll(t *testing.T) {
	t.Parallel()
	for _, finality := range []ingest.Finality{ingest.FinalityTag, ingest.FinalityWindow} {
		t.Run(string(finality), func(t *testing.T) {
			t.Parallel()
			w, _, cfg, topic := deepWorld(t, finality)
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			head := w.untilFinal(t, in, cfg.ReorgWindow)
			polltest.Until(t, "all blocks came in", func() bool { return in.Status().Published.Number == head })
			was := in.Status()
			if err := w.scenario.Rewind(t.Context(), 3*cfg.ReorgWindow); err != nil {
				t.Fatal(err)
			}
			w.step(t, int(4*cfg.ReorgWindow))
			select {
			case <-in.done:
			case <-time.After(slowness * time.Minute):
				t.Fatalf("the ingester has not ended: %+v", in.Status())
			}
			if err := in.stop(); !errors.Is(err, follow.ErrDeepReorg) {
				t.Errorf("the ingester ended: %v", err)
			}
			if is := in.Status(); is.Published != was.Published || is.Finalized < was.Finalized {
				t.Errorf("block %d %s is published and %d final, before %d %s and %d", is.Published.Number, is.Published.Hash, is.Finalized, was.Published.Number, was.Published.Hash, was.Finalized)
			}
			cfg.Rewind = true
			_ = run(t, cfg)
			if _, deep := checkRewound(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client()); deep == 0 {
				t.Error("no final block was reverted")
			}
		})
	}
}
