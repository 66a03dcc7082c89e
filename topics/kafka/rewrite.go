package kafka

import (
	"encoding/binary"

	"github.com/lienstream/lienstream/topics"
)

// rewriter replaces the schema ID of a value, in place, between our fixed IDs and those of a schema registry.
// Topics without schemas are not changed. A nil rewriter changes nothing.
type rewriter struct {
	toRegistry, fromRegistry map[uint32]uint32
	public                   map[string]bool // by topic, filled on demand by one goroutine
}

func newRewriter(ids map[uint32]uint32) *rewriter {
	if len(ids) == 0 {
		return nil
	}
	w := &rewriter{toRegistry: ids, fromRegistry: make(map[uint32]uint32, len(ids)), public: map[string]bool{}}
	for ours, theirs := range ids {
		w.fromRegistry[theirs] = ours
	}
	return w
}

func (w *rewriter) outgoing(r *Record) {
	if w != nil {
		w.exchange(r, w.toRegistry)
	}
}

func (w *rewriter) incoming(r *Record) {
	if w != nil {
		w.exchange(r, w.fromRegistry)
	}
}

func (w *rewriter) exchange(r *Record, ids map[uint32]uint32) {
	public, ok := w.public[r.Topic]
	if !ok {
		kind := topics.KindOf(r.Topic)
		public = kind == topics.KindRaw || kind == topics.KindEntity || kind == topics.KindEvent
		w.public[r.Topic] = public
	}
	if !public || len(r.Value) < topics.WireHeaderBytes {
		return
	}
	head := r.Value[1:topics.WireHeaderBytes]
	if id, ok := ids[binary.BigEndian.Uint32(head)]; ok {
		binary.BigEndian.PutUint32(head, id)
	}
}
