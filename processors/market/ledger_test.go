package market_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
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
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// crowdBytes is what may be on the heap while a token of any number of holders joins, beyond what was there before.
const crowdBytes = 128 << 20

// crowd is a token, its raw topic, the node that follows it, and who holds how much.
type crowd struct {
	t     *testing.T
	cfg   kafka.Config
	cat   topics.Catalogue
	tx    *kafka.Transactor
	token common.Address
	last  topics.BlockEnd
	fork  byte
	held  map[common.Address]uint64
	undo  []map[common.Address]uint64 // what the last blocks changed, as it was before

	node   *engine.Node
	client *query.Client
	stop   func()
}

// holder is the nth: all over the key space.
func holder(n uint64) (a common.Address) {
	binary.BigEndian.PutUint64(a[:], (n+1)*0x9e3779b97f4a7c15)
	return a
}

// mine publishes the next block, with transfers and a part of the ledger.
func (c *crowd) mine(part *topics.Ledger, transfers ...[2]uint64) {
	c.t.Helper()
	number := c.last.Block.Number + 1
	at := topics.BlockRef{Number: number, Hash: common.Hash{c.fork, byte(number), byte(number >> 8)}, Timestamp: number}
	end := topics.BlockEnd{Block: at, Parent: c.last.Block.Hash, Previous: c.last.Block, Linked: number > 1, Head: number, Commit: true}
	check(c.t, c.tx.Begin())
	send := func(r topics.Raw) {
		c.tx.Produce(c.t.Context(), &kafka.Record{Topic: c.cat.Raw(), Key: []byte("token"), Value: topics.AppendRaw(nil, r)})
		end.Records++
	}
	was := map[common.Address]uint64{}
	for i, pair := range transfers {
		from, to := holder(pair[0]), holder(pair[1])
		for _, a := range []common.Address{from, to} {
			if _, known := was[a]; !known {
				was[a] = c.held[a]
			}
		}
		amount := (c.held[from] + 1) / 2
		c.held[from] -= amount
		c.held[to] += amount
		send(&topics.Log{Block: at, LogIndex: uint32(i), Address: c.token, Data: common.LeftPadBytes(binary.BigEndian.AppendUint64(nil, amount), 32), Topics: []common.Hash{
			contracts.TransferTopic(), common.BytesToHash(from[:]), common.BytesToHash(to[:]),
		}})
	}
	if part != nil {
		p := *part
		p.Block = at
		send(&p)
	}
	c.undo = append(c.undo, was)
	c.tx.Produce(c.t.Context(), &kafka.Record{Topic: c.cat.Raw(), Value: topics.AppendRaw(nil, &end)})
	check(c.t, c.tx.Commit(c.t.Context()))
	c.last = end
}

// back takes the last blocks back.
func (c *crowd) back(blocks int, refs []topics.BlockEnd) {
	c.t.Helper()
	check(c.t, c.tx.Begin())
	for range blocks {
		maps.Copy(c.held, c.undo[len(c.undo)-1])
		c.undo = c.undo[:len(c.undo)-1]
		before := refs[len(refs)-1]
		refs = refs[:len(refs)-1]
		c.tx.Produce(c.t.Context(), &kafka.Record{Topic: c.cat.Raw(), Value: topics.AppendRaw(nil, &topics.BlockRevert{Block: c.last.Block, Head: before.Block})})
		c.last = before
	}
	check(c.t, c.tx.Commit(c.t.Context()))
	c.fork++
}

