package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// next is toy as the next version of the program might have it: with one table more.
type next struct {
	toy
	since uint32
}

var nextTable = &state.Table{ID: 2, Name: "next"}

func (next) Tables() []*state.Table { return []*state.Table{toyTable, nextTable} }

func (a next) Version() (version, since uint32) { return 1, a.since }

func (a next) Apply(w state.Writer, rec topics.Raw) error {
	w.Put(nextTable, []byte("k"), []byte("v"))
	return a.toy.Apply(w, rec)
}

// stopsWith waits until all tasks of a node have stopped with an error, and nothing was wiped.
func (e *env) stopsWith(n *runningNode, want error) {
	e.t.Helper()
	polltest.Until(e.t, "tasks stop", func() bool { return stoppedTasks(n) == int(e.cat.Partitions) })
	if err := n.Stopped(); !errors.Is(err, want) {
		e.t.Fatal(err)
	}
	for _, reason := range []string{"corrupt", "changelog", "rebuilt"} {
		if got := total(e.t, n.cfg.Registerer, "lienstream_processors_restarts_total", reason); got > 0 {
			e.t.Fatalf("state of a newer build was wiped %v times", got)
		}
	}
}

// Two builds side by side, whose partitions are committed together: the newer one takes over from the older one while that
// runs, and carries on what it made. The older one stops where the newer one has been, as a standby and as an owner, beside it
// too, leaves all as it is, and may rebuild.
func TestRollingUpgrade(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 5)
	start := func(cfg Config, app App) *runningNode {
		cfg.Registerer = prometheus.NewRegistry()
		n, err := New(cfg, app)
		check(t, err)
		return e.run(n)
	}
	older, newer := e.config("older", vfs.NewMem()), e.config("newer", vfs.NewMem())
	n := start(older, toy{})
	e.scenario(c, 10)
	e.caughtUp(c, n)
	n.stop(t)

	refuses := start(newer, next{since: 1})
	e.stopsWith(refuses, ErrOlder)
	refuses.stop(t)

	former := start(older, toy{})
	e.together(c, former)
	n = start(newer, next{})
	polltest.Until(t, "the newer build owns a partition", func() bool {
		c.add(1)
		return len(n.Watermarks()) > 0
	})
	former.stop(t)
	e.together(c, n)
	e.invariantState(c, n)
	n.stop(t)

	standby := e.holdAll(older, topics.RoleStandby)
	n = start(newer, next{})
	for range 10 {
		c.add(1)
	}
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.stopsWith(standby, state.ErrNewer)
	standby.stop(t)

	e.together(c, n)
	back := start(older, toy{})
	polltest.Until(t, "the older build takes a partition, and stops", func() bool { return stoppedTasks(back) > 0 })
	back.stop(t)
	e.together(c, n)
	e.invariantState(c, n)
	n.stop(t)

	back = start(older, toy{})
	e.stopsWith(back, state.ErrNewer)
	back.stop(t)
	n = start(newer, next{})
	e.scenario(c, 10)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
	n.stop(t)

	older.Rebuild = true
	n = start(older, toy{})
	e.scenario(c, 10)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
}

// A build that cannot continue what nodes of an older one have made takes no partition from them: they go on.
func TestOlderBuildKeepsWhatNewerCannotContinue(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 5)
	older, newer := e.config("older", vfs.NewMem()), e.config("newer", vfs.NewMem())
	a := e.start(older)
	e.scenario(c, 10)
	e.caughtUp(c, a)
	newer.Registerer = prometheus.NewRegistry()
	n, err := New(newer, next{since: 1})
	check(t, err)
	b := e.run(n)
	polltest.Until(t, "the newer build has refused a partition", func() bool { return errors.Is(b.Stopped(), ErrOlder) })
	c.add(5)
	e.caughtUp(c, a)
	polltest.Until(t, "the older build has the partition again", func() bool {
		return !slices.ContainsFunc(a.replicas, func(r *replica) bool { return r.leaving.Load() })
	})
	c.add(5)
	e.caughtUp(c, a)
	e.invariantState(c, a)
	e.invariantTopics(c)
}

