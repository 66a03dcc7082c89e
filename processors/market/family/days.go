package family

import (
	"encoding/binary"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// A table of days keeps what rows of another one were: the first change of a day writes, under the day, the row as it
// was before. So what a row was at the end of a day is in the first row of a later day, or, if there is none, what it
// is now: the past is read backwards from now, and a day costs a row one write, however often it changes.

// DaySeconds is the length of a day, in seconds. Days are those of UTC, by the time of blocks.
const DaySeconds = 24 * 60 * 60

const dayBytes = 4

// DayKey is a key that begins with a number of days since 1970.
func DayKey(day uint64, key ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, dayBytes+len(key)), uint32(day)), key...)
}

// SplitDay splits a key into the day that it begins with and the rest. False: it is too short.
func SplitDay(key []byte) (day uint64, rest []byte, ok bool) {
	if len(key) < dayBytes {
		return 0, nil, false
	}
	return uint64(binary.BigEndian.Uint32(key)), key[dayBytes:], true
}

// AfterDay is a position in a table whose keys go on after their day: before all rows of later days, and after all
// others.
func AfterDay(day uint64) []byte { return DayKey(day + 1) }

// Today is the day of the block that is being applied.
func Today(w state.Writer) uint64 { return w.Block().Timestamp / DaySeconds }

// KeepFormer puts a row as it was before a day's first change. Under the key is what that change has put.
func KeepFormer(w state.Writer, t *state.Table, key []byte, former Row) error {
	kept, err := w.Get(t, key)
	if err != nil || kept != nil {
		return err
	}
	return Put(w, t, key, former)
}
