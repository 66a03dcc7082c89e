package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/topics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two tables: one with an index that holds a row under each of its bytes and under its length, one plain.
var (
	indexed = &Table{ID: 1, Name: "indexed", Index: func(key, row []byte, to *IndexEntries) {
		to.Put(1, row, []byte{byte(len(row))}, key)
		for _, c := range slices.Compact(slices.Sorted(slices.Values(row))) {
			to.Put(2, nil, []byte{c}, key)
		}
	}}
	plain  = &Table{ID: 2, Name: "plain"}
	tables = []*Table{indexed, plain}
)

func open(t testing.TB, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(Options{Dir: "db", Tables: tables, FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// contents is every key of a keyspace.
func contents(t testing.TB, r reader, space byte) map[string]string {
	t.Helper()
	m := map[string]string{}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
	check(t, err)
	for it.First(); it.Valid(); it.Next() {
		m[string(it.Key()[1:])] = string(it.Value())
	}
	check(t, it.Close())
	return m
}

// invariantIndex: an index holds exactly what Table.Index derives from the rows.
func invariantIndex(t testing.TB, s *Store) {
	t.Helper()
	want := map[string]string{}
	for k, row := range contents(t, s.db, spaceRow) {
		table := s.tables[k[0]]
		if table.Index == nil {
			continue
		}
		var entries IndexEntries
		table.Index([]byte(k[1:]), []byte(row), &entries)
		for _, e := range entries.all {
			want[string(entries.key(e)[1:])] = string(entries.value(e))
		}
	}
	if diff := cmp.Diff(want, contents(t, s.db, spaceIndex)); diff != "" {
		t.Fatalf("index differs from its recomputation (-want +got):\n%s", diff)
	}
}

// invariantUndo: undo is kept for blocks above the floor only, and only below the last block.
func invariantUndo(t testing.TB, s *Store, floor, last uint64) {
	t.Helper()
	for k := range contents(t, s.db, spaceUndo) {
		if n := binary.BigEndian.Uint64([]byte(k)); n <= floor || n > last {
			t.Errorf("undo of block %d is kept, floor %d, last %d", n, floor, last)
		}
	}
}

// op is a write of the toy chain.
type op struct {
	table *Table
	key   string
	row   []byte // nil: delete
	event string // emitted where not empty
}

type toyBlock struct {
	ref topics.BlockRef
	ops []op
}

func drawOps(t *rapid.T) []op {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		o := op{
			table: rapid.SampledFrom(tables).Draw(t, "table"),
			key:   rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 3, -1).Draw(t, "key"),
			event: rapid.StringOfN(rapid.RuneFrom([]rune("xyz")), 0, 2, -1).Draw(t, "event"),
		}
		if rapid.IntRange(0, 3).Draw(t, "delete") > 0 {
			o.row = rapid.SliceOfN(rapid.ByteRange('p', 's'), 0, 4).Draw(t, "row")
		}
		return o
	}), 0, 6).Draw(t, "ops")
}

func (b toyBlock) apply(o *Overlay, capture bool) {
	o.Begin(b.ref, capture)
	for i, p := range b.ops {
		if p.row == nil {
			o.Delete(p.table, []byte(p.key))
		} else {
			o.Put(p.table, []byte(p.key), bytes.Clone(p.row))
		}
		if p.event != "" {
			o.Emit("toy", fmt.Appendf(nil, "%x:%d", b.ref.Hash[:4], i), []byte(p.event))
		}
	}
}

// replay is the model: the rows after a chain of blocks.
func replay(chain []toyBlock) map[string]string {
	m := map[string]string{}
	for _, b := range chain {
		for _, p := range b.ops {
			k := string(rune(p.table.ID)) + p.key
			if p.row == nil {
				delete(m, k)
			} else {
				m[k] = string(p.row)
			}
		}
	}
	return m
}