// A build that cannot read what nodes of a newer one have made takes no partition from them: they go on.
func TestNewerBuildKeepsWhatOlderCannotRead(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 6)
	older, newer := e.config("older", vfs.NewMem()), e.config("newer", vfs.NewMem())
	newer.Registerer = prometheus.NewRegistry()
	n, err := New(newer, next{})
	check(t, err)
	a := e.run(n)
	e.scenario(c, 10)
	e.caughtUp(c, a)
	b := e.start(older)
	polltest.Until(t, "the older build has refused a partition", func() bool { return errors.Is(b.Stopped(), state.ErrNewer) })
	c.add(5)
	e.caughtUp(c, a)
	polltest.Until(t, "the newer build has the partition again", func() bool {
		return !slices.ContainsFunc(a.replicas, func(r *replica) bool { return r.leaving.Load() })
	})
	c.add(5)
	e.caughtUp(c, a)
	e.invariantState(c, a)
	e.invariantTopics(c)
}

// Older nodes that all restart beside a newer one, which cannot continue what they have made, get all partitions back: nobody else
// has them meanwhile, and the newer one refuses them.
func TestOlderBuildGetsBackWhatNewerCannotContinue(t *testing.T) {
	e := newEnv(t, 4)
	c := newChain(t, e.kafka, e.cat, 5)
	older, newer := e.config("older", vfs.NewMem()), e.config("newer", vfs.NewMem())
	a := e.start(older)
	e.scenario(c, 10)
	e.caughtUp(c, a)
	a.stop(t)
	newer.Registerer = prometheus.NewRegistry()
	n, err := New(newer, next{since: 1})
	check(t, err)
	b := e.run(n)
	e.stopsWith(b, ErrOlder)
	older.Registerer = prometheus.NewRegistry()
	a = e.start(older)
	c.add(5)
	e.caughtUp(c, a)
	polltest.Until(t, "the newer build has nothing, and says nothing of what it had", func() bool { return b.Stopped() == nil })
	e.invariantState(c, a)
	e.invariantTopics(c)
}

// A node that cannot own one partition keeps the others: of two older nodes beside a newer one, the one that is assigned a partition
// of the newer node keeps the one that it got from its like, and does not try the newer node's other partitions in turn.
func TestBuildRefusesOnlyWhatItCannotRead(t *testing.T) {
	e := newEnv(t, 6)
	c := newChain(t, e.kafka, e.cat, 6)
	core, logs := observer.New(zap.InfoLevel)
	t.Cleanup(func() {
		for _, l := range logs.All() {
			if t.Failed() {
				t.Log(l.Time.Format(time.StampMilli), l.Message, l.ContextMap())
			}
		}
	})
	start := func(name string, app App) *runningNode {
		cfg := e.config(name, vfs.NewMem())
		cfg.Registerer, cfg.Logger = prometheus.NewRegistry(), zap.New(core).With(zap.String("node", name))
		n, err := New(cfg, app)
		check(t, err)
		return e.run(n)
	}
	a := start("a", toy{})
	e.scenario(c, 10)
	e.caughtUp(c, a)
	newer := start("newer", next{})
	polltest.Until(t, "the newer node has half", func() bool {
		c.add(1)
		return len(newer.Watermarks()) == 3 && len(a.Watermarks()) == 3
	})
	b := start("b", toy{})
	polltest.Until(t, "the second older node refuses one and has one", func() bool {
		c.add(1)
		return len(b.refuses()) == 1 && b.Stopped() == nil && len(b.Watermarks()) == 1
	})
	of := func(n *runningNode) (owns int) {
		for _, r := range n.replicas {
			if m, readable := r.watermark(); readable && m.Role == topics.RoleOwner && !r.leaving.Load() {
				owns++
			}
		}
		return owns
	}
	polltest.Until(t, "each owns what it can", func() bool {
		c.add(1)
		return of(newer) == 3 && of(a) == 2 && of(b) == 1
	})
	e.caughtUp(c, a, newer, b)
	e.invariantState(c, a, newer, b)
	if tried := logs.FilterMessage("task stopped").FilterField(zap.String("node", "b")).Len(); tried != 1 {
		t.Errorf("the second older node has tried %d partitions of the newer one", tried)
	}
	if n := logs.FilterMessage("left the consumer group so that other nodes take over").Len(); n > 0 {
		t.Errorf("nodes left the group %d times", n)
	}
}

