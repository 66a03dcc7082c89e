package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// What the design promises, on the embedded broker and on Apache Kafka.
func TestPromises(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a broker, for two minutes")
	}
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			brokers := brokertest.Start(t, kind)
			for name, test := range map[string]func(*testing.T, *env){
				"crashes": testCrashes, "drains": testDrains, "lostdisk": testLostDisk, "twoowners": testTwoOwners, "takeover": testTakeover, "orphaned": testOrphanedStandby, "silent": testSilentOwner, "ahead": testAhead,
				"short-lived owner": testShortLivedOwner, "late": testLate, "hidden": testHiddenOwner,
				"fenced while idle": testFencedWhileIdle, "idle": testIdleOwnersWriteNothing,
				"joint": testJoint, "joint task fails": testJointTaskFails, "left round": testLeftRound, "contended": testContended,
				"release after restart": testReleaseAfterRestart, "awaits release": testAwaitsRelease, "renewal": testRenewal, "rebuild beside": testRebuildBeside, "node dies": testNodeDies,
			} {
				t.Run(name, func(t *testing.T) {
					test(t, provision(t, brokertest.Config(brokers, strings.ReplaceAll(name, " ", "-")), 4))
				})
			}
		})
	}
}

// overdue is the occasion at which a point that has had no crash gets one. That many are sure to come, of
// "restored" too: one of each of four partitions, and one after a crash at each of three other points.
const overdue = 7

// crasher lets tasks die at random points of the loop, and at each of them once at least.
type crasher struct {
	mu      sync.Mutex
	rng     *rand.Rand
	oneIn   int
	passed  map[string]int
	crashes map[string]int
	off     atomic.Bool
}

func newCrasher(seed uint64, oneIn int) *crasher {
	return &crasher{rng: rand.New(rand.NewPCG(seed, 9)), oneIn: oneIn, passed: map[string]int{}, crashes: map[string]int{}}
}

func (c *crasher) crash(_ int32, point string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off.Load() {
		return false
	}
	c.passed[point]++
	if c.rng.IntN(c.oneIn) != 0 && (c.crashes[point] > 0 || c.passed[point] < overdue) {
		return false
	}
	c.crashes[point]++
	return true
}

// everyPoint: the test is worth nothing where a point was never met.
func (c *crasher) everyPoint(t *testing.T, more ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range append(more, "caughtUp", "restored", "beforeEnd", "duringEnd", "afterEnd", "afterPebble") {
		if c.crashes[p] == 0 {
			t.Errorf("no crash at %q", p)
		}
	}
	t.Logf("crashes: %v", c.crashes)
}

// Whatever point a task dies at, with reorgs of depth 1 to 64 in between, nothing is lost, doubled or torn.
func testCrashes(t *testing.T, e *env) {
	seed := testSeed(t)
	c := newChain(t, e.kafka, e.cat, seed)
	cr := newCrasher(seed, 15)
	cfg := e.config("a", vfs.NewMem())
	cfg.crash, cfg.renewal = cr.crash, 100*time.Millisecond
	n := e.start(cfg)
	for range 30 {
		e.scenario(c, 2)
		e.caughtUp(c, n) // else most of it would be one commit, and few points met
	}
	cr.off.Store(true)
	e.caughtUp(c, n)
	cr.everyPoint(t)
	e.invariantState(c, n)
	e.invariantTopics(c)
	e.finish(c, n)
	if got := total(t, n.cfg.Registerer, "lienstream_processors_restarts_total", "changelog"); got > 0 {
		t.Errorf("the state was wiped %v times", got)
	}
}

// An owner that dies after its first commit, before it has written that to its disk, finds its own commit: the state has passed
// the owner's open record, and is not wiped for it.
func TestCrashAfterTheFirstCommit(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 9)
	cfg := e.config("a", vfs.NewMem())
	var lives, crashes atomic.Int64
	cfg.crash = func(_ int32, point string) bool {
		switch point {
		case "restored":
			lives.Add(1)
		case "afterEnd":
			return lives.Load() > 1 && crashes.Add(1) <= 3
		case "afterPebble":
			return lives.Load() == 1
		}
		return false
	}
	n := e.start(cfg)
	for range 5 {
		c.add(1)
		e.caughtUp(c, n)
	}
	e.invariantState(c, n)
	if got := total(t, cfg.Registerer, "lienstream_processors_restarts_total", "changelog"); got > 0 || crashes.Load() < 3 {
		t.Errorf("the state was wiped %v times after %d crashes", got, crashes.Load())
	}
}

