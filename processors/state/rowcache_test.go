package state

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestRowCacheIsBounded fills it many times over: what is asked for again and again stays.
func TestRowCacheIsBounded(t *testing.T) {
	const limit = 64 << 10
	c := newRowCache(limit)
	row := make([]byte, 100)
	c.put(1, "hot", []byte("row"))
	for i := range 10_000 {
		c.put(1, fmt.Sprint(i), row)
		if got, known := c.get(1, "hot"); !known || string(got) != "row" {
			t.Fatalf("after %d rows the hot one is %q, %v", i, got, known)
		}
		size := 0
		for _, generation := range []map[rowKey][]byte{c.young, c.old} {
			for k, v := range generation {
				size += len(k.key) + len(v) + rowOverheadBytes
			}
		}
		if size > limit+2*(rowOverheadBytes+len(row)+8) {
			t.Fatalf("%d bytes after %d rows, limit %d", size, i, limit)
		}
	}
	if _, known := c.get(1, "0"); known {
		t.Error("the first row is still known")
	}
	if _, known := c.get(2, "hot"); known {
		t.Error("a row of another table is known")
	}
}

// TestRowCacheForgetsWhatItCannotKnow reads through the cache after each way that rows come to disk.
func TestRowCacheForgetsWhatItCannotKnow(t *testing.T) {
	table := &Table{ID: 7, Name: "rows"}
	s, err := Open(Options{Dir: "db", FS: vfs.NewMem(), Tables: []*Table{table}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	key := []byte("key")
	is := func(want string) {
		t.Helper()
		if row, err := s.NewOverlay().Get(table, key); err != nil || string(row) != want {
			t.Errorf("row %q, %v, want %q", row, err, want)
		}
	}
	commit := func(write func(*Overlay)) {
		t.Helper()
		o := s.NewOverlay()
		write(o)
		if err := s.Commit(o, nil); err != nil {
			t.Fatal(err)
		}
	}
	is("")
	commit(func(o *Overlay) { o.Put(table, key, []byte("written")) })
	is("written")
	dropped := s.NewOverlay()
	dropped.Put(table, key, []byte("never committed"))
	is("written")
	commit(func(o *Overlay) {
		if err := o.Restore(appendRowKey(nil, table.ID, key), []byte("restored")); err != nil {
			t.Fatal(err)
		}
	})
	is("restored")
	commit(func(o *Overlay) { o.Delete(table, key) })
	is("")
	commit(func(o *Overlay) { o.Put(table, key, []byte("again")) })
	if err := s.Clear(nil); err != nil {
		t.Fatal(err)
	}
	is("")
}
