package state

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// While compactions are deferred a commit that deletes many index entries does not have the store written again, but once is
// enough for those of many commits.
func TestCompactionsAreDeferred(t *testing.T) {
	const rows, deleted = 10_000, 300
	s := open(t, vfs.NewMem())
	defer func() { check(t, s.Close()) }()
	commits := uint64(0)
	commit := func(write func(o *Overlay)) {
		t.Helper()
		commits++
		o := s.NewOverlay()
		o.Begin(topics.BlockRef{Number: commits}, false)
		write(o)
		check(t, s.Commit(o, []byte{byte(commits)}))
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
	s.DeferCompactions(true)
	commit(func(o *Overlay) {
		for i := range rows {
			o.Put(indexed, key(i), bytes.Repeat([]byte{'p'}, 20))
		}
	})
	check(t, s.db.Flush())
	for n := range deferAt / 2 {
		commit(func(o *Overlay) {
			for i := n * deleted; i < (n+1)*deleted; i++ {
				o.Delete(indexed, key(i))
			}
		})
		check(t, s.db.Flush())
	}
	if m := s.db.Metrics(); m.Compact.Count > 0 || m.Levels[0].Sublevels < deferAt/2 {
		t.Fatalf("%d compactions while they are deferred, %d tables one above the other", m.Compact.Count, m.Levels[0].Sublevels)
	}
	s.DeferCompactions(false)
	commit(func(o *Overlay) { o.Delete(indexed, key(rows)) })
	polltest.Until(t, "what was deferred is compacted", func() bool {
		m := s.db.Metrics()
		return m.Compact.Count > 0 && m.Compact.NumInProgress == 0 && m.Levels[0].Sublevels == 0
	})
	invariantIndex(t, s)
}
