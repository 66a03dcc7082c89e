package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/topics"
)

// entry is one of a changelog; a nil value deletes.
type entry struct {
	key   string
	value []byte
}

// compact drops entries that later ones take the place of, as a broker does, from some of what is there.
func compact(rt *rapid.T, changelog []entry) (kept []entry) {
	clean := rapid.IntRange(0, len(changelog)).Draw(rt, "cleaned")
	last := map[string]int{}
	for i, e := range changelog {
		last[e.key] = i
	}
	for i, e := range changelog {
		if i >= clean || last[e.key] == i {
			kept = append(kept, e)
		}
	}
	return kept
}

// loadEqualsRestore: what is loaded from a changelog, compacted or not, in memory or over many runs, is the store that
// wrote it, key for key, and goes on as it does.
func loadEqualsRestore(t testing.TB, rt *rapid.T, s *Store, changelog []entry) {
	loaded := open(t, vfs.NewMem())
	defer func() { check(t, loaded.Close()) }()
	limit := rapid.SampledFrom([]int{1, 100, 1 << 20})
	l, err := loaded.load(limit.Draw(rt, "limit"), limit.Draw(rt, "indexLimit"))
	check(t, err)
	if rapid.Bool().Draw(rt, "former") { // of a generation that has ended
		check(t, l.Restore([]byte{spaceRow, indexed.ID, 'z'}, []byte("of a former life")))
		check(t, l.Clear())
	}
	for _, e := range compact(rt, changelog) {
		check(t, l.Restore([]byte(e.key), e.value))
	}
	check(t, l.Commit(t.Context(), []byte("meta")))
	check(t, l.Close())
	for _, space := range []byte{spaceRow, spaceIndex, spaceUndo} {
		if diff := cmp.Diff(contents(t, s.db, space), contents(t, loaded.db, space)); diff != "" {
			rt.Fatalf("loaded keyspace %d differs (-want +got):\n%s", space, diff)
		}
	}
	if meta, err := loaded.Meta(); err != nil || string(meta) != "meta" {
		rt.Fatalf("loaded meta is %q, %v", meta, err)
	}
	for _, store := range []*Store{s, loaded} {
		o := store.NewOverlay()
		toyBlock{topics.BlockRef{Number: 1 << 40}, []op{{table: indexed, key: "a", row: []byte("more")}, {table: indexed, key: "b"}}}.apply(o, false)
		check(t, store.Commit(o, nil))
		invariantIndex(t, store)
	}
}

// So many entries that runs are merged before the end.
func TestLoadMergesRuns(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	defer func() { check(t, s.Close()) }()
	l, err := s.load(2000, 2000)
	check(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	want, most := map[string]string{}, 0
	for i := range 20_000 {
		key, row := fmt.Sprint(rng.IntN(3000)), fmt.Appendf(nil, "%d", i)
		if rng.IntN(5) == 0 {
			row = nil
			delete(want, string(rune(indexed.ID))+key)
		} else {
			want[string(rune(indexed.ID))+key] = string(row)
		}
		check(t, l.Restore(appendRowKey(nil, indexed.ID, key), row))
		most = max(most, len(l.entries.runs))
	}
	if most < maxRuns-1 || l.entries.made <= maxRuns {
		t.Fatalf("%d runs at a time, %d ever", most, l.entries.made)
	}
	check(t, l.Commit(t.Context(), []byte("m")))
	check(t, l.Close())
	if diff := cmp.Diff(want, contents(t, s.db, spaceRow)); diff != "" {
		t.Fatalf("loaded rows (-want +got):\n%s", diff)
	}
	invariantIndex(t, s)
	if left, err := fs.List("db" + loading); err == nil {
		t.Errorf("files are left: %v", left)
	}
}

// A load sorts in the memory of one that has ended, and the last leaves none.
func TestLoadsUseMemoryAgain(t *testing.T) {
	c := NewCache(DefaultMemory(), 2)
	defer c.Close()
	var stores []*Store
	var loads []*Load
	for i := range 3 {
		s, err := Open(Options{Dir: fmt.Sprint(i), Tables: tables, Cache: c, FS: vfs.NewMem()})
		check(t, err)
		defer func() { check(t, s.Close()) }()
		l, err := s.Load()
		check(t, err)
		stores, loads = append(stores, s), append(loads, l)
	}
	for i, l := range loads {
		want := map[string]string{}
		for n := range 500 {
			key, row := fmt.Sprint(n%300), fmt.Sprint(i, n)
			check(t, l.Restore(appendRowKey(nil, indexed.ID, key), []byte(row)))
			want[string(rune(indexed.ID))+key] = row
		}
		if left := len(c.loads.free); left != min(i, 1) { // that of the indexes
			t.Fatalf("load %d leaves %d of the memory that there is", i, left)
		}
		check(t, l.Commit(t.Context(), []byte("m")))
		check(t, l.Close())
		if diff := cmp.Diff(want, contents(t, stores[i].db, spaceRow)); diff != "" {
			t.Fatalf("rows of load %d (-want +got):\n%s", i, diff)
		}
		invariantIndex(t, stores[i])
	}
	if c.loads.free != nil || c.loads.open > 0 {
		t.Fatalf("%d of memory are left, for %d sorters", len(c.loads.free), c.loads.open)
	}
}

// A crash leaves nothing of a load, or all of it.
func TestCrashLeavesALoadOrNone(t *testing.T) {
	var whole, none int
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		s := open(t, fs)
		root, err := fs.OpenDir("/")
		check(t, err)
		check(t, errors.Join(root.Sync(), root.Close()))
		l, err := s.load(5000, 5000)
		check(t, err)
		for i := range 1000 {
			check(t, l.Restore(appendRowKey(nil, indexed.ID, fmt.Sprint(i)), []byte("row")))
		}
		crash := func() *vfs.MemFS {
			return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		}
		crashed := crash()
		if seed%2 == 0 {
			check(t, l.Commit(t.Context(), []byte("m")))
			crashed = crash()
		}
		check(t, s.Close())
		s = open(t, crashed)
		meta, err := s.Meta()
		check(t, err)
		rows := len(contents(t, s.db, spaceRow))
		switch {
		case meta == nil && rows == 0:
			none++
		case string(meta) == "m" && rows == 1000:
			whole++
		default:
			t.Fatalf("seed %d: meta %q, %d rows", seed, meta, rows)
		}
		invariantIndex(t, s)
		if _, known := s.rows.get(indexed.ID, "1"); known && rows > 0 {
			t.Fatal("a row that is on disk counts as none")
		}
		if left, err := crashed.List("db" + loading); err == nil {
			t.Errorf("files are left: %v", left)
		}
		check(t, s.Close())
	}
	if whole == 0 || none == 0 {
		t.Errorf("%d whole, %d without anything", whole, none)
	}
}

