package state

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
)

var grouped = &Table{ID: 7, Name: "grouped", Group: 1}

// past is a snapshot, and what it must read.
type past struct {
	snap *Snapshot
	rows map[string]string
}

// check reads it, as often as anybody likes.
func (p *past) check() error {
	v := p.snap.View(topics.BlockRef{})
	defer v.Close()
	for name := range byte(6) {
		var want, got []string
		for n := byte(20); n > 0; n-- {
			key := []byte{name, n}
			row, err := v.Get(grouped, key)
			if now, ok := p.rows[string(key)]; err != nil || string(row) != now || (row != nil) != ok {
				return fmt.Errorf("row %x: %q, want %q: %w", key, row, now, err)
			} else if ok {
				want = append(want, string(key)+now)
			}
			clear(row) // it is ours
		}
		err := v.ScanBack(grouped, []byte{name}, nil, func(key, row []byte) bool {
			got = append(got, string(key)+string(row))
			return true
		})
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("group %d: %q, want %q: %w", name, got, want, err)
		}
	}
	return nil
}

// Every snapshot reads what was there when it was taken, whatever others have read and commits have changed since, of a commit
// that may be pending too.
func TestSnapshotsReadTheirOwnPast(t *testing.T) {
	s, err := Open(Options{Dir: "db", Tables: []*Table{grouped}, FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	random := rand.New(rand.NewPCG(1, 2))
	rows := map[string]string{}
	var pasts []*past
	take := func(snap *Snapshot) {
		if pasts = append(pasts, &past{snap, maps.Clone(rows)}); len(pasts) > 6 {
			pasts[0].snap.Release()
			pasts = pasts[1:]
		}
	}
	defer func() {
		for _, p := range pasts {
			p.snap.Release()
		}
	}()
	for commit := range 150 {
		o := s.NewOverlay()
		o.Begin(topics.BlockRef{Number: uint64(commit + 1)}, false)
		for range random.IntN(12) {
			key := []byte{byte(random.IntN(6)), byte(1 + random.IntN(20))}
			if random.IntN(3) == 0 {
				o.Delete(grouped, key)
				delete(rows, string(key))
			} else {
				row := fmt.Sprint(commit, random.IntN(9))
				o.Put(grouped, key, []byte(row))
				rows[string(key)] = row
			}
		}
		if random.IntN(2) == 0 {
			snap, err := s.SnapshotWith(o)
			if err != nil {
				t.Fatal(err)
			}
			take(snap)
			if err := pasts[len(pasts)-1].check(); err != nil {
				t.Fatalf("commit %d, pending: %v", commit, err)
			}
		}
		var readers sync.WaitGroup
		for _, p := range pasts {
			readers.Go(func() {
				if err := p.check(); err != nil {
					t.Error(err)
				}
			})
		}
		if err := s.Commit(o, []byte("meta")); err != nil {
			t.Fatal(err)
		}
		if random.IntN(30) == 0 {
			if err := s.Clear([]byte("meta")); err != nil {
				t.Fatal(err)
			}
			clear(rows)
		}
		readers.Wait()
		take(s.Snapshot())
		for _, p := range pasts {
			if err := p.check(); err != nil {
				t.Fatalf("commit %d: %v", commit, err)
			}
		}
	}
}

// What a block does not touch is read from disk once, and what it touches is not kept.
func TestReadsOutliveBlocks(t *testing.T) {
	s, err := Open(Options{Dir: "db", Tables: []*Table{grouped}, FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	put := func(key string) {
		t.Helper()
		o := s.NewOverlay()
		o.Begin(topics.BlockRef{Number: s.reads.now() + 1}, false)
		o.Put(grouped, []byte(key), []byte("row"))
		if err := s.Commit(o, []byte("meta")); err != nil {
			t.Fatal(err)
		}
	}
	known := func(key string) bool {
		_, ok := s.reads.get(s.reads.now(), appendRowKey(nil, grouped.ID, key))
		return ok
	}
	put("a1")
	p := &past{snap: s.Snapshot()}
	defer p.snap.Release()
	v := p.snap.View(topics.BlockRef{})
	defer v.Close()
	for _, key := range []string{"a1", "b1"} {
		if _, err := v.Get(grouped, []byte(key)); err != nil {
			t.Fatal(err)
		}
		if err := v.ScanBack(grouped, []byte(key[:1]), nil, func(_, _ []byte) bool { return false }); err != nil {
			t.Fatal(err)
		}
	}
	put("b2")
	for key, want := range map[string]bool{"a1": true, "a": true, "b1": true, "b": false} {
		if known(key) != want {
			t.Errorf("%s is known: %t", key, !want)
		}
	}
	if _, err := v.Get(grouped, []byte("c1")); err != nil || known("c1") {
		t.Error("a snapshot of the past adds what it reads")
	}
	if s.DeferCompactions(true); known("a1") {
		t.Error("rows are kept far behind the head")
	}
}

// It holds no more than it may, and keeps what is asked for again and again.
func TestReadCacheIsBounded(t *testing.T) {
	const limit = 64 << 10
	c := readCache{limit: limit}
	c.put(0, []byte("hot"), cachedRead{row: []byte("row")})
	row := make([]byte, 100)
	for i := range 10_000 {
		c.put(0, fmt.Append(nil, i), cachedRead{row: row})
		if r, ok := c.get(0, []byte("hot")); !ok || !bytes.Equal(r.row, []byte("row")) {
			t.Fatalf("after %d rows the hot one is %q, %t", i, r.row, ok)
		}
		if n := (len(c.young) + len(c.old)) * (readOverheadBytes + len(row)); n > limit {
			t.Fatalf("%d bytes after %d rows", n, i)
		}
	}
}
