package query

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
)

// item is a row of an answer, undecoded: what is merged away is never decoded, and one path serves the
// local and the remote end.
type item struct {
	key  []byte // the position in the list: ascending bytes are its order
	row  []byte
	bids [][]byte
}

// merge appends to out the first `limit` of two lists that ascend by key.
func merge[T any](out, a, b []T, limit int, key func(*T) []byte) []T {
	for len(out) < limit && len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && bytes.Compare(key(&a[0]), key(&b[0])) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

var errMalformed = errors.New("malformed answer")

// appendItems frames items: lengths as varints, then the bytes.
func appendItems(b []byte, items []item) []byte {
	b = binary.AppendUvarint(b, uint64(len(items)))
	for _, it := range items {
		b = appendFramed(appendFramed(b, it.key), it.row)
		b = binary.AppendUvarint(b, uint64(len(it.bids)))
		for _, bid := range it.bids {
			b = appendFramed(b, bid)
		}
	}
	return b
}

func appendFramed(b, v []byte) []byte { return append(binary.AppendUvarint(b, uint64(len(v))), v...) }

// parseItems reads them back. The items alias b, and take memory in proportion to its length.
func parseItems(b []byte) ([]item, error) {
	n, b, err := takeCount(b, 3) // an item is three bytes at least
	if err != nil {
		return nil, err
	}
	items := make([]item, n)
	for i := range items {
		it := &items[i]
		if it.key, b, err = takeFramed(b); err != nil {
			return nil, err
		}
		if it.row, b, err = takeFramed(b); err != nil {
			return nil, err
		}
		var bids int
		if bids, b, err = takeCount(b, 1); err != nil {
			return nil, err
		}
		if bids > 0 {
			it.bids = make([][]byte, bids)
		}
		for j := range it.bids {
			if it.bids[j], b, err = takeFramed(b); err != nil {
				return nil, err
			}
		}
	}
	if len(b) > 0 {
		return nil, errMalformed
	}
	return items, nil
}

// takeCount takes a count of things that are at least `size` bytes each.
func takeCount(b []byte, size int) (int, []byte, error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used)/uint64(size) {
		return 0, nil, errMalformed
	}
	return int(n), b[used:], nil
}

func takeFramed(b []byte) (v, rest []byte, err error) {
	n, b, err := takeCount(b, 1)
	if err != nil {
		return nil, nil, err
	}
	return b[:n:n], b[n:], nil
}

// decodeDeal decodes a deal with all of its bids.
func decodeDeal(it item) (d DealWithBids, err error) {
	if err := d.Deal.UnmarshalBinary(it.row); err != nil {
		return d, fmt.Errorf("decode deal: %w", err)
	}
	if len(it.bids) > 0 {
		d.Bids = make([]topics.Bid, len(it.bids))
	}
	for i, row := range it.bids {
		if err := d.Bids[i].UnmarshalBinary(row); err != nil {
			return d, fmt.Errorf("decode bid of deal %s: %w", d.Deal.ID.Dec(), err)
		}
	}
	return d, nil
}

// decodeListedDeal decodes a deal of a list: with the bids that its borrower could accept, were they not
// expired.
func decodeListedDeal(it item) (DealWithBids, error) {
	d, err := decodeDeal(it)
	current := d.Bids[:0]
	for _, b := range d.Bids {
		if b.State == contracts.BidOpen && b.TermsHash == d.Deal.TermsHash {
			current = append(current, b)
		}
	}
	d.Bids = current
	return d, err
}

func decodeAsset(it item) (a topics.Asset, err error) {
	if err = a.UnmarshalBinary(it.row); err != nil {
		err = fmt.Errorf("decode asset: %w", err)
	}
	return a, err
}

func decodeBalance(it item) (b topics.Balance, err error) {
	if err = b.UnmarshalBinary(it.row); err != nil {
		err = fmt.Errorf("decode balance: %w", err)
	}
	return b, err
}

// page decodes the first `limit` items; where there is one more, the list goes on after the last of them.
func page[T any](items []item, limit int, decode func(item) (T, error)) (p Page[T], err error) {
	if len(items) > limit {
		items = items[:limit]
		p.Next = items[limit-1].key
	}
	p.Items = make([]T, len(items))
	for i, it := range items {
		if p.Items[i], err = decode(it); err != nil {
			return Page[T]{}, err
		}
	}
	return p, nil
}