// A standby whose state is from before what a newer build wrote waits while that is so, and goes on by itself where an older build
// has rebuilt the partition since, whether it runs meanwhile or starts again.
func TestStandbyAfterARollback(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarts %v", restarts), func(t *testing.T) {
			e := newEnv(t, 2)
			c := newChain(t, e.kafka, e.cat, 5)
			former, newer, older := e.config("standby", vfs.NewMem()), e.config("newer", vfs.NewMem()), e.config("older", vfs.NewMem())
			n := e.start(former)
			e.scenario(c, 10)
			e.caughtUp(c, n)
			n.stop(t)
			m, err := New(newer, next{})
			check(t, err)
			n = e.run(m)
			e.scenario(c, 10)
			e.caughtUp(c, n)

			former.Registerer, former.rebuildLook = prometheus.NewRegistry(), 10*time.Millisecond
			standby := e.holdAll(former, topics.RoleStandby)
			e.stopsWith(standby, state.ErrNewer)
			if restarts {
				standby.stop(t)
			}
			for range 20 {
				c.add(1)
				e.caughtUp(c, n)
			}
			if !restarts {
				e.stopsWith(standby, state.ErrNewer)
			}
			n.stop(t)
			older.Rebuild = true
			n = e.start(older)
			e.scenario(c, 10)
			e.caughtUp(c, n)
			if restarts {
				former.Registerer = prometheus.NewRegistry()
				standby = e.holdAll(former, topics.RoleStandby)
			}
			polltest.Until(t, "the standby is at the head", e.at(c, standby, topics.RoleStandby))
			if refused := standby.refuses(); len(refused) > 0 {
				t.Errorf("it still refuses %v", refused)
			}
			if wiped := total(t, former.Registerer, "lienstream_processors_restarts_total", "rebuilt"); wiped != float64(e.cat.Partitions) {
				t.Errorf("%v stores were wiped of %d", wiped, e.cat.Partitions)
			}
			e.invariantState(c, n, standby)
		})
	}
}

// A node that could not own partitions takes its share once they were rebuilt by its like, without being started again.
func TestRefusedUntilRebuilt(t *testing.T) {
	for name, tc := range map[string]struct {
		made, build App
		refuses     error
	}{
		"an older build what a newer one made": {next{}, toy{}, state.ErrNewer},
		"a newer build what an older one made": {toy{}, next{since: 1}, ErrOlder},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 2)
			c := newChain(t, e.kafka, e.cat, 5)
			start := func(instance string, app App, rebuilds bool) *runningNode {
				cfg := e.config(instance, vfs.NewMem())
				cfg.Rebuild, cfg.rebuildLook = rebuilds, 10*time.Millisecond
				n, err := New(cfg, app)
				check(t, err)
				return e.run(n)
			}
			n := start("former", tc.made, false)
			e.scenario(c, 10)
			e.caughtUp(c, n)
			n.stop(t)
			refuses := start("refuses", tc.build, false)
			e.stopsWith(refuses, tc.refuses)
			n = start("rebuilds", tc.build, true)
			polltest.Until(t, "each owns one", func() bool {
				c.add(1)
				return len(n.Watermarks()) == 1 && len(refuses.Watermarks()) == 1 && len(refuses.refuses()) == 0
			})
			e.scenario(c, 10)
			e.caughtUp(c, n, refuses)
			e.invariantState(c, n, refuses)
			e.invariantTopics(c)
		})
	}
}

