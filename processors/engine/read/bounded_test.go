package read

import (
	"context"
	"errors"
	"testing"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// endless is a view of entries without an end.
type endless struct {
	state.View
	seen int
}

func (e *endless) Scan(_ *state.Table, _, _ []byte, fn func(key, row []byte) bool) error {
	for e.seen++; fn(nil, nil); e.seen++ {
	}
	return nil
}

func (e *endless) ScanBack(_ *state.Table, _, _ []byte, fn func(key, row []byte) bool) error {
	return e.Scan(nil, nil, nil, fn)
}

func (e *endless) ScanIndex(_ byte, prefix, after []byte, fn func(entry, value []byte) bool) error {
	return e.Scan(nil, prefix, after, fn)
}

// A scan ends when nobody waits for it any more, and says so: what it found is not all that there is.
func TestScansEndWithTheirContext(t *testing.T) {
	for name, scan := range map[string]func(v state.View, fn func(_, _ []byte) bool) error{
		"rows":  func(v state.View, fn func(_, _ []byte) bool) error { return v.Scan(nil, nil, nil, fn) },
		"back":  func(v state.View, fn func(_, _ []byte) bool) error { return v.ScanBack(nil, nil, nil, fn) },
		"index": func(v state.View, fn func(_, _ []byte) bool) error { return v.ScanIndex(0, nil, nil, fn) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		under := new(endless)
		v := bounded(ctx, []state.View{under})[0]
		err := scan(v, func(_, _ []byte) bool {
			if under.seen == 1000 {
				cancel()
			}
			return true
		})
		if !errors.Is(err, context.Canceled) || under.seen > 1000+checkEvery+1 {
			t.Errorf("%s: %v after %d entries", name, err, under.seen)
		}
		if err := scan(bounded(t.Context(), []state.View{under})[0], func(_, _ []byte) bool { return false }); err != nil {
			t.Errorf("%s that ends by itself: %v", name, err)
		}
	}
}
