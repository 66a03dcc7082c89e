package state

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
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
		for _, generation := range []*generation{c.young, c.old} {
			for _, rows := range generation {
				for k, v := range rows {
					size += len(k) + len(v) + rowOverheadBytes
				}
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

// TestRowCacheIsResized makes room for rows and takes it back.
func TestRowCacheIsResized(t *testing.T) {
	const small, large, rows = 64 << 10, 1 << 20, 1_000
	c := newRowCache(small)
	has := func() (n int) {
		for i := range rows {
			if _, known := c.young[1][fmt.Sprint(i)]; known {
				n++
			} else if _, known := c.old[1][fmt.Sprint(i)]; known {
				n++
			}
		}
		return n
	}
	fill := func() {
		for i := range rows {
			c.put(1, fmt.Sprint(i), make([]byte, 100))
		}
	}
	if fill(); has() > rows/2 {
		t.Fatalf("%d rows in %d bytes", has(), small)
	}
	c.resize(large)
	if fill(); has() != rows {
		t.Fatalf("%d rows of %d in %d bytes", has(), rows, large)
	}
	if c.resize(small); has() > rows/2 {
		t.Fatalf("%d rows after there is room for %d bytes", has(), small)
	}
	c.put(1, "0", nil)
	if c.resize(small); has() == 0 {
		t.Fatal("rows are let go although they have room")
	}
	if c.resize(0); has() != 0 {
		t.Fatalf("%d rows without any room", has())
	}
}

// inMemory is an empty store for as long as the test.
func inMemory(t *testing.T, tables ...*Table) *Store {
	t.Helper()
	s, err := Open(Options{Dir: "db", FS: vfs.NewMem(), Tables: tables})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestRowCacheForgetsWhatItCannotKnow reads through the cache after each way that rows come to disk.
func TestRowCacheForgetsWhatItCannotKnow(t *testing.T) {
	table := &Table{ID: 7, Name: "rows"}
	s := inMemory(t, table)
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

// TestRowCacheKnowsWhatIsNotThere asks for rows that were never written: while all keys since the store was empty are known,
// the disk need not be asked, though the rows were let go.
func TestRowCacheKnowsWhatIsNotThere(t *testing.T) {
	const limit, rows = 256 << 10, 4_000
	c := newRowCache(limit)
	if _, known := c.get(1, "none"); known {
		t.Fatal("a cache of a store that may hold rows knows that there is none")
	}
	c.clear(true)
	for i := range rows {
		c.written(1, fmt.Sprint(i), []byte{1})
	}
	unknown := 0
	for i := range rows {
		if row, known := c.get(1, fmt.Sprint(i)); known && row == nil {
			t.Fatalf("row %d, which was written, is said not to be there", i)
		}
		for _, none := range []struct {
			table byte
			key   string
		}{{2, fmt.Sprint(i)}, {1, fmt.Sprint("none", i)}} {
			if row, known := c.get(none.table, none.key); row != nil {
				t.Fatalf("table %d has %q", none.table, none.key)
			} else if !known {
				unknown++
			}
		}
	}
	if unknown > 2*rows/20 {
		t.Errorf("of %d rows that are not there %d are to be looked for on disk", 2*rows, unknown)
	}
	c.resize(0)
	c.resize(limit)
	if _, known := c.get(1, "none"); !known {
		t.Fatal("keys are forgotten with the rows")
	}
	for i := 0; c.all != nil; i++ {
		if c.all.bytes() > limit/keySetShare {
			t.Fatalf("the set of keys takes %d bytes", c.all.bytes())
		}
		c.written(1, fmt.Sprint("more", i), []byte{1})
	}
	if _, known := c.get(1, "none"); known {
		t.Fatal("keys are known although there are too many to know them")
	}
}

// TestSmallRowCache reads rows that a cache too small for them has let go, also after the store was emptied.
func TestSmallRowCache(t *testing.T) {
	table := &Table{ID: 7, Name: "rows"}
	s := inMemory(t, table)
	s.rows.limit = 4 << 10
	for life := range 2 {
		for i := range 100 {
			o := s.NewOverlay()
			o.Put(table, fmt.Append(nil, i), fmt.Append(nil, life, i))
			if err := s.Commit(o, nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			if row, err := s.NewOverlay().Get(table, fmt.Append(nil, i)); err != nil || string(row) != fmt.Sprint(life, i) {
				t.Fatalf("life %d row %d: %q, %v", life, i, row, err)
			}
		}
		if err := s.Clear(nil); err != nil {
			t.Fatal(err)
		}
		if row, err := s.NewOverlay().Get(table, []byte("1")); err != nil || row != nil {
			t.Fatalf("a row after Clear: %q, %v", row, err)
		}
	}
}

// TestBytes: writing a row again costs nothing but the difference, unless a block must be able to undo it.
func TestBytes(t *testing.T) {
	table := &Table{ID: 7, Name: "rows"}
	s := inMemory(t, table)
	write := func(capture bool) int {
		o := s.NewOverlay()
		for i := range 1000 {
			o.Begin(topics.BlockRef{Number: uint64(i)}, capture)
			o.Put(table, []byte("key"), make([]byte, 100))
		}
		return o.Bytes()
	}
	if got := write(false); got > 1000 {
		t.Errorf("%d bytes for a row of 100", got)
	}
	if got := write(true); got < 999*100 {
		t.Errorf("%d bytes for a row of 100 and 999 former ones", got)
	}
}

// TestSilent: what nobody will be told of is not kept, and what can be taken back is.
func TestSilent(t *testing.T) {
	s := inMemory(t)
	for _, c := range []struct{ capture, published, final, silent bool }{
		{false, true, true, true},
		{false, true, false, false},  // the topic of final events lacks it
		{false, false, false, false}, // new
		{true, true, true, false},    // it may be taken back
	} {
		o := s.NewOverlay()
		o.Begin(topics.BlockRef{Number: 1}, c.capture)
		if c.published {
			o.Published(c.final)
		}
		o.Emit("family", []byte("key"), []byte("value"))
		if o.Silent() != c.silent || o.Empty() != c.silent {
			t.Errorf("%+v: silent %v, empty %v", c, o.Silent(), o.Empty())
		}
	}
}