// start runs a node; its state is in dir.
func (c *crowd) start(dir string) {
	c.t.Helper()
	of := engine.DefaultConfig()
	of.Kafka, of.Catalogue, of.AppName, of.Instance = c.cfg, c.cat, topics.AppMarket, "a"
	of, _ = of.Sized(256<<20, 1)
	of.FS, of.Dir, of.Registerer = vfs.Default, dir, prometheus.NewRegistry()
	app := market.New(contracts.NewDecoder(markettest.Deployment), zap.NewNop(), prometheus.NewRegistry())
	node, err := engine.New(of, app)
	check(c.t, err)
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local, routing.Patience = 1, node, 20*time.Second
	c.client, err = query.NewClient(routing, markettest.Deployment)
	check(c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	c.node, c.stop = node, func() { cancel(); check(c.t, <-done) }
}

// at waits until the node is at the last block.
func (c *crowd) at() {
	c.t.Helper()
	polltest.Until(c.t, "the last block can be read", func() bool {
		all := c.node.Watermarks()
		return len(all) == 1 && all[0].At == c.last.Block
	})
}

// check holds what the node says of the holders against the balances.
func (c *crowd) check(accounts ...common.Address) {
	c.t.Helper()
	answer, err := c.client.HoldersOf(c.t.Context(), c.last.Block, query.HoldersQuery{Token: c.token, Largest: 10, Accounts: accounts})
	check(c.t, err)
	want := make([]topics.Holding, 0, len(c.held))
	supply := uint64(0)
	for a, amount := range c.held {
		if supply += amount; amount > 0 {
			want = append(want, topics.Holding{Token: c.token, Account: a, Amount: *uint256.NewInt(amount)})
		}
	}
	slices.SortFunc(want, func(a, b topics.Holding) int {
		return cmp.Or(b.Amount.Cmp(&a.Amount), a.Account.Cmp(b.Account))
	})
	got := answer.Value
	if got.Count != uint64(len(want)) || got.Supply != *uint256.NewInt(supply) || got.Faulted || !slices.Equal(got.Largest, want[:10]) {
		c.t.Errorf("%d holders of %s (%t), the largest %v; want %d of %d, the largest %v", got.Count, got.Supply.Dec(), got.Faulted, got.Largest, len(want), supply, want[:10])
	}
	if len(got.Of) != len(accounts) {
		c.t.Errorf("%d of %d accounts hold some", len(got.Of), len(accounts))
	}
	for _, h := range got.Of {
		if h.Amount != *uint256.NewInt(c.held[h.Account]) {
			c.t.Errorf("%s holds %s, want %d", h.Account, h.Amount.Dec(), c.held[h.Account])
		}
	}
}

// TestCrowdJoins: a token joins whose holders come with many blocks, while some give and get. A reorg takes parts back, a node
// dies between two and goes on, and another one restores from a changelog that was compacted. In the end holders are what they
// are by the transfers, and until then nothing is said of them. No task needs more memory for more of them: of a million with
// LIENSTREAM_HOLDERS=1000000, on Apache Kafka.
func TestCrowdJoins(t *testing.T) {
	holders, shares := 4000, 100
	var addrs []string
	compact := func() {}
	if n, err := strconv.Atoi(os.Getenv("LIENSTREAM_HOLDERS")); err == nil {
		holders, shares = n, 4096
		addrs = brokertest.Start(t, "apache")
	} else {
		addrs, compact = brokertest.Compactable(t)
	}
	c := &crowd{t: t, cfg: brokertest.Config(addrs, "t"), cat: topics.Catalogue{Prefix: "t", ChainID: 1, Partitions: 1}, token: common.Address{1}, held: map[common.Address]uint64{}}
	brokertest.Apply(t, c.cfg, c.cat.Topics())
	var err error
	c.tx, err = kafka.NewTransactor(c.cfg, "chain", kafka.TransactorOptions{})
	check(t, err)
	t.Cleanup(c.tx.Close)
	check(t, c.tx.Init(t.Context()))
	all := make([]topics.Share, holders)
	for i := range all {
		amount := uint64(i%1000 + 1)
		all[i] = topics.Share{Account: holder(uint64(i)), Amount: *uint256.NewInt(amount)}
		c.held[all[i].Account] = amount
	}
	slices.SortFunc(all, func(a, b topics.Share) int { return a.Account.Cmp(b.Account) })
	var parts []*topics.Ledger
	for some := range slices.Chunk(all, shares) {
		parts = append(parts, &topics.Ledger{Token: c.token, Part: uint32(len(parts)), Shares: some, Since: 2})
	}
	for _, p := range parts {
		p.Parts = uint32(len(parts))
	}
	dir := t.TempDir()
	c.mine(nil)
	c.start(filepath.Join(dir, "a"))
	c.at()

	peak := c.watch()
	began := time.Now()
	unknown := func() {
		t.Helper()
		if _, err := c.client.HoldersOf(t.Context(), c.last.Block, query.HoldersQuery{Token: c.token, Largest: 10}); !errors.Is(err, query.ErrNotFound) {
			t.Errorf("before the last part: %v", err)
		}
	}
	refs := []topics.BlockEnd{c.last}
	next := 0
	parted := func(upTo int) {
		t.Helper()
		for ; next < upTo; next++ {
			var transfers [][2]uint64
			for i := uint64(0); next > 0 && i < 8; i++ {
				n := uint64(next)*8 + i
				transfers = append(transfers, [2]uint64{n * 37 % uint64(holders), n * 101 % uint64(holders+500)}) // some who hold none yet
			}
			c.mine(parts[next], transfers...)
			if refs = append(refs, c.last); next%10 == 0 {
				c.at()
			}
		}
		c.at()
	}
	parted(len(parts) / 3)
	unknown()
	c.back(5, refs[:len(refs)-1]) // a reorg
	refs, next = refs[:len(refs)-5], next-5
	parted(len(parts) / 2)
	c.stop()
	c.start(filepath.Join(dir, "a"))
	parted(len(parts) * 2 / 3)
	unknown()
	c.stop()
	compact()
	c.start(filepath.Join(dir, "b")) // its disk is lost
	parted(len(parts) - 1)
	unknown()
	parted(len(parts))
	took, most := time.Since(began), peak()
	c.check(holder(7), holder(11))
	c.mine(nil, [2]uint64{7, 11}, [2]uint64{3, uint64(holders + 1000)})
	c.at()
	c.check(holder(7), holder(11))
	c.stop()
	t.Logf("%d holders in %d parts: %s, at most %d MiB of heap beyond what was there before", holders, len(parts), took.Round(time.Millisecond), most>>20)
	if most > crowdBytes {
		t.Errorf("%d MiB of heap", most>>20)
	}
}

// watch measures the heap until its result is called, which is the most beyond what it was.
func (c *crowd) watch() (peak func() uint64) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	was := debug.SetGCPercent(25) // what the balances here take is not to be the measure of what may be garbage
	c.t.Cleanup(func() { debug.SetGCPercent(was) })
	runtime.GC()
	before, done, stopped := heap(), make(chan struct{}), make(chan struct{})
	var most atomic.Uint64
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most.Store(max(most.Load(), heap()))
			case <-done:
				return
			}
		}
	}()
	return func() uint64 {
		close(done)
		<-stopped
		return most.Load() - min(before, most.Load())
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
