package engine

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// A standby applies a block that the owner left only if it knows all that leads to it.
func TestTrial(t *testing.T) {
	log := topics.AppendRaw(nil, logOf(ref(2, 0)))
	end := func(records uint32) []byte {
		return topics.AppendRaw(nil, &topics.BlockEnd{Block: ref(2, 0), Parent: ref(1, 0).Hash, Records: records, Head: 2, Commit: true})
	}
	const input = 10 // as far as the owner committed
	for name, tc := range map[string]struct {
		values [][]byte
		change func(*follower, *commitBarrier)
		shows  bool
	}{
		"whole":                            {values: [][]byte{log, end(1)}, shows: true},
		"the owner has just begun":         {values: [][]byte{log, end(1)}, change: func(_ *follower, c *commitBarrier) { c.due = time.Now().Add(time.Hour) }},
		"records are not kept":             {change: func(_ *follower, c *commitBarrier) { c.records = nil }},
		"records before it are not known":  {values: [][]byte{log, end(1)}, change: func(_ *follower, c *commitBarrier) { c.from++ }},
		"a commit is being read":           {values: [][]byte{log, end(1)}, change: func(f *follower, _ *commitBarrier) { f.s.seen = 1 }},
		"nothing was shown yet":            {values: [][]byte{log, end(1)}, change: func(f *follower, _ *commitBarrier) { f.shown.next = 0 }},
		"the build cannot continue it":     {values: [][]byte{log, end(1)}, change: func(f *follower, _ *commitBarrier) { f.n.since = 1 }},
		"the standby has ended":            {values: [][]byte{log, end(1)}, change: func(f *follower, _ *commitBarrier) { f.ended = true }},
		"a record of a version to come":    {values: [][]byte{log, {0, 0, 9, 9, 9, 1}, end(2)}},
		"records that break the raw topic": {values: [][]byte{log, end(7)}},
		"one before it could not be applied": {values: [][]byte{log, end(1)}, change: func(f *follower, _ *commitBarrier) {
			f.ahead = append([]commitBarrier{{from: input, next: input, touched: true}}, f.ahead...)
			f.shown.next, f.s.pos.Progress.Input = input, input-1
			f.ahead[0].from = input - 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 1)
			n, err := New(e.config("a", vfs.NewMem()), toy{})
			check(t, err)
			r := n.replicas[0]
			r.store, err = state.Open(state.Options{Dir: r.dir, Tables: toy{}.Tables(), FS: vfs.NewMem()})
			check(t, err)
			defer func() { check(t, r.close()) }()
			pos := position{Progress: progress{Input: input, At: ref(1, 0)}}
			f := &follower{n: n, r: r, s: &restorer{r: r, pos: pos, overlay: r.store.NewOverlay()}, room: make(chan struct{}, 1)}
			f.show()
			c := commitBarrier{from: input, next: 20, at: ref(2, 0), head: 2, touched: true, due: time.Now()}
			for i, v := range tc.values {
				c.records = append(c.records, &kafka.Record{Offset: input + int64(i), Value: v, Timestamp: time.Now()})
			}
			f.ahead = []commitBarrier{c}
			if tc.change != nil {
				tc.change(f, &f.ahead[0])
			}
			f.look()
			w, _ := r.watermark()
			if got := w.At.Same(ref(2, 0)); got != tc.shows {
				t.Fatalf("shows block %d", w.At.Number)
			}
			if !tc.shows {
				return
			}
			v, err := r.view(nil)
			check(t, err)
			defer v.Close()
			if row, err := v.Get(toyTable, logOf(ref(2, 0)).Address.Bytes()); err != nil || row == nil {
				t.Fatalf("row %x, %v", row, err)
			}
		})
	}
}

// What a build cannot continue it follows, and shows none of it, nor what it showed before: to it the rows are of a form that it does
// not know. What is rebuilt by a build that it can continue it shows, and refuses it no longer.
func TestStandbyShowsOnlyWhatItsBuildCanContinue(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 6)
	c.logs = 40
	n, err := New(e.config("standby", vfs.NewMem()), next{since: 1})
	check(t, err)
	check(t, n.connect())
	defer n.disconnect()
	r := n.replicas[0]
	defer func() { check(t, r.close()) }()
	var f *follower
	older, newer := e.config("older", vfs.NewMem()), e.config("newer", vfs.NewMem())
	for _, tc := range []struct {
		maker   Config
		app     App
		rebuild bool
		shows   bool
	}{
		{older, toy{}, false, false},
		{newer, next{since: 1}, true, true},
		{older, toy{}, true, false},
	} {
		tc.maker.Rebuild, tc.maker.Registerer = tc.rebuild, prometheus.NewRegistry()
		maker, err := New(tc.maker, tc.app)
		check(t, err)
		owner := e.run(maker)
		e.scenario(c, 10)
		e.caughtUp(c, owner)
		e.committed(c, owner)
		owner.stop(t)
		if f == nil {
			pos, err := n.open(t.Context(), r, nil)
			check(t, err)
			s, err := n.newRestorer(r, pos, rankStandby)
			check(t, err)
			f = &follower{n: n, r: r, s: s, room: make(chan struct{}, 1)}
			defer f.end()
		}
		r.setState(topics.StateStopped, ErrOlder) // as an owner
		last, err := n.lastLife(t.Context(), 0)
		check(t, err)
		for f.s.pos.Changelog <= last.end {
			records, err := f.s.poll(t.Context(), nil)
			check(t, err)
			for _, rec := range records {
				_, err := f.apply(t.Context(), rec, last.end)
				check(t, err)
			}
		}
		if at := f.s.pos.Progress.At; !at.Same(c.head()) {
			t.Fatalf("follows to block %d of %d", at.Number, c.head().Number)
		}
		if w, shows := r.watermark(); shows != tc.shows {
			t.Errorf("shows block %d of version %d: %v", w.At.Number, f.s.pos.Progress.App, shows)
		}
		if refuses := len(n.refuses()) > 0; refuses == tc.shows {
			t.Errorf("follows what version %d made, and refuses it: %v", f.s.pos.Progress.App, refuses)
		}
	}
}

// A standby that stopped within a commit, of which it had written a part, goes on with the rest of it and can be read, though its owner
// has nothing more to commit.
func TestStandbyWithinACommit(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 6)
	c.logs = 40
	c.add(5)
	owner := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
	e.caughtUp(c, owner)
	e.committed(c, owner)
	cfg := e.config("b", vfs.NewMem())
	n, err := New(cfg, toy{})
	check(t, err)
	check(t, n.connect())
	r := n.replicas[0]
	last, err := n.lastLife(t.Context(), 0)
	check(t, err)
	pos, err := n.open(t.Context(), r, nil)
	check(t, err)
	s, err := n.newRestorer(r, pos, rankStandby)
	check(t, err)
	check(t, s.until(t.Context(), last.end-1)) // as a commit above restoreBytes is written
	if s.seen == 0 {
		t.Fatal("it is not within a commit")
	}
	s.close()
	check(t, r.close())
	n.disconnect()
	cfg.Registerer = prometheus.NewRegistry()
	b := e.holdAll(cfg, topics.RoleStandby)
	polltest.Until(t, "the standby can be read", e.at(c, b, topics.RoleStandby))
	if got := total(t, cfg.Registerer, "lienstream_processors_restarts_total", "compacted"); got > 0 {
		t.Errorf("it began again %v times", got)
	}
}
