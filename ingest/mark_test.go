package ingest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// withoutTokenLayer is a deployment before its token layer came.
func withoutTokenLayer(d contracts.Deployment) contracts.Deployment {
	d.EpochController, d.RewardDistributor, d.LiquidityStaking = common.Address{}, common.Address{}, common.Address{}
	d.Burner, d.TKN, d.STKN, d.PoolID = common.Address{}, common.Address{}, common.Address{}, common.Hash{}
	return d
}

// refused runs an ingester that must end, and returns its error.
func refused(t *testing.T, cfg ingest.Config) error {
	t.Helper()
	in := run(t, cfg)
	select {
	case <-in.done:
	case <-time.After(30 * time.Second):
		t.Fatal("the ingester goes on with a topic of another deployment")
	}
	return in.stop()
}

// withoutTokens is a world whose topic has so many steps of the chain, by a deployment without the token layer.
func withoutTokens(t *testing.T, steps int) (*world, ingest.Config) {
	t.Helper()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, steps)
	cfg := w.config()
	cfg.Deployment = withoutTokenLayer(cfg.Deployment)
	in := run(t, cfg)
	checkTopic(t, cfg.Kafka, w.topic, cfg.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	return w, cfg
}

// TestTokenLayerLater: the token layer is added to the deployment when half of the chain is in the topic, and has a
// history there. The ingester refuses and says what to do; doing it ends equal to the chain.
func TestTokenLayerLater(t *testing.T) {
	t.Parallel()
	w, cfg := withoutTokens(t, 40)
	w.step(t, 40)
	whole := w.config()
	err := refused(t, whole)
	if !errors.Is(err, ingest.ErrOtherFilter) || !strings.Contains(err.Error(), whole.Deployment.LiquidityStaking.String()) {
		t.Fatalf("ended with %v", err)
	}
	// What was there before goes on as before.
	in := run(t, cfg)
	checkTopic(t, cfg.Kafka, w.topic, cfg.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	whole.Kafka.Prefix = "whole"
	topic := w.provision(t, whole.Kafka)
	_ = run(t, whole)
	w.step(t, 2)
	checkTopic(t, whole.Kafka, topic, whole.Deployment, w.chain.Client())
}

// TestAddedAfterADowntime: contracts are added when no node has the state of the topic's last block any more. Those
// that have logs up to it are refused, and others are accepted, also if no node supports eth_getLogs.
func TestAddedAfterADowntime(t *testing.T) {
	t.Parallel()
	for _, lacks := range []string{"", "eth_getLogs"} {
		t.Run("without "+lacks, func(t *testing.T) {
			t.Parallel()
			w, cfg := withoutTokens(t, 20)
			pruned, without := rpctest.NewLiar(t, w.chain.HTTP(), 0), &lacking{methods: lacks}
			pruned.Tells(func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if req.Method == "eth_getCode" || req.Method == "eth_getProof" {
					resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"missing trie node"}`)
				}
				return without.tell(rw, r, req, resp)
			})
			w.step(t, 5)
			whole := cfg
			whole.Deployment, whole.RPC.Endpoints = w.market.Deployment, []rpc.Endpoint{{URL: pruned.URL, Name: "pruned"}}
			if err := refused(t, whole); !errors.Is(err, ingest.ErrOtherFilter) {
				t.Errorf("ended with %v", err)
			}
			later := whole
			for i, a := range []*common.Address{
				&later.Deployment.EpochController, &later.Deployment.RewardDistributor, &later.Deployment.LiquidityStaking, &later.Deployment.Burner,
			} {
				*a = common.BytesToAddress([]byte{0x99, byte(i + 1)}) // nothing is there yet
			}
			_ = run(t, later)
			w.step(t, 3)
			checkTopic(t, cfg.Kafka, w.topic, later.Deployment, w.chain.Client())
		})
	}
}

// TestOtherDeployment: contracts that did not exist when the topic ends may be added; other changes are refused.
func TestOtherDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, 10)
	cfg := w.config()
	cfg.Deployment = withoutTokenLayer(cfg.Deployment)
	in := run(t, cfg)
	checkTopic(t, cfg.Kafka, w.topic, cfg.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*contracts.Deployment){
		"start block": func(d *contracts.Deployment) { d.StartBlock++ },
		"contract":    func(d *contracts.Deployment) { d.DealVault = common.HexToAddress("0x77") },
		"role":        func(d *contracts.Deployment) { d.DealVault, d.AssetRegistry = d.AssetRegistry, d.DealVault },
	} {
		other := cfg
		change(&other.Deployment)
		if err := refused(t, other); !errors.Is(err, ingest.ErrOtherFilter) {
			t.Errorf("another %s: ended with %v", name, err)
		}
	}
	later := cfg
	later.Deployment = w.market.Deployment
	for i, a := range []*common.Address{
		&later.Deployment.EpochController, &later.Deployment.RewardDistributor, &later.Deployment.LiquidityStaking, &later.Deployment.Burner,
	} {
		*a = common.BytesToAddress([]byte{0x99, byte(i + 1)}) // nothing is there yet
	}
	// One of two endpoints, the faster one, says that something is there.
	liar, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getCode" {
			resp.Say("0x6000")
		}
		return false
	})
	later.RPC.Endpoints = []rpc.Endpoint{{URL: liar.URL, Name: "liar"}, {URL: honest.URL, Name: "honest"}}
	in = run(t, later)
	w.step(t, 3)
	checkTopic(t, cfg.Kafka, w.topic, later.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	other := later
	other.Deployment.Burner = common.BytesToAddress([]byte{0x99, 0x77}) // as the other one, it begins with zeros
	if err := refused(t, other); !errors.Is(err, ingest.ErrOtherFilter) {
		t.Errorf("another contract whose address begins alike: ended with %v", err)
	}
}