func eventKeys(chain []toyBlock, upTo uint64) (keys []string) {
	for _, b := range chain {
		for i, p := range b.ops {
			if p.event != "" && b.ref.Number <= upTo {
				keys = append(keys, fmt.Sprintf("%x:%d", b.ref.Hash[:4], i))
			}
		}
	}
	return keys
}

// Any sequence of blocks, reverts, commits, finality and crashes equals a replay of the canonical chain:
// rows, scans, indexes, events that follow the head, events that are final, and what a changelog restores.
func TestAnySequenceEqualsReplay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := vfs.NewCrashableMem()
		s := open(t, fs)
		defer func() { check(t, s.Close()) }()
		copied := open(t, vfs.NewMem()) // restored from the entries, as from a changelog
		defer func() { check(t, copied.Close()) }()
		var (
			chain        []toyBlock
			floor, final uint64 // applied; as the chain says, ahead of what was applied in a backfill
			head         []string
			finals       []string
			salt         byte
			changelog    []entry
			emitted      topics.Scratch // where events are kept, if they are: used again whenever none is left
		)
		keeps := rapid.Bool().Draw(rt, "keeps events")
		begin := func() *Overlay {
			o := s.NewOverlay()
			if emitted.Reset(); keeps {
				o.KeepEvents(&emitted)
			}
			return o
		}
		o := begin()
		isFinal := func(e Event) { finals = append(finals, string(e.Key)) }
		atHead := func(e Event, removed bool) {
			if removed {
				if n := len(head); n == 0 || head[n-1] != string(e.Key) {
					rt.Fatalf("event %s taken back, head is %v", e.Key, head)
				}
				head = head[:len(head)-1]
			} else {
				head = append(head, string(e.Key))
			}
		}
		commit := func() {
			check(t, o.Settle(floor, final, isFinal))
			floor = max(floor, final)
			o.Events(atHead)
			r := copied.NewOverlay()
			o.Entries(func(k, v []byte) {
				changelog = append(changelog, entry{string(k), v})
				check(t, r.Restore(k, v))
			})
			check(t, copied.Commit(r, []byte("x")))
			check(t, s.Commit(o, binary.BigEndian.AppendUint64(nil, uint64(len(chain)))))
			o = begin()
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch step := rapid.IntRange(0, 9).Draw(rt, "step"); {
			case step < 5:
				salt++
				number := uint64(len(chain)) + 1
				b := toyBlock{topics.BlockRef{Number: number, Hash: common.Hash{byte(number), salt}}, drawOps(rt)}
				if len(b.ops) > 0 {
					b.apply(o, number > final)
				}
				chain = append(chain, b)
			case step < 7:
				for range rapid.IntRange(1, 6).Draw(rt, "depth") {
					if uint64(len(chain)) <= final {
						break
					}
					check(t, o.Revert(chain[len(chain)-1].ref, false))
					chain = chain[:len(chain)-1]
				}
			case step < 8:
				final = max(final, uint64(rapid.IntRange(0, len(chain)+5).Draw(rt, "final")))
			case step < 9:
				if drained, err := o.Drain(floor, final, isFinal, atHead); err != nil {
					rt.Fatal(err)
				} else if drained {
					if floor = max(floor, final); o.EventBytes() == 0 {
						emitted.Reset()
					}
				}
			default:
				commit()
			}
			for _, table := range tables { // a scan sees what a replay would, before any commit
				var got []string
				prefix := rapid.SampledFrom([]string{"", "a", "ab"}).Draw(rt, "prefix")
				var after []byte
				if rapid.Bool().Draw(rt, "from") {
					after = []byte(rapid.SampledFrom([]string{"", "a", "aa", "b"}).Draw(rt, "after"))
				}
				check(t, o.Scan(table, []byte(prefix), after, func(k, v []byte) bool {
					got = append(got, string(k)+"="+string(v))
					return true
				}))
				var want []string
				model := replay(chain)
				for _, k := range slices.Sorted(maps.Keys(model)) {
					key := k[1:]
					if k[0] == table.ID && bytes.HasPrefix([]byte(key), []byte(prefix)) && (after == nil || key > string(after)) {
						want = append(want, key+"="+model[k])
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					rt.Fatalf("scan of %s %q after %q (-want +got):\n%s", table.Name, prefix, after, diff)
				}
			}
		}
		commit()
		if diff := cmp.Diff(replay(chain), contents(t, s.db, spaceRow)); diff != "" {
			rt.Fatalf("rows differ from a replay (-want +got):\n%s", diff)
		}
		invariantIndex(t, s)
		invariantUndo(t, s, floor, uint64(len(chain)))
		if diff := cmp.Diff(eventKeys(chain, 1<<62), head, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("events at the head (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(eventKeys(chain, floor), finals, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("final events (-want +got):\n%s", diff)
		}
		for _, space := range []byte{spaceRow, spaceIndex, spaceUndo} {
			if diff := cmp.Diff(contents(t, s.db, space), contents(t, copied.db, space)); diff != "" {
				rt.Fatalf("restored keyspace %d differs (-want +got):\n%s", space, diff)
			}
		}
		loadEqualsRestore(t, rt, s, changelog)
	})
}

