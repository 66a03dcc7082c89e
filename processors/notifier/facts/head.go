package facts

import (
	"encoding/binary"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
)

// chainTime is a tick with the estimated time of the chain's head, from its last blocks.
func chainTime(partition int32, b *topics.BlockEnd, number, time uint64, written time.Time) notifier.Tick {
	t := notifier.Tick{From: partition, Applied: b.Block.Timestamp, Head: b.Block.Timestamp, Written: written.UnixMilli()}
	if ahead := max(b.Head, b.Block.Number) - b.Block.Number; number != 0 && b.Block.Number > number && b.Block.Timestamp > time {
		t.Head += ahead * (b.Block.Timestamp - time) / (b.Block.Number - number)
	}
	return t
}

// pace is the row of clock with the number and time of two confirmed blocks, which show how fast the chain makes
// blocks. The first is paceSeconds to twice that old, if the chain is.
var pace = []byte("pace")

const paceSeconds = 600

// believed is the upper bound of the head's time: by the chain's pace so far, or if it became slower, the time when the
// barrier was written. The time of a real chain is not ahead of that.
func believed(tick *notifier.Tick, paced uint64) uint64 {
	written := uint64(max(tick.Written, 0)) / 1000 //nolint:gosec // it is not negative
	return min(tick.Head, max(paced, written))
}

// bound limits a tick's head by confirmed blocks. The time of an unconfirmed block may be made up by one node, and
// alerts would claim to be late. Since the confirmed block there were as many blocks as barriers report, at about the
// same pace.
func bound(w state.Writer, b *topics.BlockEnd, tick *notifier.Tick) error {
	row, err := w.Get(clock, pace)
	if err != nil {
		return err
	}
	told := timeRow(tick.Block, tick.Time)
	if len(row) != 2*len(told) {
		w.Put(clock, pace, append(told, told...))
		return nil
	}
	first, last := row[:len(told)], row[len(told):]
	number, time := binary.BigEndian.Uint64(first), binary.BigEndian.Uint64(first[8:])
	if tick.Block > number && tick.Time > time {
		ahead := max(b.Head, b.Block.Number, tick.Block) - tick.Block
		paced := tick.Time + ahead*(tick.Time-time)/(tick.Block-number)
		tick.Head = believed(tick, paced)
	}
	switch lastTime := binary.BigEndian.Uint64(last[8:]); {
	case tick.Time >= lastTime+paceSeconds:
		first = last
	case tick.Time >= lastTime: // if the time went back, the last tick is void
		return nil
	}
	w.Put(clock, pace, append(append([]byte{}, first...), told...))
	return nil
}
