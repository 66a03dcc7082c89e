package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

func ref(number uint64, salt byte) topics.BlockRef {
	return topics.BlockRef{Number: number, Hash: common.Hash{byte(number), salt}, Timestamp: number}
}

func logOf(block topics.BlockRef) *topics.Log {
	return &topics.Log{Block: block, Address: common.Address{1}, Data: []byte{1, 2, 3}}
}

// A raw topic that breaks its promise stops the task, and the error says what is broken.
func TestBrokenInput(t *testing.T) {
	one := ref(1, 0)
	end := func(b topics.BlockRef, records uint32) *topics.BlockEnd {
		return &topics.BlockEnd{Block: b, Records: records, Head: b.Number, Commit: true}
	}
	for name, input := range map[string][]topics.Raw{
		"half a block":            {logOf(one), end(one, 2)},
		"more than the block":     {logOf(one), logOf(one), end(one, 1)},
		"another block's log":     {logOf(one), logOf(ref(1, 1)), end(one, 2)},
		"another block's barrier": {logOf(one), end(ref(1, 1), 1)},
		"a log of the past":       {end(ref(5, 0), 0), logOf(ref(4, 0))},
		"a barrier of the past":   {end(ref(5, 0), 0), end(ref(4, 0), 0)},
		"a parent not its own":    {end(one, 0), &topics.BlockEnd{Block: ref(2, 0), Parent: common.Hash{9}, Commit: true}},
		"revert within a block":   {end(one, 0), logOf(ref(2, 0)), &topics.BlockRevert{Block: one}},
		"revert of another block": {end(one, 0), &topics.BlockRevert{Block: ref(1, 1)}},
		"revert to the future":    {end(one, 0), &topics.BlockRevert{Block: one, Head: ref(2, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 1)
			n := e.start(e.config("a", vfs.NewMem()))
			e.write(input...)
			polltest.Until(t, "task stops", func() bool { return n.Stopped() != nil })
			if err := n.Stopped(); !errors.Is(err, ErrBroken) {
				t.Fatal(err)
			}
		})
	}
}

// write writes records to partition 0 in one transaction.
func (e *env) write(input ...topics.Raw) {
	c := newChain(e.t, e.kafka, e.cat, 0)
	c.begin()
	for _, r := range input {
		c.send(0, nil, r)
	}
	c.commit()
}

// A record that is nobody's is counted and passed over, within a block and outside.
func TestUnknownRecord(t *testing.T) {
	e := newEnv(t, 1)
	n := e.start(e.config("a", vfs.NewMem()))
	c := newChain(t, e.kafka, e.cat, 0)
	c.begin()
	foreign := func() {
		for _, v := range [][]byte{nil, {1, 2, 3}, {0, 0, 9, 9, 9, 1}} {
			c.tx.Produce(t.Context(), &kafka.Record{Topic: e.cat.Raw(), Key: []byte("k"), Value: v})
		}
	}
	foreign()
	one := ref(1, 0)
	c.send(0, nil, logOf(one))
	foreign()
	c.send(0, nil, &topics.BlockEnd{Block: one, Records: 1, Head: 1, Commit: true})
	c.commit()
	polltest.Until(t, "block 1", func() bool { w := n.Watermarks(); return len(w) == 1 && w[0].At.Same(one) })
	if got := total(t, n.cfg.Registerer, "lienstream_processors_unknown_records_total", ""); got != 6 {
		t.Fatalf("%v unknown records counted", got)
	}
	check(t, n.Stopped())
}

// A record of the ingester's that cannot be decoded stops the task: one of a schema to come, or one that its block
// counts.
func TestNewerRecord(t *testing.T) {
	one := ref(1, 0)
	for name, tc := range map[string]struct {
		value   []byte
		records uint32
	}{
		"of a schema to come":  {[]byte{0, 0, 0, 0, 99, 1}, 1},
		"counted by its block": {[]byte{0, 0, 9, 9, 9, 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 1)
			n := e.start(e.config("a", vfs.NewMem()))
			c := newChain(t, e.kafka, e.cat, 0)
			c.begin()
			c.send(0, nil, logOf(one))
			c.tx.Produce(t.Context(), &kafka.Record{Topic: e.cat.Raw(), Key: []byte("k"), Value: tc.value})
			c.send(0, nil, &topics.BlockEnd{Block: one, Records: tc.records, Head: 1, Commit: true})
			c.commit()
			polltest.Until(t, "task stops", func() bool { return n.Stopped() != nil })
			if err := n.Stopped(); !errors.Is(err, state.ErrNewer) {
				t.Fatal(err)
			}
		})
	}
}