// A crash leaves a prefix of the commits, whole, with the meta and the indexes that belong to it.
func TestCrashLeavesAPrefixOfTheCommits(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		s := open(t, fs)
		var chain []toyBlock
		states := []map[string]string{{}} // after each commit
		var crashed *vfs.MemFS
		for n := range uint64(60) {
			b := toyBlock{ref: topics.BlockRef{Number: n + 1, Hash: common.Hash{byte(n)}}}
			for range 20 {
				b.ops = append(b.ops, op{table: tables[rng.IntN(2)], key: fmt.Sprint(rng.IntN(50)), row: bytes.Repeat([]byte{'p'}, rng.IntN(2000))})
			}
			chain = append(chain, b)
			o := s.NewOverlay()
			b.apply(o, true)
			check(t, o.Settle(0, 0, func(Event) {}))
			check(t, s.Commit(o, binary.BigEndian.AppendUint64(nil, uint64(len(chain)))))
			states = append(states, replay(chain))
			if rng.IntN(15) == 0 {
				check(t, s.db.Flush())
			}
			if rng.IntN(40) == 0 {
				break
			}
		}
		crashed = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		check(t, s.Close())
		s = open(t, crashed)
		meta, err := s.Meta()
		check(t, err)
		commits := uint64(0)
		if meta != nil {
			commits = binary.BigEndian.Uint64(meta)
		}
		if diff := cmp.Diff(states[commits], contents(t, s.db, spaceRow)); diff != "" {
			t.Fatalf("seed %d: rows are not those of commit %d (-want +got):\n%s", seed, commits, diff)
		}
		invariantIndex(t, s)
		check(t, s.Close())
	}
}

// A disk that fails to read gives an error, never a wrong row.
func TestReadErrorIsAnError(t *testing.T) {
	mem := vfs.NewMem()
	s := open(t, mem)
	o := s.NewOverlay()
	o.Begin(topics.BlockRef{Number: 1}, true)
	o.Put(indexed, []byte("k"), []byte("row"))
	check(t, s.Commit(o, []byte("m")))
	check(t, s.Close())

	failing := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && bytes.HasSuffix([]byte(op.Path), []byte(".sst")) {
			return errorfs.ErrInjected
		}
		return nil
	})
	s, err := Open(Options{Dir: "db", Tables: tables, FS: errorfs.Wrap(mem, failing)})
	if err == nil {
		defer func() { check(t, s.Close()) }()
		_, err = s.NewOverlay().Get(indexed, []byte("k"))
	}
	if !errors.Is(err, errorfs.ErrInjected) {
		t.Fatalf("a disk that cannot be read: %v", err)
	}
}