// A position of a build to come says at least of which life of which changelog it is.
func TestPositionOfANewerBuild(t *testing.T) {
	begins := position{Generation: 300, Changelog: 9, WrittenMs: 70, Log: kafka.TopicID{1, 2}}
	p := begins
	p.Progress.Input, p.Read = 5, 8
	b := p.encode()
	b[0] = positionVersion + 1
	if got, err := decodePosition(b); !errors.Is(err, state.ErrNewer) || got != begins {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := decodePosition(b[:1]); !errors.Is(err, errChangelog) {
		t.Errorf("a torn position: %v", err)
	}
}

// What a newer build stored stays, where the changelog was made anew and rebuilt since: which life of it that is of nobody can say.
func TestStoreOfANewerBuildWithoutItsChangelog(t *testing.T) {
	cfg := brokertest.Config(brokertest.Start(t, "kfake"), "t")
	e := provision(t, cfg, 1)
	c := newChain(t, e.kafka, e.cat, 5)
	newer := e.config("newer", vfs.NewMem())
	n := e.start(newer)
	e.scenario(c, 5)
	e.caughtUp(c, n)
	e.committed(c, n)
	n.stop(t)
	e.positionToCome(newer)

	brokertest.Delete(t, cfg.Brokers, e.cat.Changelog(topics.AppMarket))
	provision(t, cfg, 1)
	other := e.config("other", vfs.NewMem())
	other.Rebuild = true
	n = e.start(other)
	c.add(1)
	e.caughtUp(c, n)
	n.stop(t)

	newer.Registerer = prometheus.NewRegistry()
	n = e.start(newer)
	e.stopsBroken(n, "the ID of")
	if wiped := total(t, newer.Registerer, "lienstream_processors_restarts_total", "rebuilt"); wiped > 0 {
		t.Error("it was wiped")
	}
}

// positionToCome has the first partition's store say its position in a version that this build does not know.
func (e *env) positionToCome(cfg Config) {
	e.t.Helper()
	cfg.Registerer = prometheus.NewRegistry()
	n, err := New(cfg, toy{})
	check(e.t, err)
	s, err := state.Open(state.Options{Dir: n.replicas[0].dir, Tables: n.tables, FS: cfg.FS})
	check(e.t, err)
	meta, err := s.Meta()
	check(e.t, err)
	meta = bytes.Clone(meta)
	meta[0] = positionVersion + 1
	check(e.t, s.Commit(s.NewOverlay(), meta))
	check(e.t, s.Close())
}

// Who restores from whatever the changelog has left does so from the last rebuild on, once that is newer than what it cannot read.
func TestRewindOverARebuild(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 5)
	m, err := New(e.config("newer", vfs.NewMem()), next{})
	check(t, err)
	n := e.run(m)
	e.scenario(c, 10)
	e.caughtUp(c, n)
	n.stop(t)
	rebuilds := e.config("older", vfs.NewMem())
	rebuilds.Rebuild = true
	n = e.start(rebuilds)
	e.scenario(c, 10)
	e.caughtUp(c, n)
	n.stop(t)

	rewinds, err := New(e.config("rewinds", vfs.NewMem()), toy{})
	check(t, err)
	rewinds.replicas[0].rewind = true
	n = e.run(rewinds)
	e.caughtUp(c, n)
	e.invariantState(c, n)
}

// What no node can read stops where it is: the other partitions, which are all well, stay with their owners.
func TestAllRefuseOne(t *testing.T) {
	e := newEnv(t, 4)
	c := newChain(t, e.kafka, e.cat, 6)
	c.logs = 40
	core, logs := observer.New(zap.InfoLevel)
	var nodes []*runningNode
	for _, name := range []string{"a", "b"} {
		cfg := e.config(name, vfs.NewMem())
		cfg.Standbys, cfg.Registerer, cfg.Logger = 1, prometheus.NewRegistry(), zap.New(core)
		nodes = append(nodes, e.start(cfg))
	}
	e.scenario(c, 10)
	e.caughtUp(c, nodes...)
	polltest.Until(t, "each has two", func() bool {
		return !slices.ContainsFunc(nodes, func(n *runningNode) bool {
			return len(slices.DeleteFunc(n.Watermarks(), func(w read.Watermark) bool { return w.Role != topics.RoleOwner })) != 2
		})
	})
	c.begin()
	c.tx.Produce(t.Context(), &kafka.Record{Topic: e.cat.Raw(), Partition: 0, Key: []byte("k"), Value: []byte{0, 0, 0, 0, 99, 1}}) // of a schema to come
	c.block(true)
	c.commit()
	polltest.Until(t, "both refuse the partition", func() bool {
		return !slices.ContainsFunc(nodes, func(n *runningNode) bool { return !slices.Equal(n.refuses(), []int32{0}) })
	})
	before := logs.FilterMessage("task restored").Len()
	for range 50 {
		c.add(1)
		polltest.Until(t, "the others are at the head", func() bool {
			at := map[int32]bool{}
			for _, n := range nodes {
				for _, w := range n.Watermarks() {
					at[w.Partition] = at[w.Partition] || w.Role == topics.RoleOwner && w.At.Same(c.head())
				}
			}
			return at[1] && at[2] && at[3]
		})
	}
	polltest.Until(t, "who has the partition in the end says that it stands", func() bool {
		return errors.Is(errors.Join(nodes[0].Stopped(), nodes[1].Stopped()), state.ErrNewer)
	})
	restored, told := logs.FilterMessage("task restored").Len()-before, logs.FilterMessage("rejoining the consumer group without partitions that this build cannot own").Len()
	if restored > 4 || told > 4 {
		t.Errorf("partitions were taken over %d times, and refused or not %d times", restored, told)
	}
}

