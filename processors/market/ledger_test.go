package market_test

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/processors/market/markettest"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// crowdBytes is what a task and the embedded broker beside it may have on the heap while the largest ledger is applied. A pod
// of the processors has 1 GiB.
const crowdBytes = 768 << 20

// largestLedger is a ledger of as many holders as one may have.
func largestLedger(at topics.BlockRef) (parts []topics.Raw) {
	l := &topics.Ledger{}
	for i := range topics.MaxHolders {
		if i%topics.MaxShares == 0 {
			l = &topics.Ledger{Block: at, Token: common.Address{1}, Part: uint32(len(parts)), Parts: topics.MaxHolders / topics.MaxShares}
			parts = append(parts, l)
		}
		share := topics.Share{Amount: *uint256.NewInt(uint64(i + 1))}
		binary.BigEndian.PutUint64(share.Account[:], uint64(i+1)*0x9e3779b97f4a7c15) // all over the key space
		l.Shares = append(l.Shares, share)
	}
	return parts
}

// TestLargestLedger: the largest ledger, which comes with one block, is committed by one transaction within its time, and
// within the memory of a pod.
func TestLargestLedger(t *testing.T) {
	b, err := broker.Open(broker.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	cfg, cat := brokertest.Config(b.Addrs(), "t"), topics.Catalogue{Prefix: "t", ChainID: 1, Partitions: 1}
	brokertest.Apply(t, cfg, cat.Topics())
	tx, err := kafka.NewTransactor(cfg, "chain", kafka.TransactorOptions{})
	check(t, err)
	t.Cleanup(tx.Close)
	check(t, tx.Init(t.Context()))
	send := func(end *topics.BlockEnd, records []topics.Raw) {
		check(t, tx.Begin())
		end.Records, end.Head, end.Commit = uint32(len(records)), end.Block.Number, true
		for _, r := range records {
			tx.Produce(t.Context(), &kafka.Record{Topic: cat.Raw(), Key: []byte("token"), Value: topics.AppendRaw(nil, r)})
		}
		tx.Produce(t.Context(), &kafka.Record{Topic: cat.Raw(), Value: topics.AppendRaw(nil, end)})
		check(t, tx.Commit(t.Context()))
	}
	first := topics.BlockRef{Number: 1, Hash: common.Hash{1}, Timestamp: 1}
	second := topics.BlockRef{Number: 2, Hash: common.Hash{2}, Timestamp: 2}
	send(&topics.BlockEnd{Block: first}, nil)
	of := engine.DefaultConfig()
	of.Kafka, of.Catalogue, of.AppName, of.Instance = cfg, cat, topics.AppMarket, "a"
	of.FS, of.Dir, of.Registerer = vfs.Default, filepath.Join(t.TempDir(), "state"), prometheus.NewRegistry()
	node, err := engine.New(of, market.New(contracts.NewDecoder(markettest.Deployment), zap.NewNop(), prometheus.NewRegistry()))
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	t.Cleanup(func() { cancel(); check(t, <-done) })
	at := func(block topics.BlockRef) func() bool {
		return func() bool { all := node.Watermarks(); return len(all) == 1 && all[0].At == block }
	}
	polltest.Until(t, "the task runs", at(first))

	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, peak := m.HeapInuse, uint64(0)
	began := time.Now()
	send(&topics.BlockEnd{Block: second, Parent: first.Hash}, largestLedger(second))
	reader, err := kafka.NewReader(cfg, cat.Changelog(topics.AppMarket), 0, kafka.Start, kafka.ReaderOptions{})
	check(t, err)
	t.Cleanup(reader.Close)
	committed := make(chan error, 1)
	go func() {
		for n := 0; n < topics.MaxHolders; {
			records, err := reader.Poll(ctx, nil)
			if n += len(records); err != nil {
				committed <- err
				return
			}
		}
		committed <- nil
	}()
	polltest.Until(t, "it is committed", func() bool {
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
		select {
		case err := <-committed:
			check(t, err)
			return true
		default:
			return false
		}
	})
	polltest.Until(t, "it can be read", at(second))
	t.Logf("%d holders in %s, %d MiB of heap", topics.MaxHolders, time.Since(began).Round(time.Millisecond), (peak-before)>>20)
	if peak-before > crowdBytes {
		t.Errorf("%d MiB of heap", (peak-before)>>20)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