// A bit that flipped on disk is ErrCorrupt: the caller wipes and restores.
func TestFlippedBitIsCorrupt(t *testing.T) {
	mem := vfs.NewMem()
	s := open(t, mem)
	o := s.NewOverlay()
	for i := range 1000 {
		o.Put(plain, fmt.Append(nil, i), bytes.Repeat([]byte("row"), 20))
	}
	check(t, s.Commit(o, []byte("m")))
	check(t, s.Close())
	names, err := mem.List("db")
	check(t, err)
	for _, n := range names {
		if len(n) > 4 && n[len(n)-4:] == ".sst" {
			f, err := mem.OpenReadWrite(mem.PathJoin("db", n), vfs.WriteCategoryUnspecified)
			check(t, err)
			_, err = f.WriteAt([]byte{0xff, 0xff, 0xff}, 100)
			check(t, err)
			check(t, f.Close())
		}
	}
	s, err = Open(Options{Dir: "db", Tables: tables, FS: mem})
	if err == nil {
		defer func() { check(t, s.Close()) }()
		for i := 0; err == nil && i < 1000; i++ {
			_, err = s.NewOverlay().Get(plain, fmt.Append(nil, i))
		}
	}
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("flipped bit: %v", err)
	}
}

// A view does not move when the store does.
func TestViewStandsStill(t *testing.T) {
	s := open(t, vfs.NewMem())
	put := func(row string) {
		o := s.NewOverlay()
		o.Put(indexed, []byte("k"), []byte(row))
		check(t, s.Commit(o, nil))
	}
	put("old")
	snap := s.Snapshot()
	v := snap.View(topics.BlockRef{Number: 7})
	snap.Release() // the view holds it
	put("new")
	if row, err := v.Get(indexed, []byte("k")); err != nil || string(row) != "old" {
		t.Fatalf("view reads %q, %v", row, err)
	}
	var entries int
	check(t, v.ScanIndex(1, []byte{3}, nil, func(_, value []byte) bool { entries++; return string(value) == "old" }))
	if entries != 1 || v.At().Number != 7 {
		t.Fatalf("%d index entries at block %d", entries, v.At().Number)
	}
	v.Close()
	v.Close() // twice is once
	check(t, s.Close())
}

// However many stores share a cache, it keeps the blocks that they read: what they reserve for memtables is on top.
func TestCacheHoldsBlocks(t *testing.T) {
	const stores = 16
	m := DefaultMemory()
	m.Blocks = 1 << 20
	cache := NewCache(m, stores)
	defer cache.Close()
	for range stores {
		s, err := Open(Options{Dir: "db", FS: vfs.NewMem(), Cache: cache, Tables: tables})
		check(t, err)
		defer func() { check(t, s.Close()) }()
		row := make([]byte, 64<<10)
		for n := range 3 * m.MemTable / len(row) { // so many that memtables are flushed, and used again
			o := s.NewOverlay()
			o.Put(plain, binary.BigEndian.AppendUint32(nil, uint32(n)), row)
			check(t, s.Commit(o, nil))
		}
		check(t, s.db.Flush())
		for range 2 {
			_, err := get(s.db, appendRowKey(nil, plain.ID, binary.BigEndian.AppendUint32(nil, 0)))
			check(t, err)
		}
	}
	if m := cache.blocks.Metrics(); m.Count == 0 || m.Hits < stores {
		t.Errorf("%d blocks of %d bytes are kept, %d hits and %d misses", m.Count, m.Size, m.Hits, m.Misses)
	}
}

