package notifier

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// dead has the dead letters, by unix milliseconds ‖ row of the outbox: an alert that was given up, with the reason.
var dead = &state.Table{ID: 8, Name: "dead"}

// Bounds of the dead letters that a partition keeps.
const (
	deadTime = 30 * 24 * time.Hour
	maxDead  = 1000
)

// deadTally is the row of tallies with their number.
var deadTally = []byte("dead")

// bury keeps an alert that was given up.
func bury(w state.Writer, at time.Time, row []byte, a *Alert) error {
	if err := putRow(w, dead, append(deadKey(at), row...), a); err != nil {
		return err
	}
	var n int
	if err := getRow(w, tallies, deadTally, &n); err != nil {
		return err
	}
	if err := putRow(w, tallies, deadTally, n+1); err != nil {
		return err
	}
	if err := forgetUndated(w); err != nil {
		return err
	}
	return forgetDead(w, at)
}

// forgetUndated removes dead letters of former builds, whose keys have no time and sort behind.
func forgetUndated(w state.Writer) error {
	var old [][]byte
	err := w.Scan(dead, nil, []byte{0, 1}, func(key, _ []byte) bool {
		old = append(old, slices.Clone(key))
		return len(old) < maxForgotten
	})
	for _, key := range old {
		w.Delete(dead, key)
	}
	return err
}

func deadKey(at time.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())) }

// forgetDead removes the oldest dead letters, as the bounds ask for.
func forgetDead(w state.Writer, at time.Time) error {
	var n int
	if err := getRow(w, tallies, deadTally, &n); err != nil {
		return err
	}
	var old [][]byte
	until := string(deadKey(at.Add(-deadTime)))
	err := w.Scan(dead, nil, nil, func(key, _ []byte) bool {
		if len(old) == maxForgotten || n-len(old) <= maxDead && string(key) >= until {
			return false
		}
		old = append(old, slices.Clone(key))
		return true
	})
	if err != nil || len(old) == 0 {
		return err
	}
	for _, key := range old {
		w.Delete(dead, key)
	}
	return putRow(w, tallies, deadTally, max(0, n-len(old)))
}
