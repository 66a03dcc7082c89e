package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toy is an application whose state depends on the order of all that it was given: a row is a running
// hash of a key's logs, and some logs delete it.
type toy struct{}

var toyTable = &state.Table{
	ID: 1, Name: "toy",
	Index: func(key, row []byte, to *state.IndexEntries) { to.Put(1, nil, row[:1], key) },
	Entity: &state.EntityTopic{
		Name: topics.EntityDeal, Key: func(b, key []byte) []byte { return append(b, key...) },
		Encode: func(b, row []byte, _ topics.BlockRef) ([]byte, error) {
			return append(append(b, "row:"...), row...), nil
		},
	},
}

func (toy) Tables() []*state.Table { return []*state.Table{toyTable} }

func (toy) Apply(w state.Writer, rec topics.Raw) error {
	l := rec.(*topics.Log)
	row, err := w.Get(toyTable, l.Address[:])
	if err != nil {
		return err
	}
	if next := toyNext(row, l.Data); next == nil {
		w.Delete(toyTable, l.Address[:])
	} else {
		w.Put(toyTable, l.Address[:], next)
	}
	w.Emit(topics.FamilyDeals, toyEventKey(l), append(slices.Clone(l.Data), 0))
	return nil
}

func toyNext(row, data []byte) []byte {
	if data[0]%7 == 0 {
		return nil
	}
	var old uint64
	if row != nil {
		old = binary.BigEndian.Uint64(row)
	}
	return binary.BigEndian.AppendUint64(nil, old*1099511628211+uint64(data[0])+1)
}

func toyEventKey(l *topics.Log) []byte {
	return fmt.Appendf(nil, "%x:%d", l.Block.Hash[:8], l.LogIndex)
}

// chain writes the raw topic as the ingester does, and keeps the model.
type chain struct {
	t          testing.TB
	cfg        kafka.Config
	cat        topics.Catalogue
	tx         *kafka.Transactor
	rng        *rand.Rand
	blocks     []chainBlock
	final      uint64
	reverts    uint64 // blocks taken back, ever
	salt, sent uint64
	previous   topics.BlockRef // of the next barrier, where its block's parent has none
	keys       int             // addresses per partition
	logs       int             // at most, per block
	ahead      uint64          // how far the chain's head is from what is sent
	age        time.Duration   // of what is sent
}

type chainBlock struct {
	ref  topics.BlockRef
	logs [][]*topics.Log // by partition
}

func newChain(t testing.TB, cfg kafka.Config, cat topics.Catalogue, seed uint64) *chain {
	tx, err := kafka.NewTransactor(cfg, "chain", kafka.TransactorOptions{})
	check(t, err)
	t.Cleanup(tx.Close)
	// A broker that has just started may not have its coordinator yet.
	polltest.Until(t, "producer", func() bool { return tx.Init(t.Context()) == nil })
	return &chain{t: t, cfg: cfg, cat: cat, tx: tx, rng: rand.New(rand.NewPCG(seed, 1)), keys: 10, logs: 12}
}

func (c *chain) head() topics.BlockRef {
	if len(c.blocks) == 0 {
		return topics.BlockRef{}
	}
	return c.blocks[len(c.blocks)-1].ref
}

func (c *chain) send(p int32, key []byte, r topics.Raw) {
	c.sent++
	c.tx.Produce(c.t.Context(), &kafka.Record{Topic: c.cat.Raw(), Partition: p, Key: key, Value: topics.AppendRaw(nil, r), Timestamp: time.Now().Add(-c.age)})
}

func (c *chain) begin()  { check(c.t, c.tx.Begin()) }
func (c *chain) commit() { check(c.t, c.tx.Commit(c.t.Context())) }

// before is the block of the barrier that comes before that of a block with this parent.
func (c *chain) before(parent topics.BlockRef) topics.BlockRef {
	if c.previous.Number > 0 {
		return c.previous
	}
	return parent
}