// One scan after the other, and one within the other, each sees its own range.
func TestScansOfAView(t *testing.T) {
	s := open(t, vfs.NewMem())
	o := s.NewOverlay()
	for _, key := range []string{"a1", "a2", "b1", "b2"} {
		o.Put(plain, []byte(key), []byte(key))
	}
	check(t, s.Commit(o, nil))
	snap := s.Snapshot()
	v := snap.View(topics.BlockRef{})
	snap.Release()
	var got []string
	for _, prefix := range []string{"b", "a", ""} {
		check(t, v.Scan(plain, []byte(prefix), nil, func(key, _ []byte) bool {
			got = append(got, string(key))
			if prefix == "a" {
				check(t, v.Scan(plain, []byte("b"), []byte("b1"), func(key, _ []byte) bool {
					got = append(got, "in it "+string(key))
					return true
				}))
			}
			return prefix != ""
		}))
	}
	if want := []string{"b1", "b2", "a1", "in it b2", "a2", "in it b2", "a1"}; !slices.Equal(got, want) {
		t.Errorf("scans saw %q, want %q", got, want)
	}
	v.Close()
	check(t, s.Close())
}

// A view with an overlay is what its commit comes to: before it, after later ones, and read by several at
// once; one whose commit never comes stands too.
func TestViewAheadOfItsCommit(t *testing.T) {
	s := open(t, vfs.NewMem())
	rng := rand.New(rand.NewPCG(1, 2))
	type kept struct {
		view          View
		rows, indexes map[string]string
	}
	var views []kept
	for n := range uint64(40) {
		b := toyBlock{ref: topics.BlockRef{Number: n + 1}}
		for range 10 {
			o := op{table: tables[rng.IntN(2)], key: fmt.Sprint(rng.IntN(30))}
			if rng.IntN(4) > 0 {
				o.row = bytes.Repeat([]byte{'p' + byte(rng.IntN(4))}, rng.IntN(1000))
			}
			b.ops = append(b.ops, o)
		}
		o := s.NewOverlay()
		b.apply(o, true)
		check(t, o.Settle(0, 0, func(Event) {}))
		snap, err := s.SnapshotWith(o)
		check(t, err)
		view := snap.View(b.ref)
		snap.Release()
		if n%5 == 4 { // never committed
			was := contents(t, s.db, spaceRow)
			rows := contents(t, snap.from, spaceRow)
			if maps.Equal(was, rows) {
				t.Fatal("the overlay does not show")
			}
			views = append(views, kept{view, rows, contents(t, snap.from, spaceIndex)})
			continue
		}
		check(t, s.Commit(o, nil))
		if n%7 == 0 {
			check(t, s.db.Flush())
			check(t, s.db.Compact(t.Context(), []byte{0}, []byte{255}, false))
		}
		views = append(views, kept{view, contents(t, s.db, spaceRow), contents(t, s.db, spaceIndex)})
	}
	var readers sync.WaitGroup
	for _, k := range views {
		for range 2 {
			readers.Go(func() {
				rows, indexes := map[string]string{}, map[string]string{}
				for _, table := range tables {
					err := k.view.Scan(table, nil, nil, func(key, row []byte) bool {
						got, err := k.view.Get(table, key)
						if err != nil || !bytes.Equal(got, row) {
							t.Errorf("block %d: get %q, scanned %q, %v", k.view.At().Number, got, row, err)
						}
						rows[string(append([]byte{table.ID}, key...))] = string(row)
						return true
					})
					if err != nil {
						t.Error(err)
					}
				}
				for index := byte(1); index <= 2; index++ {
					err := k.view.ScanIndex(index, nil, nil, func(entry, value []byte) bool {
						indexes[string(append([]byte{index}, entry...))] = string(value)
						return true
					})
					if err != nil {
						t.Error(err)
					}
				}
				if row, err := k.view.Get(plain, []byte("none")); row != nil || err != nil {
					t.Errorf("a row that is not there: %q, %v", row, err)
				}
				if !maps.Equal(rows, k.rows) || !maps.Equal(indexes, k.indexes) {
					t.Errorf("block %d: the view is not what was committed", k.view.At().Number)
				}
			})
		}
	}
	readers.Wait()
	for _, k := range views {
		k.view.Close()
	}
	check(t, s.Close())
}

