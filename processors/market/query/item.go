package query

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/topics"
)

// The parts of an item of a deal with bids: a sum, then the best bid if there is one, then bids.
const (
	sumBytes     = 8 + 1
	sumBest      = 1 // there is a best bid
	sumTruncated = 2 // there are more bids
)

// bidParts returns the first parts of a deal's item.
func bidParts(v state.View, key []byte, d *topics.Deal) ([][]byte, error) {
	if d.OpenBids == 0 {
		return nil, nil
	}
	s, err := deals.SumBids(v, key, d.TermsHash, v.At().Timestamp)
	if err != nil {
		return nil, err
	}
	parts := [][]byte{binary.BigEndian.AppendUint64(make([]byte, 0, sumBytes), s.Count)}
	parts[0] = append(parts[0], 0)
	if s.Best == nil {
		return parts, nil
	}
	parts[0][sumBytes-1] |= sumBest
	best, err := v.Get(deals.Bids, deals.BidKey(&d.ID, s.Best))
	if err == nil && best == nil {
		err = fmt.Errorf("deal %s: bid %s is the best in the sums, but has no row", d.ID.Dec(), s.Best.Dec())
	}
	return append(parts, best), err
}

// withBids adds the newest bids of a deal, ascending by ID.
func withBids(v state.View, key []byte, parts [][]byte) ([][]byte, error) {
	if parts == nil {
		parts = [][]byte{make([]byte, sumBytes)}
	}
	first := len(parts)
	err := v.ScanBack(deals.Bids, key, nil, func(_, row []byte) bool {
		if len(parts)-first == MaxBids {
			parts[0][sumBytes-1] |= sumTruncated
			return false
		}
		parts = append(parts, bytes.Clone(row))
		return true
	})
	slices.Reverse(parts[first:])
	return parts, err
}

// decodeDeal decodes a deal with its bids.
func decodeDeal(it read.Item) (d DealWithBids, err error) {
	if err := d.Deal.UnmarshalBinary(it.Row); err != nil {
		return d, fmt.Errorf("decode deal: %w", err)
	}
	if len(it.Parts) == 0 {
		return d, nil
	}
	sum, bids := it.Parts[0], it.Parts[1:]
	if len(sum) != sumBytes || sum[sumBytes-1]&sumBest != 0 && len(bids) == 0 {
		return d, read.ErrMalformed
	}
	d.Acceptable.Count = binary.BigEndian.Uint64(sum)
	d.Truncated = sum[sumBytes-1]&sumTruncated != 0
	all := make([]topics.Bid, len(bids))
	for i, row := range bids {
		if err := all[i].UnmarshalBinary(row); err != nil {
			return d, fmt.Errorf("decode bid of deal %s: %w", d.Deal.ID.Dec(), err)
		}
	}
	if sum[sumBytes-1]&sumBest != 0 {
		d.Acceptable.Best, all = &all[0], all[1:]
	}
	if len(all) > 0 {
		d.Bids = all
	}
	return d, nil
}

func decodeAsset(it read.Item) (a topics.Asset, err error) {
	if err = a.UnmarshalBinary(it.Row); err != nil {
		err = fmt.Errorf("decode asset: %w", err)
	}
	return a, err
}
