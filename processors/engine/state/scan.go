package state

import (
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Scan merges the rows on disk with the written ones.
func (o *Overlay) Scan(t *Table, prefix, after []byte, fn func(key, row []byte) bool) error {
	l := o.layer(t)
	keys := l.written(string(prefix), after)
	more := true
	emit := func(key string) {
		if now := l.rows[key].now; now != nil {
			more = fn([]byte(key), now)
		}
	}
	it, err := o.iterator(bounds([headBytes]byte{spaceRow, t.ID}, prefix, after))
	if err != nil {
		return err
	}
	err = o.rest(it, walk(it, func(key, row []byte) bool {
		for more && len(keys) > 0 && keys[0] < string(key) {
			emit(keys[0])
			keys = keys[1:]
		}
		switch {
		case !more:
		case len(keys) > 0 && keys[0] == string(key):
			emit(keys[0])
			keys = keys[1:]
		default:
			more = fn(key, row)
		}
		return more
	}))
	for ; err == nil && more && len(keys) > 0; keys = keys[1:] {
		emit(keys[0])
	}
	return err
}

// written returns the keys of written rows with a prefix and after a key, ascending. It is a copy: the callback
// of a scan may write.
func (l *layer) written(prefix string, after []byte) []string {
	if len(l.fresh) > len(l.sorted)/8 {
		l.sorted = append(l.sorted, l.fresh...)
		slices.Sort(l.sorted)
	} else {
		for _, k := range l.fresh {
			at, _ := slices.BinarySearch(l.sorted, k)
			l.sorted = slices.Insert(l.sorted, at, k)
		}
	}
	l.fresh = l.fresh[:0]
	from, _ := slices.BinarySearch(l.sorted, prefix)
	if after != nil {
		at, found := slices.BinarySearch(l.sorted, string(after))
		if found {
			at++
		}
		from = max(from, at)
	}
	to := from
	for to < len(l.sorted) && len(l.sorted[to]) >= len(prefix) && l.sorted[to][:len(prefix)] == prefix {
		to++
	}
	return slices.Clone(l.sorted[from:to])
}

// ShareIterator has one scan after the other use the same iterator, until release: a new one costs more than most scans. Nothing
// may be committed meanwhile.
func (o *Overlay) ShareIterator() (release func() error) {
	o.sharing = true
	return func() (err error) {
		if o.sharing = false; o.idle != nil {
			err = wrap("scan", o.idle.Close())
			o.idle = nil
		}
		return err
	}
}

// iterator takes an iterator within bounds; rest gives it back.
func (o *Overlay) iterator(lower, upper []byte) (*pebble.Iterator, error) {
	if it := o.idle; it != nil {
		o.idle = nil
		it.SetBounds(lower, upper)
		return it, nil
	}
	it, err := o.store.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	return it, wrap("scan", err)
}

func (o *Overlay) rest(it *pebble.Iterator, err error) error {
	if !o.sharing || o.idle != nil || err != nil {
		return ended(it, err)
	}
	o.idle = it
	return nil
}