// block makes and sends a block; last: it ends the transaction.
func (c *chain) block(last bool) {
	c.salt++
	parent := c.head()
	b := chainBlock{ref: topics.BlockRef{Number: parent.Number + 1, Timestamp: 1000 + parent.Number}, logs: make([][]*topics.Log, c.cat.Partitions)}
	binary.BigEndian.PutUint64(b.ref.Hash[:], c.salt)
	for i := range c.rng.IntN(c.logs + 1) {
		p := c.rng.Int32N(c.cat.Partitions)
		l := &topics.Log{
			Block: b.ref, LogIndex: uint32(i), Data: []byte{byte(c.rng.IntN(200)), 2, 3},
			Address: common.Address{byte(p), byte(c.rng.IntN(c.keys)), byte(c.rng.IntN(max(c.keys/200, 1)))},
		}
		b.logs[p] = append(b.logs[p], l)
		c.send(p, l.Address[:], l)
	}
	previous := c.before(parent)
	for p := range c.cat.Partitions {
		c.send(p, nil, &topics.BlockEnd{
			Block: b.ref, Parent: parent.Hash, Records: uint32(len(b.logs[p])), Finalized: c.final, Head: b.ref.Number + c.ahead, Commit: last,
			Previous: previous, Linked: true,
		})
	}
	c.previous = topics.BlockRef{}
	c.blocks = append(c.blocks, b)
}

// add sends n blocks in one transaction.
func (c *chain) add(n int) {
	c.begin()
	for i := range n {
		c.block(i == n-1)
	}
	c.commit()
}

// reorg takes depth blocks back and sends as many and one more, in one transaction.
func (c *chain) reorg(depth int) {
	c.begin()
	for range depth {
		b := c.head()
		c.reverts++
		c.blocks = c.blocks[:len(c.blocks)-1]
		for p := range c.cat.Partitions {
			c.send(p, nil, &topics.BlockRevert{Block: b, Head: c.head()})
		}
	}
	for i := range depth + 1 {
		c.block(i == depth)
	}
	c.commit()
}

// rows is the model of a partition's state.
func (c *chain) rows(p int32) map[string]string {
	m := map[string]string{}
	for _, b := range c.blocks {
		for _, l := range b.logs[p] {
			k := string(l.Address[:])
			var row []byte
			if old, ok := m[k]; ok {
				row = []byte(old)
			}
			if next := toyNext(row, l.Data); next == nil {
				delete(m, k)
			} else {
				m[k] = string(next)
			}
		}
	}
	return m
}

// events is the model of a partition's events up to a block.
func (c *chain) events(p int32, upTo uint64) (keys []string) {
	for _, b := range c.blocks {
		if b.ref.Number <= upTo {
			for _, l := range b.logs[p] {
				keys = append(keys, string(toyEventKey(l)))
			}
		}
	}
	return keys
}

// env is a broker and what runs on it.
type env struct {
	t      testing.TB
	kafka  kafka.Config
	cat    topics.Catalogue
	broker *broker.Broker // nil: it is not this test's own
}