// Far behind the head events are sent before their commit, as soon as they are final. Whatever point a task dies at, with
// blocks that are not final in between, and reorgs of these, each is there once and in its place.
func testDrains(t *testing.T, e *env) {
	seed := testSeed(t)
	c := newChain(t, e.kafka, e.cat, seed)
	c.ahead = 1 << 20
	cr := newCrasher(seed, 50)
	cfg := e.config("a", vfs.NewMem())
	cfg.crash, cfg.CommitBytes = cr.crash, 64<<10
	n := e.start(cfg)
	for range 30 {
		switch window := len(c.blocks) - int(c.final); {
		case window > 1 && c.rng.IntN(2) == 0:
			c.reorg(1 + c.rng.IntN(min(64, window-1)))
		case window >= 0:
			c.final = c.head().Number + uint64(c.rng.IntN(60))
		}
		for range 1 + c.rng.IntN(10) {
			c.add(1 + c.rng.IntN(20))
		}
		e.caughtUp(c, n)
	}
	cr.off.Store(true)
	for len(c.blocks) < int(c.final) {
		c.add(10)
	}
	e.caughtUp(c, n)
	cr.everyPoint(t, "drained")
	e.invariantState(c, n)
	e.invariantTopics(c)
	e.finish(c, n)

	n.stop(t)
	cfg.Rebuild, cfg.Registerer = true, nil // a history with reverts, of which one partition tells the others
	n = e.start(cfg)
	e.finish(c, n)
	e.invariantTopics(c)
}

// scenario lets a chain live: single blocks, runs of them, reorgs of depth 1 to 64, finality.
func (e *env) scenario(c *chain, steps int) {
	for range steps {
		switch window := len(c.blocks) - int(c.final); {
		case c.rng.IntN(6) == 0 && window > 1:
			c.reorg(1 + c.rng.IntN(min(64, window-1)))
		case c.rng.IntN(10) == 0 && window > 70:
			c.final = c.head().Number - uint64(65+c.rng.IntN(window-65))
		case c.rng.IntN(4) == 0:
			c.add(1 + c.rng.IntN(20))
		default:
			c.add(1)
		}
	}
}

// finish makes everything final and checks the final events.
func (e *env) finish(c *chain, nodes ...*runningNode) {
	e.t.Helper()
	c.final = c.head().Number
	c.add(1)
	e.caughtUp(c, nodes...)
	e.invariantState(c, nodes...)
	e.invariantFinal(c, c.final)
}

// A machine that dies leaves a disk as of some moment, or none; the next one restores the same state.
func testLostDisk(t *testing.T, e *env) {
	seed := testSeed(t)
	c := newChain(t, e.kafka, e.cat, seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	fs := vfs.NewCrashableMem()
	for life := range 4 {
		n := e.start(e.config("a", fs))
		e.scenario(c, 15)
		if life%2 == 0 {
			e.caughtUp(c, n)
		}
		next := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		n.stop(t)
		if fs = next; life == 2 {
			fs = vfs.NewCrashableMem()
		}
	}
	n := e.start(e.config("a", fs))
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
	e.finish(c, n)
}

// testSeed is another one every time; the log says which, and the variable brings it back.
func testSeed(t *testing.T) uint64 {
	seed := rand.Uint64()
	if s := os.Getenv("LIENSTREAM_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		check(t, err)
	}
	t.Logf("LIENSTREAM_TEST_SEED=%d", seed)
	return seed
}

// Two nodes that both believe that they own everything fence each other, and nothing is doubled.
func testTwoOwners(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 7)
	a, b := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner), e.holdAll(e.config("b", vfs.NewMem()), topics.RoleOwner)
	e.scenario(c, 40)
	fenced := func() bool {
		return total(t, a.cfg.Registerer, "lienstream_processors_restarts_total", "fenced")+
			total(t, b.cfg.Registerer, "lienstream_processors_restarts_total", "fenced") >= 4
	}
	polltest.Until(t, "they fence each other", func() bool { c.add(1); return fenced() })
	a.stop(t)
	e.caughtUp(c, b)
	e.invariantState(c, b)
	e.invariantTopics(c)
	e.finish(c, b)
}

