package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
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
	for _, reason := range []string{"corrupt", "changelog"} {
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

// Of a build that cannot read a partition no node leaves it to a standby of the same build, which has read nothing yet: they would
// leave in turns, and each take the healthy partitions with it. A disk that is rotten is one node's.
func TestOnlyAnOwnerShowsThatABuildReads(t *testing.T) {
	e := newEnv(t, 1)
	n, err := New(e.config("a", vfs.NewMem()), toy{})
	check(t, err)
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
		if err := n.unfit(); (err != nil) != tc.leaves {
			t.Errorf("%v beside a %s %s: %v", tc.stopped, tc.other.State, tc.other.Role, err)
		}
	}
}
