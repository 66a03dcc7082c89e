package engine

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
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