// An owner that a node has fenced, which is gone since, owns again before the chain goes on: until then its answers
// would be those of an older incarnation than readers know of.
func testFencedWhileIdle(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 17)
	a := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
	e.scenario(c, 10)
	e.caughtUp(c, a)
	b := e.holdAll(e.config("b", vfs.NewMem()), topics.RoleOwner)
	e.caughtUp(c, b)
	known := b.Watermarks()
	b.stop(t)
	polltest.Until(t, "the first owns every partition in an incarnation newer than the second's", func() bool {
		marks := a.Watermarks()
		return len(marks) == len(known) && !slices.ContainsFunc(marks, func(w read.Watermark) bool {
			return slices.ContainsFunc(known, func(k read.Watermark) bool { return k.Partition == w.Partition && k.Incarnation >= w.Incarnation })
		})
	})
	e.finish(c, a)
}

// A standby shows the same blocks, serves when the owner is gone, and takes over from its tail.
func testTakeover(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 8)
	var nodes []*runningNode
	for _, name := range []string{"a", "b"} {
		cfg := e.config(name, vfs.NewMem())
		cfg.Standbys = 1
		nodes = append(nodes, e.start(cfg))
	}
	e.scenario(c, 30)
	e.caughtUp(c, nodes...)
	polltest.Until(t, "every partition has an owner and a standby at the head", func() bool {
		at := 0
		for _, n := range nodes {
			for _, w := range n.Watermarks() {
				if w.At.Same(c.head()) {
					at++
				}
			}
		}
		return at == 2*int(e.cat.Partitions)
	})
	e.invariantState(c, nodes...)
	last := c.head()
	restored := total(t, nodes[1].cfg.Registerer, "lienstream_processors_restored_records_total", "")
	nodes[0].stop(t)
	for p := range e.cat.Partitions { // whoever owned it, the other one answers at once
		v, err := nodes[1].View(t.Context(), p, &last)
		check(t, err)
		v.Close()
	}
	e.scenario(c, 20)
	e.caughtUp(c, nodes[1])
	e.invariantState(c, nodes[1])
	e.invariantTopics(c)
	if got := total(t, nodes[1].cfg.Registerer, "lienstream_processors_restored_records_total", "") - restored; got > 0 {
		t.Errorf("the takeover restored %v records, the standby had them", got)
	}
	e.finish(c, nodes[1])
}

// A standby whose owner died goes on over blocks that touch nothing, over a few that do, and follows the next
// owner: all partitions can be read at one block.
func testOrphanedStandby(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 9)
	owner := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
	standby := e.holdAll(e.config("b", vfs.NewMem()), topics.RoleStandby)
	e.scenario(c, 20)
	polltest.Until(t, "the standby follows", e.at(c, standby, topics.RoleStandby))
	e.committed(c, owner)
	owner.stop(t)
	logs := c.logs
	c.logs = 0
	for range 5 {
		c.add(1)
	}
	empty := c.head()
	polltest.Until(t, "the standby goes on", e.at(c, standby, topics.RoleStandby))
	e.invariantState(c, standby)
	c.logs = logs
	c.reorg(2)
	for range maxSpeculative / 2 {
		c.add(1)
	}
	tried := c.head()
	polltest.Until(t, "the standby applies what touches it", e.at(c, standby, topics.RoleStandby))
	e.invariantState(c, standby)
	for range 2 * maxSpeculative {
		c.add(1)
	}
	owner = e.holdAll(e.config("c", vfs.NewMem()), topics.RoleOwner)
	polltest.Until(t, "the standby follows the next owner", e.at(c, standby, topics.RoleStandby))
	e.invariantState(c, standby, owner)
	e.invariantTopics(c)
	for p := range e.cat.Partitions {
		for _, at := range []topics.BlockRef{empty, tried} {
			v, err := standby.View(t.Context(), p, &at)
			check(t, err)
			v.Close()
		}
	}
	e.committed(c, owner)
	owner.stop(t)
	for range maxSpeculative / 2 {
		c.add(1)
	}
	polltest.Until(t, "the standby begins where this owner ended", e.at(c, standby, topics.RoleStandby))
	e.invariantState(c, standby)
}

// committed waits until the owner has nothing left to commit: a standby may be ahead of that.
func (e *env) committed(c *chain, owner *runningNode) {
	e.t.Helper()
	for p := range e.cat.Partitions {
		polltest.Until(e.t, "everything is committed", func() bool {
			last, err := owner.lastLife(e.t.Context(), p)
			check(e.t, err)
			return last.progress.At.Same(c.head())
		})
	}
}