// A run whose bytes changed on disk is noticed, and the store stays empty.
func TestFlippedRunIsNotLoaded(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	defer func() { check(t, s.Close()) }()
	l, err := s.load(1000, 1000)
	check(t, err)
	for i := range 100 {
		check(t, l.Restore(appendRowKey(nil, plain.ID, fmt.Sprint(i)), bytes.Repeat([]byte("row"), 20)))
	}
	f, err := fs.OpenReadWrite(l.entries.runs[0], vfs.WriteCategoryUnspecified)
	check(t, err)
	_, err = f.WriteAt([]byte{'R'}, 40)
	check(t, err)
	check(t, f.Close())
	if err := l.Commit(t.Context(), []byte("m")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a run that was changed: %v", err)
	}
	check(t, l.Close())
	if meta, err := s.Meta(); err != nil || meta != nil {
		t.Errorf("meta is %q, %v", meta, err)
	}
}

// What a load costs, beside a restore of every version. 200,000 rows of four versions each, of 150 bytes, with two
// index entries that change.
func BenchmarkRestore(b *testing.B) {
	const rows, versions = 200_000, 4
	table := &Table{ID: 1, Name: "rows", Index: func(key, row []byte, to *IndexEntries) {
		to.Put(1, nil, row[:8], key)
		to.Put(2, nil, row[8:16], key)
	}}
	rng := rand.New(rand.NewPCG(1, 2))
	changelog := make([]entry, rows*versions)
	for i := range changelog {
		key := make([]byte, 20)
		n := i % rows // each version comes long after the one before
		if i >= rows {
			n = rng.IntN(rows)
		}
		binary.BigEndian.PutUint64(key, uint64(n)*0x9E3779B97F4A7C15)
		row := make([]byte, 150)
		for at := 0; at < 64; at += 8 {
			binary.LittleEndian.PutUint64(row[at:], rng.Uint64())
		}
		changelog[i] = entry{string(appendRowKey(nil, table.ID, key)), row}
	}
	fill := func(b *testing.B, restore func(s *Store)) {
		for b.Loop() {
			b.StopTimer()
			s, err := Open(Options{Dir: b.TempDir() + "/db", Tables: []*Table{table}})
			check(b, err)
			b.StartTimer()
			restore(s)
			b.StopTimer()
			check(b, s.Close())
			b.StartTimer()
		}
		b.ReportMetric(float64(len(changelog)*b.N)/b.Elapsed().Seconds(), "entries/s")
	}
	b.Run("every-version", func(b *testing.B) {
		fill(b, func(s *Store) {
			o := s.NewOverlay()
			for _, e := range changelog {
				check(b, o.Restore([]byte(e.key), e.value))
				if o.Bytes() >= 1<<20 {
					check(b, s.Commit(o, []byte("m")))
					o = s.NewOverlay()
				}
			}
			check(b, s.Commit(o, []byte("m")))
		})
	})
	b.Run("last-version", func(b *testing.B) {
		fill(b, func(s *Store) {
			l, err := s.Load()
			check(b, err)
			for _, e := range changelog {
				check(b, l.Restore([]byte(e.key), e.value))
			}
			check(b, l.Commit(b.Context(), []byte("m")))
			check(b, l.Close())
		})
	})
}