func FuzzUndo(f *testing.F) {
	u := undo{hash: common.Hash{1}, rows: []former{{1, "k", nil}, {2, "", []byte("row")}}, events: []Event{{"toy", []byte("k"), []byte("v")}}}
	for _, p := range u.parts() {
		f.Add(p)
	}
	f.Add([]byte{})
	f.Add([]byte{undoVersion + 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var u undo
		if err := u.decode(b); err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Fatalf("decode: %v", err)
			}
			return
		}
		var again undo
		for _, p := range u.parts() {
			check(t, again.decode(p))
		}
		if len(again.rows) != len(u.rows) || len(again.events) != len(u.events) {
			t.Fatalf("%+v became %+v", u, again)
		}
	})
}

// An undo too large for one record is split, and is whole again when read.
func TestUndoInParts(t *testing.T) {
	s := open(t, vfs.NewMem())
	defer func() { check(t, s.Close()) }()
	ref := topics.BlockRef{Number: 1, Hash: common.Hash{1}}
	fill := func(capture bool, c byte) {
		o := s.NewOverlay()
		if capture {
			o.Begin(ref, true)
		}
		for i := range 3000 {
			o.Put(plain, fmt.Append(nil, i), bytes.Repeat([]byte{c}, 1000))
		}
		check(t, o.Settle(0, 0, func(Event) {}))
		check(t, s.Commit(o, nil))
	}
	fill(false, 'a')
	want := contents(t, s.db, spaceRow)
	fill(true, 'b')
	o := s.NewOverlay()
	check(t, o.Revert(ref, false))
	if len(o.undoIDs) < 2 {
		t.Fatalf("undo in %d parts", len(o.undoIDs))
	}
	check(t, s.Commit(o, nil))
	if diff := cmp.Diff(want, contents(t, s.db, spaceRow)); diff != "" {
		t.Fatal("rows after the revert differ")
	}
	invariantUndo(t, s, 1, 1)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What blocks after another one changed is what they saved, each row once; after a revert it is all that was written.
func TestChanged(t *testing.T) {
	s := open(t, vfs.NewMem())
	defer func() { check(t, s.Close()) }()
	changed := func(o *Overlay, after int) string {
		var keys []string
		o.Changed(after, func(r Row) { keys = append(keys, string(r.Key)+"="+string(r.Value)) })
		slices.Sort(keys)
		return strings.Join(keys, " ")
	}
	o := s.NewOverlay()
	write := func(number uint64, capture bool, key, value string) {
		o.Begin(topics.BlockRef{Number: number, Hash: common.Hash{byte(number)}}, capture)
		o.Put(plain, []byte(key), []byte(value))
		if value == "" {
			o.Delete(plain, []byte(key))
		}
	}
	for _, step := range []struct {
		do   func()
		want []string // after -1, 0, 1, …
	}{
		{func() {}, []string{"", ""}},
		{func() { write(1, true, "a", "1") }, []string{"a=1", "a=1", ""}},
		{func() { write(2, true, "b", "2") }, []string{"a=1 b=2", "a=1 b=2", "b=2", ""}},
		{func() { write(3, true, "a", "") }, []string{"a= b=2", "a= b=2", "a= b=2", "a=", ""}},
		{func() {
			if err := o.Revert(topics.BlockRef{Number: 3, Hash: common.Hash{3}}, false); err != nil {
				t.Fatal(err)
			}
		}, []string{"a=1 b=2", "a=1 b=2", "a=1 b=2", "a=1 b=2", "a=1 b=2"}},
		{func() { o = s.NewOverlay(); write(1, true, "a", "1"); write(2, false, "c", "3") }, []string{"a=1 c=3", "a=1 c=3", "a=1 c=3", ""}},
	} {
		step.do()
		for i, want := range step.want {
			if got := changed(o, i-1); got != want {
				t.Errorf("after %d blocks of %d: %q, want %q", i-1, o.Applied(), got, want)
			}
		}
	}
}
