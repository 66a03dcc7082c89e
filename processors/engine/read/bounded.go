package read

import (
	"context"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// checkEvery is after how many entries a scan checks whether its context is done.
const checkEvery = 256

// bounded wraps views so that their scans stop when the context is done: the client may have disconnected.
func bounded(ctx context.Context, views []state.View) []state.View {
	all, each, done, err := make([]state.View, len(views)), make([]boundedView, len(views)), ctx.Done(), ctx.Err
	for i, v := range views {
		each[i] = boundedView{View: v, done: done, err: err}
		all[i] = &each[i]
	}
	return all
}

type boundedView struct {
	state.View
	done <-chan struct{}
	err  func() error
	left int // entries until the next check
}

// Scan implements state.View.
func (v *boundedView) Scan(t *state.Table, prefix, after []byte, fn func(key, row []byte) bool) error {
	over, visit := v.until(fn)
	if err := v.View.Scan(t, prefix, after, visit); err != nil {
		return err
	}
	return over()
}

// ScanBack implements state.View.
func (v *boundedView) ScanBack(t *state.Table, prefix, before []byte, fn func(key, row []byte) bool) error {
	over, visit := v.until(fn)
	if err := v.View.ScanBack(t, prefix, before, visit); err != nil {
		return err
	}
	return over()
}

// ScanIndex implements state.View.
func (v *boundedView) ScanIndex(index byte, prefix, after []byte, fn func(entry, value []byte) bool) error {
	over, visit := v.until(fn)
	if err := v.View.ScanIndex(index, prefix, after, visit); err != nil {
		return err
	}
	return over()
}

// until returns a visitor that stops when the context is done. Entries of short scans are counted together, as
// a read has many of them.
func (v *boundedView) until(fn func(key, value []byte) bool) (over func() error, visit func(key, value []byte) bool) {
	var ended error
	visit = func(key, value []byte) bool {
		if v.left--; v.left < 0 {
			v.left = checkEvery
			select {
			case <-v.done:
				ended = v.err()
				return false
			default:
			}
		}
		return fn(key, value)
	}
	return func() error { return ended }, visit
}