// A repeated barrier says that the chain is quiet: nothing but what is known of the chain moves.
func TestHeartbeat(t *testing.T) {
	e := newEnv(t, 1)
	n := e.start(e.config("a", vfs.NewMem()))
	one := ref(1, 0)
	e.write(&topics.BlockEnd{Block: one, Head: 1, Commit: true})
	polltest.Until(t, "block 1", func() bool { return len(n.Watermarks()) == 1 && n.Watermarks()[0].At == one })
	first := n.Watermarks()[0]
	e.write(&topics.BlockEnd{Block: one, Head: 9, Commit: true})
	polltest.Until(t, "head 9", func() bool { return n.Watermarks()[0].Latest == 9 })
	now := n.Watermarks()[0]
	if now.At != one || now.ObservedAt.Before(first.ObservedAt) {
		t.Fatalf("%+v after %+v", now, first)
	}
}

// TestClockOnAQuietChain: a node that begins while no block comes learns from repeated barriers that its clock is ahead.
func TestClockOnAQuietChain(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 0)
	c.age = 2 * time.Minute
	write := func() {
		c.begin()
		c.send(0, nil, &topics.BlockEnd{Block: ref(1, 0), Head: 1, Commit: true})
		c.commit()
	}
	write()
	n := e.start(e.config("a", vfs.NewMem()))
	polltest.Until(t, "block 1", func() bool { return len(n.Watermarks()) == 1 && n.Watermarks()[0].At == ref(1, 0) })
	polltest.Until(t, "it is ready", func() bool {
		write()
		return n.Ready(time.Minute) == nil
	})
}

// What a repeated barrier says is final is told, though no block comes.
func TestQuietChainSettles(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 5)
	n := e.start(e.config("a", vfs.NewMem()))
	for len(c.blocks) < 20 || len(c.blocks[len(c.blocks)-1].logs[0]) == 0 { // after an empty block a commit is due anyway
		c.add(1)
	}
	e.caughtUp(c, n)
	head := c.head()
	c.begin()
	c.send(0, nil, &topics.BlockEnd{Block: head, Head: head.Number, Finalized: 15, Commit: true})
	c.commit()
	e.invariantFinal(c, 15)
}

// A revert of what was final stops the task with an error that names the way out, and a rebuild is one: it
// ends with the state of the canonical chain, and no event is published again.
func TestDeepReorgAndRebuild(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 5)
	cfg := e.config("a", vfs.NewMem())
	n := e.start(cfg)
	for range 20 {
		c.add(1)
	}
	c.final = 15
	c.add(1)
	e.caughtUp(c, n)
	c.reorg(10) // blocks 12 to 21
	c.add(3)
	polltest.Until(t, "both tasks stop", func() bool { return stoppedTasks(n) == 2 })
	var deep *RebuildError
	if err := n.Stopped(); !errors.As(err, &deep) || deep.Block.Number != 15 || deep.Floor != 15 {
		t.Fatal(err)
	}
	n.stop(t)

	cfg.Registerer = nil
	n = e.start(cfg) // without the rebuild it stops again: never a crash loop
	polltest.Until(t, "both tasks stop", func() bool { return stoppedTasks(n) == 2 })
	n.stop(t)

	cfg.Rebuild = true
	n = e.start(cfg)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
	n.stop(t)

	cfg.Rebuild, cfg.FS = false, vfs.NewMem() // and what was rebuilt is what a changelog restores
	n = e.start(cfg)
	e.scenario(c, 10)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
	n.stop(t)

	cfg.Rebuild, cfg.Registerer = true, nil // once more: it knows of the deep reverts by the life before
	n = e.start(cfg)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
}