func newEnv(t testing.TB, partitions int32) *env {
	if testing.Short() {
		t.Skip("takes a broker")
	}
	b, err := broker.Open(broker.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	return provision(t, brokertest.Config(b.Addrs(), "t"), partitions)
}

func provision(t testing.TB, cfg kafka.Config, partitions int32) *env {
	e := &env{t: t, kafka: cfg, cat: topics.Catalogue{Prefix: cfg.Prefix, ChainID: 1, Partitions: partitions}}
	brokertest.Apply(t, cfg, e.cat.Topics())
	return e
}

func (e *env) config(instance string, fs vfs.FS) Config {
	logger := zap.NewNop()
	if testing.Verbose() {
		logger = zaptest.NewLogger(e.t, zaptest.Level(zap.InfoLevel))
	}
	cfg := DefaultConfig()
	cfg.Kafka, cfg.Catalogue, cfg.AppName, cfg.Instance = e.kafka, e.cat, topics.AppMarket, instance
	cfg.Dir, cfg.FS, cfg.Logger, cfg.Registerer = "/"+instance, fs, logger, prometheus.NewRegistry()
	cfg.doubt = time.Second
	cfg.Standbys, cfg.SessionTimeout, cfg.CommitTimeout = 0, 6*time.Second, 3*time.Second
	return cfg
}

// runningNode is a node that runs until it is stopped.
type runningNode struct {
	*Node
	cancel   context.CancelFunc
	done     chan error
	nextRole context.CancelFunc
}

// start starts a node; without a registry it has one of its own.
func (e *env) start(cfg Config, observers ...Observer) *runningNode {
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	n, err := New(cfg, toy{}, observers...)
	check(e.t, err)
	return e.run(n)
}

func (e *env) run(n *Node) *runningNode {
	ctx, cancel := context.WithCancel(context.Background())
	r := &runningNode{Node: n, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- n.Run(ctx) }()
	e.t.Cleanup(func() { r.stop(e.t) })
	return r
}

func (r *runningNode) stop(t testing.TB) {
	r.cancel()
	if err, ok := <-r.done; ok {
		check(t, err)
		close(r.done)
	}
}

// caughtUp waits until nodes together hold every partition at the chain's head.
func (e *env) caughtUp(c *chain, nodes ...*runningNode) {
	e.t.Helper()
	polltest.Until(e.t, "all partitions at the head", func() bool {
		at := map[int32]bool{}
		for _, n := range nodes {
			check(e.t, n.Stopped())
			for _, w := range n.Watermarks() {
				if w.At.Same(c.head()) && w.Role == topics.RoleOwner {
					at[w.Partition] = true
				}
			}
		}
		return len(at) == int(e.cat.Partitions)
	})
}

// at says whether a node has come to hold every partition in a role, at the block that is now the head.
func (e *env) at(c *chain, n *runningNode, role topics.HolderRole) func() bool {
	head, reverts := c.head(), c.reverts
	return func() bool {
		marks := n.Watermarks()
		for _, w := range marks {
			if !w.At.Same(head) || w.Role != role || w.Reverts != reverts {
				return false
			}
		}
		return len(marks) == int(e.cat.Partitions)
	}
}

// invariantState: the state is that of a replay of the canonical chain, and the index what rows say.
func (e *env) invariantState(c *chain, nodes ...*runningNode) {
	e.t.Helper()
	for p := range e.cat.Partitions {
		at := c.head()
		var views []state.View
		for _, n := range nodes {
			if v, err := n.View(e.t.Context(), p, &at); err == nil {
				defer v.Close() // also where the test fails: a store that closes waits for it
				views = append(views, v)
			}
		}
		if len(views) == 0 {
			e.t.Fatalf("partition %d: nobody has a view at block %d", p, at.Number)
		}
		for _, v := range views {
			got, index, want := map[string]string{}, map[string]bool{}, map[string]bool{}
			check(e.t, v.Scan(toyTable, nil, nil, func(k, row []byte) bool { got[string(k)] = string(row); return true }))
			if diff := cmp.Diff(c.rows(p), got); diff != "" {
				e.t.Fatalf("partition %d at block %d (-want +got):\n%s", p, at.Number, diff)
			}
			check(e.t, v.ScanIndex(1, nil, nil, func(k, _ []byte) bool { index[string(k)] = true; return true }))
			for k, row := range got {
				want[row[:1]+k] = true
			}
			if diff := cmp.Diff(want, index); diff != "" {
				e.t.Fatalf("partition %d: index (-want +got):\n%s", p, diff)
			}
		}
	}
}

// readAll is every committed record of a partition.
func (e *env) readAll(topic string, p int32) (all []*kafka.Record) {
	e.t.Helper()
	check(e.t, kafka.ReadBack(e.t.Context(), e.kafka, topic, p, 0, func(r *kafka.Record) bool { all = append(all, r); return true }))
	slices.Reverse(all)
	return all
}

// settles waits until what is read is what is wanted: what is shown at the tip is in the topics a commit later.
func settles[T any](t testing.TB, what string, want T, read func() T) {
	t.Helper()
	polltest.Within(t, time.Minute, func() error {
		if diff := cmp.Diff(want, read(), cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("%s (-want +got):\n%s", what, diff)
		}
		return nil
	})
}

// invariantTopics: read committed, the event topics hold each event of the canonical chain once and in
// order, those taken back in pairs, and the entity topic ends with the rows.
func (e *env) invariantTopics(c *chain) {
	e.t.Helper()
	for p := range e.cat.Partitions {
		settles(e.t, fmt.Sprintf("partition %d: events", p), c.events(p, 1<<62), func() []string { return e.head(p) })
		settles(e.t, fmt.Sprintf("partition %d: entities", p), c.rows(p), func() map[string]string {
			rows := map[string]string{}
			for _, r := range e.readAll(e.cat.Ent(topics.EntityDeal), p) {
				if r.Value == nil {
					delete(rows, string(r.Key))
				} else {
					rows[string(r.Key)] = string(r.Value[len("row:"):])
				}
			}
			return rows
		})
	}
}

// eventTopic is the name of a topic of events.
func (e *env) eventTopic(entity string) string {
	e.t.Helper()
	topic, ok := e.cat.Find(topics.KindEvent, entity)
	if !ok {
		e.t.Fatalf("no topic of the events %q", entity)
	}
	return topic.Name()
}

// head is the events of a partition that were not taken back.
func (e *env) head(p int32) (head []string) {
	e.t.Helper()
	for _, r := range e.readAll(e.eventTopic(topics.FamilyDeals), p) {
		if r.Value[len(r.Value)-1] == 0 {
			if slices.Contains(head, string(r.Key)) {
				e.t.Fatalf("partition %d: event %s twice", p, r.Key)
			}
			head = append(head, string(r.Key))
		} else if n := len(head); n == 0 || head[n-1] != string(r.Key) {
			e.t.Fatalf("partition %d: event %s taken back, but it is not the last", p, r.Key)
		} else {
			head = head[:n-1]
		}
	}
	return head
}

// invariantFinal: the topic of final events holds each event of a final block once, in order, and no other.
func (e *env) invariantFinal(c *chain, upTo uint64) {
	e.t.Helper()
	for p := range e.cat.Partitions {
		settles(e.t, fmt.Sprintf("partition %d: final events", p), c.events(p, upTo), func() (got []string) {
			for _, r := range e.readAll(e.eventTopic(topics.FamilyDeals+".final"), p) {
				got = append(got, string(r.Key))
			}
			return got
		})
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// holdAll runs a node that holds everything in a role, whatever any group says; in the next one from a call
// of nextRole on.
func (e *env) holdAll(cfg Config, roles ...topics.HolderRole) *runningNode {
	var all []int32
	for p := range e.cat.Partitions {
		all = append(all, p)
	}
	return e.holdSome(cfg, all, roles...)
}

// holdSome is holdAll for some partitions.
func (e *env) holdSome(cfg Config, partitions []int32, roles ...topics.HolderRole) *runningNode {
	n, err := New(cfg, toy{})
	check(e.t, err)
	check(e.t, n.connect())
	all, cancel := context.WithCancel(context.Background())
	r := &runningNode{Node: n, cancel: cancel, done: make(chan error, 1)}
	var ctxs []context.Context
	ends := make(chan context.CancelFunc, len(roles))
	for range roles {
		ctx, end := context.WithCancel(all)
		ctxs = append(ctxs, ctx)
		ends <- end
	}
	r.nextRole = func() { (<-ends)() }
	go func() {
		var wg sync.WaitGroup
		wg.Go(func() { _ = n.lookUpEnds(all) })
		wg.Go(func() { _ = n.lookForRebuilds(all) })
		for _, p := range partitions {
			wg.Go(func() {
				r := n.replicas[p]
				for i, role := range roles {
					n.hold(ctxs[i], r, role)
				}
				n.hold(all, r, "")
			})
		}
		wg.Wait()
		n.disconnect()
		r.done <- nil
	}()
	e.t.Cleanup(func() { r.stop(e.t) })
	return r
}

// gauge is the highest of a gauge over partitions.
func gauge(t testing.TB, reg prometheus.Registerer, name string) (highest float64) {
	t.Helper()
	families, err := reg.(*prometheus.Registry).Gather()
	check(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				highest = max(highest, m.GetGauge().GetValue())
			}
		}
	}
	return highest
}

// total sums a counter over partitions; with a reason, of that reason.
func total(t testing.TB, reg prometheus.Registerer, name, reason string) (sum float64) {
	t.Helper()
	return count(t, reg, name, "reason", reason)
}

// count sums a counter; with a value, of that value of a label.
func count(t testing.TB, reg prometheus.Registerer, name, label, value string) (sum float64) {
	t.Helper()
	families, err := reg.(*prometheus.Registry).Gather()
	check(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := value == ""
			for _, l := range m.GetLabel() {
				match = match || l.GetName() == label && l.GetValue() == value
			}
			if match {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