// What a standby applies itself is bounded: each view of it holds all that is not committed.
func testSilentOwner(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 11)
	owner := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
	standby := e.holdAll(e.config("b", vfs.NewMem()), topics.RoleStandby)
	c.logs = 40 // all partitions are touched
	e.scenario(c, 20)
	polltest.Until(t, "the standby follows", e.at(c, standby, topics.RoleStandby))
	e.committed(c, owner)
	owner.stop(t)
	touched := map[int32][]topics.BlockRef{}
	for range maxSpeculative + 5 {
		c.add(1)
		b := c.blocks[len(c.blocks)-1]
		for p, logs := range b.logs {
			if len(logs) > 0 {
				touched[int32(p)] = append(touched[int32(p)], b.ref)
			}
		}
	}
	for p := range e.cat.Partitions {
		last := touched[p][maxSpeculative] // the first that it leaves to the next owner
		polltest.Until(t, "the standby comes to its bound", func() bool {
			w, _ := standby.replicas[p].watermark()
			if w.At.Number >= last.Number {
				t.Fatalf("partition %d: the standby is at block %d, %d touch it by %d", p, w.At.Number, maxSpeculative+1, last.Number)
			}
			return w.At.Number+1 == last.Number
		})
	}
}

// What is shown ahead of its commit stands where the commit never comes: on the same node as a standby too, on
// another that follows, and whoever takes over comes to the same.
func testAhead(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 10)
	var armed atomic.Bool
	cfg := e.config("a", vfs.NewMem())
	cfg.crash = func(_ int32, point string) bool { return point == "beforeEnd" && armed.Load() }
	a := e.holdAll(cfg, topics.RoleOwner, topics.RoleStandby)
	follower := e.holdAll(e.config("c", vfs.NewMem()), topics.RoleStandby)
	c.logs = 40 // all partitions are touched
	c.add(20)
	e.caughtUp(c, a)
	polltest.Until(t, "another node follows", e.at(c, follower, topics.RoleStandby))
	armed.Store(true)
	c.reorg(3)
	ahead := c.head()
	polltest.Until(t, "the owner shows what it does not commit", e.at(c, a, topics.RoleOwner))
	polltest.Until(t, "so does the other node", e.at(c, follower, topics.RoleStandby))
	e.invariantState(c, a, follower)
	for p := range e.cat.Partitions {
		for _, r := range e.readAll(e.eventTopic(topics.FamilyDeals), p) {
			if bytes.HasPrefix(r.Key, fmt.Appendf(nil, "%x:", ahead.Hash[:8])) {
				t.Fatalf("partition %d: event %s was committed", p, r.Key)
			}
		}
	}
	a.nextRole()
	polltest.Until(t, "the standby goes on from it", e.at(c, a, topics.RoleStandby))
	e.invariantState(c, a)
	logs := c.logs
	c.logs = 0
	c.add(5)
	polltest.Until(t, "the standby moves over blocks that touch nothing", e.at(c, a, topics.RoleStandby))
	e.invariantState(c, a)
	c.logs = logs
	c.add(1)
	b := e.holdAll(e.config("b", vfs.NewMem()), topics.RoleOwner)
	e.caughtUp(c, b)
	polltest.Until(t, "the standby follows the next owner", e.at(c, a, topics.RoleStandby))
	polltest.Until(t, "so does the other node", e.at(c, follower, topics.RoleStandby))
	e.invariantState(c, a, b, follower)
	e.invariantTopics(c)
}

// A standby that is ahead, owns the partitions for two commits and loses them again still shows what it showed:
// what it hid while it caught up is of earlier blocks.
func testShortLivedOwner(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 12)
	owner := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
	var commits [4]atomic.Int32
	arrived, leave := make(chan struct{}, len(commits)), make(chan struct{})
	cfg := e.config("b", vfs.NewMem())
	cfg.crash = func(p int32, point string) bool {
		if point == "beforeEnd" && commits[p].Add(1) == 2 {
			arrived <- struct{}{}
			<-leave
		}
		return false
	}
	b := e.holdAll(cfg, topics.RoleStandby, topics.RoleOwner, topics.RoleStandby)
	c.logs = 40 // all partitions are touched
	e.scenario(c, 20)
	polltest.Until(t, "the standby follows", e.at(c, b, topics.RoleStandby))
	e.committed(c, owner)
	owner.stop(t)
	for range maxSpeculative / 2 {
		c.add(1)
	}
	polltest.Until(t, "the standby applies what the owner left", e.at(c, b, topics.RoleStandby))
	b.nextRole()
	for range commits {
		select {
		case <-arrived:
		case <-time.After(time.Minute):
			t.Fatal("not every partition comes to its second commit")
		}
	}
	b.nextRole()
	close(leave)
	c.logs = 0
	c.add(1)
	polltest.Until(t, "it follows again", e.at(c, b, topics.RoleStandby))
	e.invariantState(c, b)
}

