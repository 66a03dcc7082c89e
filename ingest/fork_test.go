package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// forger makes up a chain from a block on: empty blocks that hash and link right, up to so many above the real head.
type forger struct {
	t     *testing.T
	w     *world
	ahead uint64

	mu     sync.Mutex
	from   uint64
	forged map[uint64]*types.Header
}

// forge begins with the block after the head.
func (f *forger) forge(from uint64) rpctest.Lie {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from, f.forged = from, map[uint64]*types.Header{}
	return f.tell
}

// header is a forged header; it is made from the chain's own, or from the one below it.
func (f *forger) header(number uint64) *types.Header {
	if h := f.forged[number]; h != nil {
		return h
	}
	var below *types.Header
	if number > f.from {
		if below = f.header(number - 1); below == nil {
			return nil
		}
	}
	h, err := f.w.chain.Client().HeaderByNumber(f.t.Context(), new(big.Int).SetUint64(number))
	if err != nil && below == nil {
		below, _ = f.w.chain.Client().HeaderByNumber(f.t.Context(), new(big.Int).SetUint64(number-1))
	}
	switch {
	case err == nil:
	case below == nil:
		return nil
	default:
		h = types.CopyHeader(below)
		h.Number.SetUint64(number)
		h.Time++
	}
	if below != nil {
		h.ParentHash = below.Hash()
	}
	h.Extra, h.Bloom, h.ReceiptHash = []byte("forged"), types.Bloom{}, types.EmptyReceiptsHash
	f.forged[number] = h
	return h
}

func (f *forger) tell(_ http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var tag string
	switch req.Method {
	case "eth_getLogs":
		resp.Error = nil
		resp.Say([]any{})
		return false
	case "eth_getBlockByNumber":
		_ = json.Unmarshal(req.Params[0], &tag)
	default:
		return false
	}
	head, err := f.w.chain.Client().BlockNumber(r.Context())
	if err != nil {
		return false
	}
	top, number := head+f.ahead, uint64(0)
	if n, ok := new(big.Int).SetString(tag, 0); ok {
		number = n.Uint64()
	} else if m, _ := rpctest.Header(req, resp); m != nil {
		n, _ := new(big.Int).SetString(m["number"].(string), 0)
		number = n.Uint64() + f.ahead
	}
	if number >= f.from && number <= top {
		if h := f.header(number); h != nil {
			resp.Say(h)
		}
	}
	return false
}

// forgedWorld is a chain that one liar, the fastest, and so many honest endpoints tell of.
func forgedWorld(t *testing.T, honest int) (w *world, f *forger, liar *rpctest.Liar, cfg ingest.Config, topic string) {
	t.Helper()
	w = lyingWorld(t)
	f = &forger{t: t, w: w}
	liar = rpctest.NewLiar(t, w.chain.HTTP(), 0)
	endpoints := []rpc.Endpoint{{URL: liar.URL, Name: "liar"}}
	for i := range honest {
		endpoints = append(endpoints, rpc.Endpoint{URL: rpctest.NewLiar(t, w.chain.HTTP(), 10*time.Millisecond).URL, Name: fmt.Sprint("honest", i)})
	}
	cfg, topic = w.lyingConfig(t, "forged", endpoints...)
	cfg.FinalizedEvery = 100 * time.Millisecond
	return w, f, liar, cfg, topic
}

// blameless checks that no honest endpoint was counted for a lie of its own.
func blameless(t *testing.T, in *running, honest int) {
	t.Helper()
	for i := range honest {
		if n := counted(t, in.reg, fmt.Sprint("honest", i), "fork header_hash receipts_root malformed order"); n > 0 {
			t.Errorf("honest%d was counted %v times", i, n)
		}
	}
}

