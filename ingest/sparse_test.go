package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// sparseWorld is a world whose chain a sparse node has.
func sparseWorld(t *testing.T, node *rpctest.Sparse) (*world, ingest.Config) {
	t.Helper()
	w := &world{market: &devchain.Market{Deployment: sparseDeployment}, kafka: brokertest.Config(brokertest.Start(t, "kfake"), "test")}
	w.topic = w.provision(t, w.kafka)
	cfg := ingest.DefaultConfig()
	cfg.Deployment, cfg.Kafka, cfg.Partitions = sparseDeployment, w.kafka, partitions
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	return w, cfg
}

// untilPublished waits until a block is in the topic.
func (in *running) untilPublished(t *testing.T, block uint64, within time.Duration) {
	t.Helper()
	polltest.Within(t, within, func() error {
		if s := in.Status(); s.Published.Number < block {
			return errors.Join(fmt.Errorf("at block %d of %d", s.Published.Number, block), s.Err)
		}
		return nil
	})
}

// TestSparseHistory: where empty blocks are left out, a long chain costs a request for thousands of blocks, and every log
// of it is there all the same.
func TestSparseHistory(t *testing.T) {
	t.Parallel()
	const blocks, every = 60_000, 100
	node := rpctest.NewSparse(sparseDeployment.ChainID, blocks, every, sparseLog())
	t.Cleanup(node.Close)
	w, cfg := sparseWorld(t, node)
	cfg.RPC.Proof = rpc.ProofSparse
	in := run(t, cfg)
	in.untilPublished(t, blocks, time.Minute)
	told := w.unproved(t, w.kafka, w.topic)
	if !strings.Contains(told, "--rpc-proof=sparse") {
		t.Errorf("the topic says that what is not proved is %q", told)
	}
	if got := in.Status().Records; got != blocks/every {
		t.Errorf("%d logs are in the topic, the chain has %d", got, blocks/every)
	}
	t.Logf("%d blocks: %d requests, %d calls, %d KB", blocks, node.Requests.Load(), node.Calls.Load(), node.Bytes.Load()>>10)
	// A header for each block with a log, two for each range, and all of the last 128 blocks.
	if calls := node.Calls.Load(); calls > blocks/every*3 {
		t.Errorf("%d calls for %d blocks of which %d have logs", calls, blocks, blocks/every)
	}
}

// TestTimestamps: each block has its own barrier, with the timestamp that the chain says: on a chain of ten blocks a second, and where
// time goes back, which no chain is known to do.
func TestTimestamps(t *testing.T) {
	t.Parallel()
	const blocks = 600
	for name, node := range map[string]*rpctest.Sparse{
		"repeated":  rpctest.NewSparse(sparseDeployment.ChainID, blocks, 3, sparseLog()),
		"gone back": rpctest.NewBack(sparseDeployment.ChainID, blocks, 3, 12, sparseLog()),
	} {
		t.Cleanup(node.Close)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cfg := sparseWorld(t, node)
			in := run(t, cfg)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			logs, repeated, earlier, last := 0, 0, 0, uint64(0)
			for partition := range int32(partitions) {
				r, err := readUntil(ctx, w.kafka, w.topic, partition, node.Hash(blocks))
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range r.blocks {
					is := b.end.Block
					if want := node.Time(is.Number); is.Timestamp != want || is.Hash != node.Hash(is.Number) {
						t.Fatalf("block %d has time %d, the chain says %d", is.Number, is.Timestamp, want)
					}
					switch {
					case is.Timestamp == last:
						repeated++
					case is.Timestamp < last:
						earlier++
					}
					logs, last = logs+len(b.records), is.Timestamp
				}
			}
			if logs != blocks/3 || repeated < blocks/3*partitions/2 || name == "gone back" && earlier < blocks/12*partitions/2 {
				t.Errorf("%d logs, %d barriers with the timestamp of the one before, and %d with an earlier one", logs, repeated, earlier)
			}
			polltest.Until(t, "the ingester says so", func() bool { return in.Status().Published.Timestamp == node.Time(blocks) })
		})
	}
}

// unproved waits until the topic says what is not proved, as `lienstream status` reports it.
func (w *world) unproved(t *testing.T, cfg kafka.Config, topic string) (says string) {
	t.Helper()
	polltest.Until(t, "the topic says what is not proved", func() bool {
		says = w.says(t, cfg, topic)
		return says != ""
	})
	return says
}

// says is what the topic says is not proved.
func (w *world) says(t *testing.T, cfg kafka.Config, topic string) (says string) {
	t.Helper()
	err := kafka.ReadBack(t.Context(), cfg, topic, 0, 0, func(r *kafka.Record) bool {
		for _, h := range r.Headers {
			if h.Key == topics.UnprovedHeader {
				says = string(h.Value)
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	return says
}

var sparseDeployment = contracts.Deployment{
	ChainID: 7, StartBlock: 1, DealVault: common.Address{1}, AssetRegistry: common.Address{2}, USDG: common.Address{3},
	PoolManager: common.Address{4}, PositionManager: common.Address{5}, StateView: common.Address{6}, V4Quoter: common.Address{7},
}

// sparseLog is a change of the vault's fee.
func sparseLog() types.Log {
	return types.Log{Address: sparseDeployment.DealVault, Topics: []common.Hash{crypto.Keccak256Hash([]byte("FeeSet(uint16,address)"))}, Data: make([]byte, 64)}
}

// TestSparseBesideALiar: where empty blocks are left out two endpoints are asked for each range of history, so that what
// one of them leaves out comes in all the same, and it is named. At the tip nothing changes, reorgs included.
func TestSparseBesideALiar(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	for i, lie := range lies[:3] {
		t.Run(lie.name, func(t *testing.T) {
			liar, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 0)
			liar.Tells(lie.tell)
			cfg, topic := w.lyingConfig(t, fmt.Sprint("sparse", i), rpc.Endpoint{URL: liar.URL, Name: "liar"}, rpc.Endpoint{URL: honest.URL, Name: "honest"})
			cfg.RPC.Proof = rpc.ProofSparse
			in := run(t, cfg)
			for range 3 {
				w.step(t, 2)
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			}
			if err := w.scenario.Rewind(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			w.step(t, 4)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			if counted(t, in.reg, "liar", "missing_logs disagreement") == 0 {
				t.Error("the liar was not counted")
			}
			if n := counted(t, in.reg, "honest", "missing_logs disagreement"); n > 0 {
				t.Errorf("the honest node was counted %v times", n)
			}
		})
	}
}