// On a machine that is behind, blocks near the head come late. A standby applies those too that its owner left, and
// an owner that catches up keeps a view of each, at which others may stand.
func testLate(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 13)
	owner := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
	b := e.holdAll(e.config("b", vfs.NewMem()), topics.RoleStandby, topics.RoleOwner)
	c.logs = 40 // all partitions are touched
	e.scenario(c, 20)
	polltest.Until(t, "the standby follows", e.at(c, b, topics.RoleStandby))
	e.committed(c, owner)
	owner.stop(t)
	c.age = 2 * tipAge
	for range maxSpeculative / 2 {
		c.add(1)
	}
	polltest.Until(t, "the standby applies what the owner left", e.at(c, b, topics.RoleStandby))
	e.invariantState(c, b)
	var left []topics.BlockRef
	for range 2 * maxSpeculative { // more than it applies
		c.add(1)
		left = append(left, c.head())
	}
	b.nextRole()
	e.caughtUp(c, b)
	for p := range e.cat.Partitions {
		for _, at := range left {
			v, err := b.View(t.Context(), p, &at)
			if err != nil {
				t.Fatalf("partition %d: %v", p, err)
			}
			v.Close()
		}
	}
	e.invariantState(c, b)
	e.invariantTopics(c)
}

// An owner that is not visible yet answers for the blocks that it has when they are asked for by name: another may
// have shown them, and be gone.
func testHiddenOwner(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 14)
	owner := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
	var commits [4]atomic.Int32
	arrived, leave := make(chan int32, len(commits)), make(chan struct{})
	cfg := e.config("b", vfs.NewMem())
	cfg.crash = func(p int32, point string) bool {
		if point == "beforeEnd" && commits[p].Add(1) == maxSpeculative+5 {
			arrived <- p
			<-leave
		}
		return false
	}
	b := e.holdAll(cfg, topics.RoleStandby, topics.RoleOwner)
	c.logs = 40 // all partitions are touched
	e.scenario(c, 20)
	polltest.Until(t, "the standby follows", e.at(c, b, topics.RoleStandby))
	e.committed(c, owner)
	owner.stop(t)
	for range 2 * maxSpeculative { // more than a standby applies
		c.add(1)
	}
	b.nextRole()
	for range commits {
		select {
		case p := <-arrived:
			r := b.replicas[p]
			r.mu.RLock()
			shown, hidden := r.mark.At, r.kept[len(r.kept)-1].at
			r.mu.RUnlock()
			if hidden.Number <= shown.Number {
				t.Fatalf("partition %d: nothing is hidden: it shows block %d and has %d", p, shown.Number, hidden.Number)
			}
			v, err := b.View(t.Context(), p, &hidden)
			if err != nil {
				t.Errorf("partition %d shows block %d, and has %d: %v", p, shown.Number, hidden.Number, err)
				continue
			}
			v.Close()
		case <-time.After(time.Minute):
			t.Fatal("not every partition comes to its last commits")
		}
	}
	close(leave)
	e.caughtUp(c, b)
	e.invariantState(c, b)
}

// All was off for longer than the changelog keeps tombstones. Starts that fail between the restore and the open record, as where a
// coordinator is not there yet, leave a state that is as new as they are.
func TestFailedStartAfterAWeek(t *testing.T) {
	e := newEnv(t, 1)
	tx, err := kafka.NewTransactor(e.kafka, "former", kafka.TransactorOptions{})
	check(t, err)
	defer tx.Close()
	check(t, tx.Init(t.Context()))
	check(t, tx.Begin())
	tx.Produce(t.Context(), &kafka.Record{
		Topic: e.cat.Changelog(topics.AppMarket), Partition: 0, Key: keyProgress, Value: sealProgress(0, unopened().Progress, 0),
		Timestamp: time.Now().Add(-topics.ChangelogTombstones - time.Hour),
	})
	check(t, tx.Commit(t.Context()))
	c := newChain(t, e.kafka, e.cat, 8)
	c.add(3)
	cfg := e.config("a", vfs.NewMem())
	var failed atomic.Int64
	cfg.crash = func(_ int32, point string) bool { return point == "caughtUp" && failed.Add(1) <= 2 }
	n := e.start(cfg)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	if got := total(t, cfg.Registerer, "lienstream_processors_restarts_total", "corrupt"); got > 0 {
		t.Errorf("the state was wiped %v times", got)
	}
}