// TestForgedChain: the fastest endpoint has a chain of its own, whose headers hash and link right and whose blocks are
// empty, also beyond the head. Beside two honest endpoints it is outvoted: nothing of it becomes final, nor the topic's
// history; what came in at the tip is reverted, and it is counted.
func TestForgedChain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		from  uint64 // 0: the block after the head, once the topic has all up to it
		ahead uint64
	}{
		{"history", 20, 0},
		{"history, and ahead", 20, 50},
		{"from the first block on", 1, 0},
		{"tip", 0, 0},
		{"tip, and ahead", 0, 50},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w, f, liar, cfg, topic := forgedWorld(t, 2)
			f.ahead = test.ahead
			if test.from > 0 {
				liar.Tells(f.forge(test.from))
			}
			in := run(t, cfg)
			if test.from == 0 {
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
				head, err := w.chain.Client().BlockNumber(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				liar.Tells(f.forge(head + 1))
			}
			for began := time.Now(); count(t, in.reg, "liar", "fork") == 0; {
				if time.Since(began) > time.Minute {
					t.Fatalf("the liar was never counted: %+v", in.Status())
				}
				w.step(t, 1)
				<-time.After(100 * time.Millisecond) // the time between blocks
			}
			for range 20 { // beyond the window
				w.step(t, 1)
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			}
			polltest.Within(t, time.Minute, func() error {
				head, err := w.chain.Client().BlockNumber(t.Context())
				if err != nil {
					return err
				}
				if s := in.Status(); s.Finalized+cfg.ReorgWindow+2 < head {
					return fmt.Errorf("at block %d only %d is final: %s", head, s.Finalized, s.Disputed)
				}
				w.step(t, 1)
				return nil
			})
			blameless(t, in, 2)
		})
	}
}

// TestForgedChainOfTwo: beside a single honest endpoint the truth is unknown. Nothing forged becomes final, and
// nothing comes in below the tip; that is reported, and when the endpoints agree again, with a new ingester or
// without, the topic equals the chain.
func TestForgedChainOfTwo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		tip     bool
		restart bool
	}{
		{"history", false, false},
		{"tip", true, false},
		{"tip, and a new ingester", true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w, f, liar, cfg, topic := forgedWorld(t, 1)
			forged := uint64(20)
			if !test.tip {
				liar.Tells(f.forge(forged))
			}
			in := run(t, cfg)
			if test.tip {
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
				head, err := w.chain.Client().BlockNumber(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				forged = head + 1
				liar.Tells(f.forge(forged))
			}
			said := func() bool { // who disagrees
				s := in.Status()
				return strings.Contains(s.Disputed, "liar") && strings.Contains(s.Disputed, "honest0")
			}
			for n := 0; n < 20 || !said(); n++ {
				if n > 300 {
					t.Fatalf("nothing was said of the dispute: %+v", in.Status())
				}
				w.step(t, 1)
				<-time.After(100 * time.Millisecond) // the time between blocks
				if s := in.Status(); s.Finalized >= forged || !test.tip && s.Published.Number >= forged {
					t.Fatalf("from block %d on all is forged, but %d is published and %d final", forged, s.Published.Number, s.Finalized)
				}
			}
			if test.restart {
				if err := in.stop(); err != nil {
					t.Fatal(err)
				}
				in = run(t, cfg)
			}
			liar.Tells(nil)
			w.step(t, 1)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			polltest.Within(t, time.Minute, func() error {
				w.step(t, 1)
				if s := in.Status(); s.Disputed != "" || s.Finalized < forged {
					return fmt.Errorf("block %d is final: %s", s.Finalized, s.Disputed)
				}
				return nil
			})
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			blameless(t, in, 1)
		})
	}
}

// TestForgedAboveTheHead: the chain has halted, and the fastest endpoint makes up blocks above its head. They come in,
// as they may be true, and are reverted when the two others have reported none for a while.
func TestForgedAboveTheHead(t *testing.T) {
	t.Parallel()
	w, f, liar, cfg, topic := forgedWorld(t, 2)
	in := run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	head, err := w.chain.Client().BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.ahead = 2
	liar.Tells(f.forge(head + 1))
	polltest.Within(t, time.Minute, func() error {
		if n := in.Status().Published.Number; n <= head {
			return fmt.Errorf("block %d of %d is published", n, head+2)
		}
		return nil
	})
	polltest.Within(t, time.Minute, func() error {
		if n := in.Status().Published.Number; n != head {
			return fmt.Errorf("block %d is published, the head is %d", n, head)
		}
		return nil
	})
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	liar.Tells(f.forge(head + 1))
	w.step(t, 4)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	blameless(t, in, 2)
}

