package state

import (
	"testing"

	"github.com/lienstream/lienstream/topics"
)

// What events cost that are drained, far behind the head: 16 a block of 150 bytes, drained every 60 blocks.
func BenchmarkDrain(b *testing.B) {
	s, err := Open(Options{Dir: b.TempDir() + "/db", Tables: tables})
	check(b, err)
	defer func() { check(b, s.Close()) }()
	key, value := make([]byte, 20), make([]byte, 130)
	for name, scratch := range map[string]*topics.Scratch{"slab": nil, "scratch": {}} {
		b.Run(name, func(b *testing.B) {
			o := s.NewOverlay()
			if scratch != nil {
				o.KeepEvents(scratch)
			}
			b.ReportAllocs()
			for n := uint64(1); b.Loop(); n++ {
				o.Begin(topics.BlockRef{Number: n}, false)
				for range 16 {
					o.Emit("events", key, value)
				}
				if n%60 > 0 {
					continue
				}
				if drained, err := o.Drain(0, n, func(Event) {}, func(Event, bool) {}); err != nil || !drained || o.EventBytes() > 0 {
					b.Fatal(drained, err)
				}
				if scratch != nil {
					scratch.Reset()
				}
			}
		})
	}
}