// Of a build that cannot read a partition no node leaves it to a standby of the same build, which has read nothing yet: they would
// leave in turns, and each take the healthy partitions with it. A disk that is rotten is one node's.
func TestOnlyAnOwnerShowsThatABuildReads(t *testing.T) {
	e := newEnv(t, 1)
	cfg := e.config("a", vfs.NewMem())
	cfg.SessionTimeout = time.Nanosecond // in which the group has not heeded what the node refuses
	n, err := New(cfg, toy{})
	check(t, err)
	all := func(int32) bool { return true }
	older, rotten := fmt.Errorf("%w: a record", state.ErrNewer), fmt.Errorf("%w: %w", ErrUnusable, state.ErrCorrupt)
	for _, tc := range []struct {
		stopped error
		other   topics.Owner
		leaves  bool
	}{
		{older, topics.Owner{Role: topics.RoleStandby, State: topics.StateRunning}, false},
		{older, topics.Owner{Role: topics.RoleOwner, State: topics.StateStopped}, false},
		{older, topics.Owner{Role: topics.RoleOwner, State: topics.StateRunning}, true},
		{rotten, topics.Owner{Role: topics.RoleStandby, State: topics.StateRunning}, true},
	} {
		n.live = newLiveness()
		n.replicas[0].setState(topics.StateStopped, tc.stopped)
		tc.other.Instance = "b"
		n.live.note(tc.other, false, time.Now())
		if err := n.unfit(all); (err != nil) != tc.leaves {
			t.Errorf("%v beside a %s %s: %v", tc.stopped, tc.other.State, tc.other.Role, err)
		}
	}
}

// An older build that rebuilds a partition of a newer one begins a new generation, fences any other writer, and repeats no event,
// although compaction left no progress in the changelog that it can read.
func TestRebuildAfterANewerEnvelope(t *testing.T) {
	for name, rebuilt := range map[string]bool{"the newer build rebuilt": true, "the newer build went on": false} {
		t.Run(name, func(t *testing.T) {
			addrs, compact := brokertest.Compactable(t)
			e := provision(t, brokertest.Config(addrs, "t"), 1)
			c := newChain(t, e.kafka, e.cat, 11)
			lives := func(cfg Config) life {
				n := e.start(cfg)
				e.scenario(c, 10)
				e.caughtUp(c, n)
				e.committed(c, n)
				last, err := n.lastLife(t.Context(), 0)
				check(t, err)
				n.stop(t)
				return last
			}
			lives(e.config("former", vfs.NewMem()))
			newer := e.config("newer", vfs.NewMem())
			newer.Rebuild = rebuilt
			was := lives(newer)
			p := was.progress
			p.Records = 0
			c.begin()
			c.tx.Produce(t.Context(), &kafka.Record{
				Topic: e.cat.Changelog(topics.AppMarket), Partition: 0, Key: keyProgress,
				Value: sealAs(nil, jointVersion+1, keyProgress, was.generation, append(p.append(nil), 0, 0)),
			})
			c.commit()
			compact()
			older := e.config("older", vfs.NewMem())
			older.Rebuild = true
			if now := lives(older); now.generation <= was.generation {
				t.Errorf("the older build's rebuild is generation %d, after %d", now.generation, was.generation)
			}
			compact()
			newer.Rebuild, newer.Registerer = false, prometheus.NewRegistry()
			n := e.start(newer)
			c.add(1)
			e.caughtUp(c, n)
			e.invariantState(c, n)
			e.invariantTopics(c)
		})
	}
}