// TestForgedWhileTheChainStands: finality is the window alone, the chain has halted, and one of two endpoints makes up
// more blocks above its head than the window has. With --rpc-alone=0 nothing of it ever becomes final.
func TestForgedWhileTheChainStands(t *testing.T) {
	t.Parallel()
	w, f, liar, cfg, topic := forgedWorld(t, 1)
	cfg.Finality, cfg.RPC.Silence, cfg.RPC.Alone = ingest.FinalityWindow, time.Second, 0
	in := run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	head, err := w.chain.Client().BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.ahead = 3 * cfg.ReorgWindow
	liar.Tells(f.forge(head + 1))
	polltest.Within(t, time.Minute, func() error {
		if s := in.Status(); !strings.Contains(s.Disputed, "honest0: none") && s.Finalized <= head {
			return fmt.Errorf("nothing is said of who has what: %+v", s)
		}
		return nil
	})
	for began := time.Now(); time.Since(began) < 4*cfg.RPC.Silence; <-time.After(cfg.FinalizedEvery) {
		if n := in.Status().Finalized; n > head {
			t.Fatalf("block %d is final, the head is %d", n, head)
		}
	}
	liar.Tells(nil)
	w.step(t, 4)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	polltest.Within(t, time.Minute, func() error {
		w.step(t, 1)
		if s := in.Status(); s.Disputed != "" || s.Finalized <= head {
			return fmt.Errorf("block %d is final: %s", s.Finalized, s.Disputed)
		}
		return nil
	})
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	blameless(t, in, 1)
}

// TestAlone: of two endpoints one answers nothing, or is stalled at an old head. The other decides alone what is final
// once that has lasted for --rpc-alone, and not before; it is reported. Once both answer again, both decide.
func TestAlone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		tell func(*testing.T, *world) rpctest.Lie
	}{
		{"one answers nothing", func(*testing.T, *world) rpctest.Lie {
			return func(rw http.ResponseWriter, _ *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
				rw.WriteHeader(http.StatusBadGateway)
				return true
			}
		}},
		{"one stands", func(t *testing.T, w *world) rpctest.Lie {
			head, err := w.chain.Client().HeaderByNumber(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return standing(head)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := lyingWorld(t)
			other := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			cfg, topic := w.lyingConfig(t, "alone", rpc.Endpoint{URL: other.URL, Name: "other"}, rpc.Endpoint{URL: w.chain.HTTP(), Name: "honest"})
			cfg.RPC.Alone, cfg.FinalizedEvery = 5*time.Second, 100*time.Millisecond
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			at, err := w.chain.Client().BlockNumber(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			other.Tells(test.tell(t, w))
			began := time.Now()
			w.step(t, 2*int(cfg.ReorgWindow))
			polltest.Within(t, time.Minute, func() error {
				s := in.Status()
				if s.Finalized <= at {
					w.step(t, 1)
					return fmt.Errorf("block %d is final: %s", s.Finalized, s.Disputed)
				}
				return nil
			})
			if took := time.Since(began); took < cfg.RPC.Alone {
				t.Errorf("one endpoint's word was final after %s", took)
			}
			said := func(alone bool) error {
				w.step(t, 1)
				if s := in.Status(); strings.Contains(s.Alone, "honest") != alone || (value(t, in.reg, "lienstream_ingest_alone") == 1) != alone {
					return fmt.Errorf("who decides alone: %q", s.Alone)
				}
				return nil
			}
			polltest.Within(t, time.Minute, func() error { return said(true) })
			other.Tells(nil)
			polltest.Within(t, time.Minute, func() error { return said(false) })
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			blameless(t, in, 0)
		})
	}
}

// standing has a head for ever, and nothing above it.
func standing(at *types.Header) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getBlockReceipts" {
			resp.Result = json.RawMessage("null")
		}
		var h types.Header
		if m, tag := rpctest.Header(req, resp); m != nil && json.Unmarshal(resp.Result, &h) == nil && h.Number.Cmp(at.Number) > 0 {
			if resp.Result = json.RawMessage("null"); tag == "latest" {
				resp.Say(at)
			}
		}
		return false
	}
}
