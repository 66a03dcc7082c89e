package notifier_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/facts"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

const (
	genesis = 2_000_000_000
	hour    = 3600
)

var (
	vault      = common.HexToAddress("0x00000000000000000000000000000000000000aa")
	controller = common.HexToAddress("0x00000000000000000000000000000000000000bb")
	registry   = common.HexToAddress("0x00000000000000000000000000000000000000cc")
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// chain is the raw topic, with the facts and the notifier behind it. A block is safe once so many have followed it.
type chain struct {
	t      testing.TB
	unsafe int
	policy facts.Policy
	cfg    kafka.Config
	cat    topics.Catalogue
	tx     *kafka.Transactor
	client *notifier.Client
	source *engine.Node // of facts
	node   *engine.Node
	head   topics.BlockRef
	tip    uint64        // a block that the chain has, but not the topic yet
	near   bool          // the next block is too near the last tick to be told of as one
	ago    time.Duration // what is sent now was written so long ago
	before []topics.BlockRef
	last   topics.BlockEnd // its barrier, but for the number of records
	salt   uint64

	most    int    // deals that a tick may go through; 0: as usual
	rebuild bool   // the facts begin by that
	stop    func() // of follow

	ticks int // told by each partition, or taken back
	mu    sync.Mutex
	came  []ticked // by partition of the notifier
}

// ticked is how many ticks came, and behind which command the last.
type ticked struct {
	n    int // without those that were repeated
	of   map[int32]notifier.Tick
	last int64
}

// newTopics is the raw topic alone, on a broker of that kind.
func newTopics(t testing.TB, kind string, unsafe int) *chain {
	return newTopicsOf(t, kind, unsafe, topics.Catalogue{ChainID: atTests.ChainID, Partitions: 4})
}

func newTopicsOf(t testing.TB, kind string, unsafe int, cat topics.Catalogue) *chain {
	if testing.Short() {
		t.Skip("takes a broker")
	}
	c := &chain{t: t, unsafe: unsafe, policy: facts.Safe, cfg: brokertest.Config(brokertest.Start(t, kind), "n"), cat: cat, head: topics.BlockRef{Timestamp: genesis}}
	c.cat.Prefix = "n"
	brokertest.Apply(t, c.cfg, c.cat.Topics())
	var err error
	c.tx, err = kafka.NewTransactor(c.cfg, "chain", kafka.TransactorOptions{})
	check(t, err)
	t.Cleanup(c.tx.Close)
	check(t, c.tx.Init(t.Context()))
	return c
}

// atTests are the contracts that the tests make events of.
var atTests = contracts.Deployment{ChainID: 1, DealVault: vault, EpochController: controller, AssetRegistry: registry}

// newNodes are the facts and the notifier as a process runs them.
func newNodes(conf engine.Config, of contracts.Deployment, policy facts.Policy, most int) (source, node *engine.Node, err error) {
	telling := conf
	telling.AppName, telling.Dir, telling.Registerer = topics.AppFacts, conf.Dir+"/facts", prometheus.NewRegistry()
	telling.HeadCommands = true
	decoder := contracts.NewDecoder(of)
	if source, err = engine.New(telling, facts.New(decoder, conf.Catalogue.Partitions, policy)); err != nil {
		return nil, nil, err
	}
	conf.AppName, conf.Dir, conf.Registerer, conf.Rebuild = topics.AppNotifier, conf.Dir+"/notifier", prometheus.NewRegistry(), false
	app := notifier.New(conf.Catalogue.Partitions, prometheus.NewRegistry())
	if most != 0 {
		notifier.FireAtMost(app, most)
	}
	node, err = engine.NewCommands(conf, app)
	return source, node, err
}

func newChain(t *testing.T, unsafe int) *chain { return newChainOf(t, unsafe, facts.Safe) }

func newChainOf(t *testing.T, unsafe int, policy facts.Policy) *chain {
	c := newTopics(t, "kfake", unsafe)
	c.policy = policy
	wait := c.follow(atTests)
	c.came = make([]ticked, c.cat.Partitions)
	for p := range c.cat.Partitions {
		c.came[p].of = map[int32]notifier.Tick{}
		r, err := kafka.NewReader(c.cfg, c.cat.Commands(topics.AppNotifier), p, kafka.Start, kafka.ReaderOptions{})
		check(t, err)
		wait(func(ctx context.Context) { c.watch(ctx, p, r) })
	}
	return c
}

// follow starts the facts and the notifier of these contracts, and a client. What is passed to its result runs beside them.
func (c *chain) follow(of contracts.Deployment) (beside func(func(context.Context))) {
	c.t.Helper()
	cfg := engine.DefaultConfig()
	cfg.Kafka, cfg.Catalogue, cfg.Instance, cfg.FS = c.cfg, c.cat, "a", vfs.NewMem()
	cfg.Standbys, cfg.SessionTimeout, cfg.Rebuild = 0, 6*time.Second, c.rebuild
	source, node, err := newNodes(cfg, of, c.policy, c.most)
	check(c.t, err)
	c.source, c.node = source, node
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	beside = func(run func(context.Context)) { wg.Go(func() { run(ctx) }) }
	for _, n := range []*engine.Node{source, node} {
		beside(func(ctx context.Context) {
			if err := n.Run(ctx); err != nil {
				c.t.Error(err)
			}
		})
	}
	c.stop = func() { cancel(); wg.Wait() }
	c.t.Cleanup(c.stop)

	producer, err := kafka.NewProducer(c.cfg, "users", kafka.ProducerOptions{})
	check(c.t, err)
	c.t.Cleanup(producer.Close)
	routing := read.DefaultConfig()
	routing.Application, routing.Partitions, routing.Local = topics.AppNotifier, c.cat.Partitions, node
	router, err := read.NewRouter(routing)
	check(c.t, err)
	c.client = notifier.NewClient(c.cat, producer, router)
	polltest.Until(c.t, "it comes up", func() bool { _, err := c.client.Health(c.t.Context()); return err == nil })
	return beside
}

// watch counts the ticks that come to a partition of the notifier.
func (c *chain) watch(ctx context.Context, p int32, r *kafka.Reader) {
	defer r.Close()
	for {
		records, err := r.Poll(ctx, nil)
		if err != nil {
			if ctx.Err() == nil {
				c.t.Error(err)
			}
			return
		}
		c.mu.Lock()
		for _, rec := range records {
			if !strings.Contains(string(rec.Value), `"tick"`) {
				continue
			}
			var cmd notifier.Command
			if err := json.Unmarshal(rec.Value[1:len(rec.Value)-1], &cmd); err != nil {
				c.t.Error(err)
			}
			tick, was := *cmd.Tick, c.came[p].of[cmd.Tick.From]
			if rec.Value[len(rec.Value)-1] == 1 {
				tick, was = notifier.Tick{}, tick // whatever comes next is new
			}
			if c.came[p].of[cmd.Tick.From] = tick; tick.Block != was.Block {
				c.came[p].n++
			}
			c.came[p].last = rec.Offset
		}
		c.mu.Unlock()
	}
}

// log is an event of the vault as the chain emits it.
func (c *chain) log(name string, values map[string]any) *topics.Log {
	c.t.Helper()
	contract, at := "DealVault", vault
	if strings.HasPrefix(name, "Epoch") {
		contract, at = "EpochController", controller
	} else if name == "AssetSet" {
		contract, at = "AssetRegistry", registry
	}
	described, err := contracts.ABI(contract)
	check(c.t, err)
	event, ok := described.Events[name]
	if !ok {
		c.t.Fatalf("no event %s", name)
	}
	log := &topics.Log{Address: at, Topics: []common.Hash{event.ID}}
	var data []any
	for _, in := range event.Inputs {
		value := values[in.Name]
		if value == nil {
			value = zero(in.Type)
		}
		if n, ok := value.(uint64); ok && in.Type.Size == 32 {
			value = uint32(n)
		} else if ok && in.Type.Size != 64 {
			value = new(big.Int).SetUint64(n)
		}
		if !in.Indexed {
			data = append(data, value)
			continue
		}
		packed, err := abi.Arguments{{Type: in.Type}}.Pack(value)
		check(c.t, err)
		log.Topics = append(log.Topics, common.Hash(packed))
	}
	log.Data, err = event.Inputs.NonIndexed().Pack(data...)
	check(c.t, err)
	return log
}

func zero(typ abi.Type) any {
	switch typ.T {
	case abi.AddressTy:
		return common.Address{}
	case abi.BoolTy:
		return false
	case abi.FixedBytesTy:
		return [32]byte{}
	default:
		switch typ.Size {
		case 8:
			return uint8(0)
		case 16:
			return uint16(0)
		case 32:
			return uint32(0)
		case 64:
			return uint64(0)
		}
		return new(big.Int)
	}
}

func (c *chain) send(p int32, key []byte, r topics.Raw) {
	c.tx.Produce(c.t.Context(), &kafka.Record{Topic: c.cat.Raw(), Partition: p, Key: key, Value: topics.AppendRaw(nil, r), Timestamp: time.Now().Add(-c.ago)})
}

// lag is how many blocks follow one before it is confirmed.
func (c *chain) lag() int {
	return map[facts.Policy]int{facts.Latest: 0, facts.Safe: c.unsafe, facts.Finalized: 2 * c.unsafe}[c.policy]
}

// back is the block that so many follow.
func (c *chain) back(n int) topics.BlockRef {
	if all := append(slices.Clone(c.before), c.head); n < len(all) {
		return all[len(all)-1-n]
	}
	return topics.BlockRef{}
}

// block sends a block some time later.
func (c *chain) block(later uint64, logs ...*topics.Log) {
	c.t.Helper()
	c.salt++
	next := topics.BlockRef{Number: c.head.Number + facts.TickBlocks, Timestamp: c.head.Timestamp + later}
	if c.near {
		next.Number = c.head.Number + 1
	}
	binary.BigEndian.PutUint64(next.Hash[:], c.salt)
	counts := make([]uint32, c.cat.Partitions)
	check(c.t, c.tx.Begin())
	for i, l := range logs {
		l.Block, l.LogIndex = next, uint32(i)
		id := new(uint256.Int).SetBytes32(l.Topics[1][:])
		key := contracts.DealEntity(id).Key()
		switch l.Address {
		case controller:
			key = contracts.EpochEntity(uint32(id.Uint64())).Key()
		case registry:
			key = contracts.TokenEntity(common.BytesToAddress(l.Topics[1][:])).Key()
		}
		p := topics.Partition(key, c.cat.Partitions)
		counts[p]++
		c.send(p, key, l)
	}
	c.before, c.head = append(c.before, c.head), next
	if len(c.before) > c.lag() && (c.lag() > 0 || !c.near) {
		c.ticks++ // of the block that is confirmed by now
	}
	c.last = topics.BlockEnd{
		Block: next, Parent: c.back(1).Hash, Safe: c.back(c.unsafe).Number, Finalized: c.back(2 * c.unsafe).Number,
		Head: max(next.Number, c.tip), Commit: true, Previous: c.back(1), Linked: true,
	}
	for p := range c.cat.Partitions {
		end := c.last
		end.Records = counts[p]
		c.send(p, nil, &end)
	}
	check(c.t, c.tx.Commit(c.t.Context()))
}

// stands says once more that the last block is the last, and what is safe and final by now.
func (c *chain) stands(safe, final uint64) {
	c.t.Helper()
	c.last.Safe, c.last.Finalized = safe, final
	check(c.t, c.tx.Begin())
	for p := range c.cat.Partitions {
		c.send(p, nil, &c.last)
	}
	check(c.t, c.tx.Commit(c.t.Context()))
}

// revert takes the last block back.
func (c *chain) revert() {
	c.t.Helper()
	if len(c.before) > c.lag() {
		c.ticks++
	}
	last := c.head
	c.head, c.before = c.before[len(c.before)-1], c.before[:len(c.before)-1]
	check(c.t, c.tx.Begin())
	for p := range c.cat.Partitions {
		c.send(p, nil, &topics.BlockRevert{Block: last, Head: c.head})
	}
	check(c.t, c.tx.Commit(c.t.Context()))
}

// deal is what the model knows of one.
type deal struct {
	id               int64
	borrower, lender common.Address
	fundedAt         uint64
	expiry, graceEnd uint64
}

func (c *chain) listed(d *deal) *topics.Log {
	return c.log("DealListed", map[string]any{"dealId": big.NewInt(d.id), "borrower": d.borrower})
}

func (c *chain) funded(d *deal) *topics.Log {
	return c.log("DealFunded", map[string]any{
		"dealId": big.NewInt(d.id), "lender": d.lender, "fundedAt": d.fundedAt, "expiry": d.expiry, "graceEnd": d.graceEnd,
	})
}

// alerts are the IDs in evt.alert for a wallet's channel, in order.
func (c *chain) alerts() (ids []common.Hash) {
	c.t.Helper()
	topic, ok := c.cat.Find(topics.KindEvent, topics.FamilyAlert)
	if !ok {
		c.t.Fatal("no topic of alerts")
	}
	for p := range c.cat.Partitions {
		var part []common.Hash
		check(c.t, kafka.ReadBack(c.t.Context(), c.cfg, topic.Name(), p, 0, func(r *kafka.Record) bool {
			part = append(part, common.Hash(r.Key))
			return true
		}))
		slices.Reverse(part)
		ids = append(ids, part...)
	}
	return ids
}

// model is what a wallet's channel is due to be told of a deal at a stage.
func model(d *deal, wallet common.Address, channel, kind string) common.Hash {
	due := map[string]uint64{
		"t48": d.expiry - 48*hour, "t24": d.expiry - 24*hour, "t6": d.expiry - 6*hour, "t1": d.expiry - hour,
		"expiry": d.expiry, "graceEnd": d.graceEnd,
	}[kind]
	a := topics.Alert{Wallet: wallet, Channel: channel, Kind: kind, DealID: fmt.Sprint(d.id), Due: due}
	return a.ID()
}

// applied waits until the notifier has applied the ticks of the last safe block.
func (c *chain) applied() {
	c.t.Helper()
	if c.ticks == 0 {
		return
	}
	for p := range c.cat.Partitions {
		polltest.Until(c.t, "every partition tells of the last safe block", func() bool {
			c.mu.Lock()
			came := c.came[p]
			c.mu.Unlock()
			if came.n > c.ticks*int(c.cat.Partitions) {
				c.t.Fatalf("%d ticks in partition %d, want %d", came.n, p, c.ticks*int(c.cat.Partitions))
			}
			return came.n == c.ticks*int(c.cat.Partitions) && slices.ContainsFunc(c.node.Watermarks(), func(w read.Watermark) bool {
				return w.Partition == p && w.At.Number > uint64(came.last)
			})
		})
	}
}

// want waits until exactly these alerts were fired, in this order in each partition.
func (c *chain) want(ids ...common.Hash) {
	c.t.Helper()
	c.applied()
	var got []common.Hash
	count := func() bool { got = c.alerts(); return len(got) >= len(ids) }
	polltest.Until(c.t, fmt.Sprintf("%d alerts", len(ids)), count)
	rank := map[common.Hash]int{}
	for i, id := range ids {
		rank[id] = i
	}
	for i, id := range got {
		if _, ok := rank[id]; !ok {
			c.t.Fatalf("alert %d of %d is none that is due", i, len(got))
		}
	}
	if len(got) != len(ids) {
		c.t.Fatalf("%d alerts, want %d", len(got), len(ids))
	}
}

func (c *chain) subscribe(wallet common.Address, channel notifier.Channel, unix int64, kinds ...notifier.Kind) {
	c.t.Helper()
	var prefs notifier.Prefs
	for _, k := range kinds {
		prefs = prefs.With(k, true)
	}
	cmd := &notifier.Subscribe{Wallet: wallet, Channel: channel, Sealed: []byte{1}, Mask: "m", Prefs: prefs, Unix: unix}
	cmd.ID[0] = byte(unix)
	outcome, err := c.client.Subscribe(c.t.Context(), cmd)
	if err != nil || outcome != notifier.Accepted {
		c.t.Fatalf("subscribe: %v, %v", outcome, err)
	}
}

func amount(n int64) *uint256.Int { return uint256.NewInt(uint64(n)) }
