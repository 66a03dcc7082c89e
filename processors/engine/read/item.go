package read

import (
	"bytes"
	"slices"
)

// Merge appends to out the first `limit` items of two lists that ascend by key.
func Merge[T any](out, a, b []T, limit int, key func(*T) []byte) []T {
	for len(out) < limit && len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && bytes.Compare(key(&a[0]), key(&b[0])) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// PageOf decodes the first `limit` items. If there is one more, Next is the key of the last of them. An item without a row
// ends the page before: there a scan gave up, and Next is its key.
func PageOf[T any](items []Item, limit int, decode func(Item) (T, error)) (p Page[T], err error) {
	if len(items) > limit {
		items = items[:limit]
		p.Next = items[limit-1].Key
	}
	if end := slices.IndexFunc(items, func(it Item) bool { return len(it.Row) == 0 }); end >= 0 {
		p.Next = items[end].Key
		items = items[:end]
	}
	p.Items = make([]T, len(items))
	for i, it := range items {
		if p.Items[i], err = decode(it); err != nil {
			return Page[T]{}, err
		}
	}
	return p, nil
}

// oneBlock reports whether all responses are as of the same block, and which block is the earliest.
func oneBlock(answers []*Response) (earliest Moment, same bool) {
	earliest, same = answers[0].Moment, true
	for _, a := range answers[1:] {
		same = same && a.Block.Hash == earliest.Block.Hash
		if a.Before(earliest) {
			earliest = a.Moment
		}
	}
	return earliest, same
}

// joined merges the responses of several nodes.
func joined(answers []*Response, limit int) *Response {
	all := answers[0]
	for _, a := range answers[1:] {
		all = &Response{
			Moment:     all.Moment,
			Watermarks: slices.Concat(all.Watermarks, a.Watermarks),
			Items:      Merge(nil, all.Items, a.Items, limit, func(it *Item) []byte { return it.Key }),
		}
	}
	return all
}