// What a commit far behind the head may hold is shared by the tasks that have a turn, however many are there.
func TestCommitBytesAreShared(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 7)
	c.ahead, c.final, c.keys = 1<<20, 1<<40, 20_000
	for range 50 {
		c.add(1)
	}
	commits := func(instance string, bytes int, others int32) (n float64) {
		cfg := e.config(instance, vfs.NewMem())
		cfg.CommitBytes, cfg.Rebuild = bytes, true
		node, err := New(cfg, toy{})
		check(t, err)
		node.far.Store(others)
		r := e.run(node)
		e.caughtUp(c, r)
		e.invariantState(c, r)
		r.stop(t)
		if got := node.far.Load(); got != others {
			t.Fatalf("%d tasks are far behind after the last has ended, were %d", got, others)
		}
		families, err := node.cfg.Registerer.(*prometheus.Registry).Gather()
		check(t, err)
		for _, f := range families {
			if f.GetName() == "lienstream_processors_commit_seconds" {
				for _, m := range f.GetMetric() {
					n += float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		return n
	}
	alone, few, many := commits("a", 32<<10, 0), commits("a", 32<<10, 3*committers-1), commits("a", 32<<10, 31)
	if few < 6 || alone > few/2 || many > 2*few {
		t.Fatalf("%v commits alone, %v beside %d others, %v beside 31", alone, few, 3*committers-1, many)
	}
}

// One turn is enough for many tasks far behind: none keeps it while it waits for records.
func TestOneTurnServesAll(t *testing.T) {
	e := newEnv(t, 4)
	c := newChain(t, e.kafka, e.cat, 8)
	c.ahead, c.final = 1<<20, 1<<40
	for range 20 {
		c.add(2)
	}
	cfg := e.config("a", vfs.NewMem())
	cfg.CommitBytes = 8 << 10
	node, err := New(cfg, toy{})
	check(t, err)
	node.turns = &turns{free: 1}
	n := e.run(node)
	e.caughtUp(c, n)
	for range 20 { // and some of them get no records but barriers
		c.logs = 1
		c.add(1)
		e.caughtUp(c, n)
	}
	e.invariantState(c, n)
	e.invariantTopics(c)
	n.stop(t)
	if node.turns.free != 1 || node.overlays.Load() != 0 {
		t.Fatalf("%d turns are free, %d bytes held after all tasks ended", node.turns.free, node.overlays.Load())
	}
}

// Far behind the head a task waits for its turn to commit, and no longer than it lives.
func TestTurns(t *testing.T) {
	n := &Node{turns: &turns{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	waits := &task{n: n, r: &replica{store: emptyStore(t)}, far: true, turn: turn{of: n.turns}, applier: applier{settled: true, dirty: time.Now()}}
	if err := waits.commit(ctx); !errors.Is(err, context.Canceled) || waits.turn.has {
		t.Fatalf("%v, it has a turn: %t", err, waits.turn.has)
	}
	n.turns.free = 1
	check(t, errors.Join(waits.takeTurn(t.Context()), waits.takeTurn(t.Context())))
	if n.turns.free != 0 || waits.turn.rank != rankBegun {
		t.Fatalf("%d turns are free, it is of rank %d", n.turns.free, waits.turn.rank)
	}
}

func emptyStore(t *testing.T) *state.Store {
	t.Helper()
	s, err := state.Open(state.Options{Dir: "db", FS: vfs.NewMem()})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// A turn lasts for many commits, but not beyond the one after which others wait with a part of theirs.
func TestTurnIsPassedOn(t *testing.T) {
	n := &Node{cfg: Config{turn: 100}, turns: &turns{free: 1}}
	has := &task{n: n, r: &replica{store: emptyStore(t)}, far: true, turn: turn{of: n.turns}}
	passes := func() bool {
		t.Helper()
		check(t, has.takeTurn(t.Context()))
		has.passTurn()
		return !has.turn.has
	}
	if passes() {
		t.Error("it lasts for one commit")
	}
	n.turns.waiting = []*turn{{rank: rankNew, ready: make(chan struct{})}}
	if passes() {
		t.Error("it is passed to one that has not begun")
	}
	begun := &turn{rank: rankBegun, ready: make(chan struct{})}
	n.turns.waiting = []*turn{begun}
	if !passes() {
		t.Error("it is not passed to one that has begun")
	}
	<-begun.ready
	n.turns.free++
	check(t, has.takeTurn(t.Context()))
	has.now.Input += 100
	if !passes() {
		t.Error("it is not passed on when it has lasted")
	}
	check(t, has.takeTurn(t.Context()))
	if has.far = false; !passes() {
		t.Error("it is kept near the head")
	}
}

// Far behind the head a node comes through one partition after the other, as each has its rows in memory then. At first it does
// not know how far behind they are.
func TestTurnsLast(t *testing.T) {
	e := newEnv(t, 3)
	c := newChain(t, e.kafka, e.cat, 9)
	c.ahead, c.final, c.keys, c.logs = 1<<20, 1<<40, 20_000, 100
	for range 60 {
		c.add(1)
	}
	cfg := e.config("a", vfs.NewMem())
	cfg.CommitBytes = 32 << 10
	var commits []int32
	var mu sync.Mutex
	cfg.crash = func(p int32, point string) bool {
		mu.Lock()
		defer mu.Unlock()
		if point == "afterPebble" {
			commits = append(commits, p)
		}
		return false
	}
	node, err := New(cfg, toy{})
	check(t, err)
	node.turns = &turns{free: 1}
	n := e.run(node)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
	n.stop(t)
	switches := 0
	for i, p := range commits {
		if i > 0 && p != commits[i-1] {
			switches++
		}
	}
	if len(commits) < 30 || switches > len(commits)/3 {
		t.Fatalf("%d changes of the partition in %d commits: %v", switches, len(commits), commits)
	}
}

// A commit is large while few tasks have any, and all are small when the memory is used up.
func TestCommitsShareWhatThereIs(t *testing.T) {
	n := &Node{cfg: Config{CommitBytes: 4800}}
	n.far.Store(16)
	of := &task{n: n}
	if few := of.commitBytes(); few != 400 {
		t.Errorf("%d bytes while none is held", few)
	}
	n.overlays.Store(4800)
	if all := of.commitBytes(); all != 300 {
		t.Errorf("%d bytes while all is held", all)
	}
}

func stoppedTasks(n *runningNode) (stopped int) {
	for _, r := range n.replicas {
		if _, err := r.status(); err != nil {
			stopped++
		}
	}
	return stopped
}

// A changelog that cannot be read: wiped and restored once, then a clear stop, and a rebuild mends it.
func TestTornChangelog(t *testing.T) {
	for name, value := range map[string][]byte{
		"torn":            {changelogVersion},
		"half a commit":   seal(nil, []byte{1, 1, 'k'}, 0, []byte("row")),
		"unknown version": append([]byte{changelogVersion + 1}, make([]byte, 20)...),
		"flipped":         append([]byte{changelogVersion}, make([]byte, 20)...),
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 1)
			c := newChain(t, e.kafka, e.cat, 6)
			cfg := e.config("a", vfs.NewMem())
			n := e.start(cfg)
			e.scenario(c, 10)
			e.caughtUp(c, n)
			n.stop(t)
			c.begin()
			c.tx.Produce(t.Context(), &kafka.Record{Topic: e.cat.Changelog(topics.AppMarket), Key: []byte{1, 1, 'k'}, Value: value})
			c.commit()
			cfg.Registerer = nil
			n = e.start(cfg)
			polltest.Until(t, "task stops", func() bool { return n.Stopped() != nil })
			if err := n.Stopped(); !errors.Is(err, ErrUnusable) || !errors.Is(err, errChangelog) {
				t.Fatal(err)
			}
			if got := total(t, n.cfg.Registerer, "lienstream_processors_restarts_total", "changelog"); got != 1 {
				t.Fatalf("wiped %v times", got)
			}
			n.stop(t)
			cfg.Rebuild, cfg.Registerer = true, nil
			n = e.start(cfg)
			e.scenario(c, 5)
			e.caughtUp(c, n)
			e.invariantState(c, n)
			e.invariantTopics(c)
		})
	}
}

// Views: the last barriers by number and hash; a block of another fork, of the past or of the future has
// none, and the error says which.
func TestViews(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 4)
	n := e.start(e.config("a", vfs.NewMem()))
	var refs []topics.BlockRef
	for range ringBlocks + 10 {
		c.add(1)
		refs = append(refs, c.head())
		e.caughtUp(c, n)
	}
	want := func(at topics.BlockRef, sentinel error) {
		t.Helper()
		v, err := n.View(t.Context(), 0, &at)
		if !errors.Is(err, sentinel) || sentinel != nil && !errors.Is(err, read.ErrUnavailable) {
			t.Fatalf("block %d: %v, want %v", at.Number, err, sentinel)
		}
		if v != nil {
			v.Close()
		}
	}
	for _, r := range refs[len(refs)-ringBlocks:] {
		want(r, nil)
	}
	want(refs[5], ErrNotKept)
	want(topics.BlockRef{Number: c.head().Number, Hash: common.Hash{0xff}}, ErrNotKept)
	want(topics.BlockRef{Number: c.head().Number + 1}, ErrNotYet)
	if _, err := n.View(t.Context(), 7, nil); !errors.Is(err, ErrNotHere) {
		t.Fatal(err)
	}
}

// A new owner shows itself together with those that were taken over beside it, and then the blocks that it
// passed meanwhile too. Until then it answers for them only if they are asked for by name.
func TestShownTogether(t *testing.T) {
	h := catchingUp{behind: map[int32]bool{}}
	h.begin(0)
	h.begin(1)
	if h.end(0) || !h.end(1) || !h.end(0) {
		t.Error("partition 0 did not wait for partition 1, or not only until then")
	}

	store, err := state.Open(state.Options{Dir: "state", Tables: []*state.Table{toyTable}, FS: vfs.NewMem()})
	check(t, err)
	r := &replica{changed: new(read.Broadcast), stands: new(stands), store: store}
	ref := func(n int) topics.BlockRef {
		return topics.BlockRef{Number: uint64(n), Hash: common.Hash{byte(n)}}
	}
	want := func(n int, sentinel error) {
		t.Helper()
		at := ref(n)
		v, err := r.view(&at)
		if !errors.Is(err, sentinel) {
			t.Errorf("block %d: %v, want %v", n, err, sentinel)
		}
		if v != nil {
			v.Close()
		}
	}
	const last = tipBlocks + 4
	r.publish(read.Watermark{At: ref(1), Latest: last}, store.Snapshot())
	for n := 2; n < last; n++ {
		r.keep(barrier{at: ref(n), snap: store.Snapshot()})
		want(n, nil)
		want(n+1, ErrNotYet)
		latest, err := r.view(nil)
		check(t, err)
		if m, _ := r.watermark(); !latest.At().Same(ref(1)) || !m.At.Same(ref(1)) {
			t.Fatalf("block %d is shown, and told of as %d", latest.At().Number, m.At.Number)
		}
		latest.Close()
	}
	r.publish(read.Watermark{At: ref(last), Latest: last}, nil)
	want(2, ErrNotKept)
	for n := last - tipBlocks; n <= last; n++ {
		want(n, nil)
	}
	r.keep(barrier{at: ref(last + 1), snap: store.Snapshot()})
	check(t, r.close()) // a view that is not let go is an error
}

// An owner that was shown late, not having caught up, holds no other back any longer.
func TestLateHoldsNoOtherBack(t *testing.T) {
	e := newEnv(t, 2)
	n, err := New(e.config("a", vfs.NewMem()), toy{})
	check(t, err)
	tasks := make([]*task, 2)
	for p, r := range n.replicas {
		r.store, err = state.Open(state.Options{Dir: r.dir, Tables: toy{}.Tables(), FS: vfs.NewMem()})
		check(t, err)
		defer func() { check(t, r.close()) }()
		tasks[p] = &task{n: n, r: r, applier: applier{settled: true}}
		tasks[p].beginCatchUp()
	}
	late, other := tasks[0], tasks[1]
	late.behind = 10
	late.endCatchUp()
	other.endCatchUp()
	if late.catchUpUntil.IsZero() || other.catchUpUntil.IsZero() {
		t.Fatal("they did not wait for one another")
	}
	late.catchUpUntil = time.Now().Add(-time.Second)
	late.endCatchUp()
	other.endCatchUp()
	if !late.catchUpUntil.IsZero() || !other.catchUpUntil.IsZero() {
		t.Error("the late one, or the other for its sake, is still not shown")
	}
}

// An owner that cannot commit serves on for a lease, and no longer.
func TestLease(t *testing.T) {
	r := &replica{lease: time.Hour, changed: new(read.Broadcast), stands: new(stands)}
	r.ring = []barrier{{}}
	if _, ok := r.watermark(); !ok {
		t.Fatal("a healthy owner does not serve")
	}
	r.fail()
	if _, ok := r.watermark(); !ok {
		t.Fatal("the lease ended at once")
	}
	r.failing = time.Now().Add(-2 * time.Hour)
	r.fail() // the first failure counts
	if _, err := r.view(nil); !errors.Is(err, ErrNotHere) {
		t.Fatalf("an owner without a lease serves: %v", err)
	}
	r.recover()
	if _, ok := r.watermark(); !ok {
		t.Fatal("an owner that commits again does not serve")
	}
}

// Every node ranks standbys alike; a node that leaves moves only what it held.
func TestStandbys(t *testing.T) {
	l := newLiveness()
	for _, i := range []string{"a", "b", "c", "d"} {
		l.note(topics.Owner{Partition: 64, Instance: i}, false, time.Now())
	}
	holders := func(p int32) (who []string) {
		for i := range l.seen {
			if l.standby(i, p, 2) {
				who = append(who, i)
			}
		}
		return who
	}
	count := map[string]int{}
	for p := range int32(64) {
		l.note(topics.Owner{Partition: p, Instance: "a", Role: topics.RoleOwner}, false, time.Now())
		who := holders(p)
		if len(who) != 2 {
			t.Fatalf("partition %d: standbys %v", p, who)
		}
		for _, w := range who {
			count[w]++
		}
	}
	if count["a"] > 0 || count["b"] < 20 || count["c"] < 20 || count["d"] < 20 {
		t.Fatalf("standbys by node: %v", count)
	}
}

func FuzzChangelogValue(f *testing.F) {
	f.Add([]byte("k"), seal(nil, []byte("k"), 3, []byte("payload")))
	f.Add([]byte("k"), seal(nil, []byte("other"), 3, []byte("payload")))
	f.Add([]byte{}, []byte{changelogVersion})
	f.Add([]byte{0xff, 0xff}, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) // its checksum is right, its version is not known
	f.Fuzz(func(t *testing.T, key, value []byte) {
		generation, payload, err := unseal(key, value)
		if err != nil {
			if !errors.Is(err, errChangelog) && !errors.Is(err, state.ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		if g, p, err := unseal(key, seal(nil, key, generation, payload)); err != nil || g != generation || string(p) != string(payload) {
			t.Fatalf("%d %x became %d %x, %v", generation, payload, g, p, err)
		}
	})
}

func FuzzPosition(f *testing.F) {
	f.Add(unopened().encode())
	f.Add(position{Generation: 2, Changelog: 9, WrittenMs: rand.Int64(), Progress: progress{Input: 4, At: ref(7, 1), Rebuild: rebuild{KeepUntil: 5}}}.encode())
	f.Add(position{Progress: progress{App: 3, Writer: "ls.1.market.-1.a.k"}}.encode())
	f.Add(position{Since: 4, Progress: progress{Incarnation: 2}}.encode())
	f.Add(position{Since: 4, Read: 7, Epoch: 3}.encode())
	f.Add([]byte{positionVersionLog, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePosition(b)
		if err != nil {
			return
		}
		again, err := decodePosition(p.encode())
		if err != nil || again != p {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}
