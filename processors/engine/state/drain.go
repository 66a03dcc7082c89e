package state

// Drain hands over the events that Settle and Events would begin with, and forgets them: those of the first blocks, as
// far as these are final, so that no revert can take them back. `from` and `to` are as for Settle, which goes on from `to`
// then. drained is false where there are none, or others have to go first. Call it between two blocks.
func (o *Overlay) Drain(from, to uint64, final func(Event), head func(e Event, removed bool)) (drained bool, err error) {
	if o.events == 0 || len(o.reverts) > 0 || len(o.after) > 0 || o.blocks[0].capture {
		return false, nil
	}
	if err := o.settleStored(from, to, final); err != nil {
		return false, err
	}
	blocks := 0
	for _, b := range o.blocks {
		if b.capture {
			break
		}
		blocks++
		for _, e := range b.events {
			if !b.settled {
				final(e)
			}
			if !b.published {
				head(e, false)
			}
			o.bytes -= e.bytes()
			o.events -= e.bytes()
		}
		if b.events != nil {
			o.used = append(o.used, b.events[:0])
			b.events = nil
		}
	}
	o.blocks = o.blocks[min(blocks, len(o.blocks)-1):] // the last is the one that a revert is checked against
	o.drained = true
	return true, nil
}

// EventBytes is how much memory events take that are not drained.
func (o *Overlay) EventBytes() int { return o.events }

func (e *Event) bytes() int { return len(e.Key) + len(e.Value) + rowOverheadBytes }
