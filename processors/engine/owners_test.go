package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// A node that takes a partition announces it at once, not with the next announcement of every second: it may own it for less.
func TestWhoTakesAPartitionSaysSo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a broker")
	}
	emptyPools()
	defer emptyPools()
	synctest.Test(t, func(t *testing.T) {
		e := newPipedEnv(t, 1, 1)
		c := newChain(t, e.kafka, e.cat, 8)
		c.add(1)
		said, err := kafka.NewReader(e.kafka, e.cat.OwnersTopic(), 0, startOffset, kafka.ReaderOptions{})
		check(t, err)
		defer said.Close()
		n := e.start(e.config("a", vfs.NewMem()))
		var took time.Time
		polltest.Until(t, "it owns the partition", func() bool {
			for _, w := range n.Watermarks() {
				if w.Role == topics.RoleOwner {
					took = time.Now()
				}
			}
			return !took.IsZero()
		})
		for {
			records, err := said.Poll(t.Context(), nil)
			check(t, err)
			for _, rec := range records {
				o, gone, err := topics.DecodeOwner(rec.Key, rec.Value)
				check(t, err)
				if gone || o.Partition != 0 || o.Role != topics.RoleOwner || o.State != topics.StateRunning {
					continue
				}
				if late := rec.Timestamp.Sub(took); late > announceInterval/2 {
					t.Errorf("it said so after %s", late)
				}
				return
			}
		}
	})
}
