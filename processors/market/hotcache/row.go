package hotcache

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// A row in Redis is a header, from which the scripts make the members of the orders, then the deal and
// its open bids, each behind its length. The header, fixed, so that write.lua finds its way:
//
//	 0..7   position in newest, without the deal's key, as are the next three
//	 8..15  position in expiry
//	16..31  position in cap
//	32..63  position in cost
//	64..78  suffix of the members: partition (2), lane (1), term (4), expiry (8)
//	79..98  token
const (
	dealKeyBytes = common.HashLength
	headerBytes  = 99
)

// positionBytes is the length of a position in each order, the deal's key included.
var positionBytes = [deals.Sorts]int{
	deals.SortNewest: 8 + dealKeyBytes, deals.SortExpiry: 8 + dealKeyBytes,
	deals.SortCap: 16 + dealKeyBytes, deals.SortCost: 32 + dealKeyBytes,
}

// entry is a change of one deal as the scripts take it. An empty row: the deal is no longer listed.
type entry struct{ key, row []byte }

// newEntry makes the entry of a listing.
func newEntry(partition int32, d *query.DealWithBids) (entry, error) {
	b := make([]byte, 0, headerBytes+384)
	for sort := range deals.Sorts {
		position := deals.ListingKey(sort, &d.Deal)
		b = append(b, position[:len(position)-dealKeyBytes]...)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(partition))
	b = append(b, byte(d.Deal.Lane))
	b = binary.BigEndian.AppendUint32(b, d.Deal.Term)
	b = binary.BigEndian.AppendUint64(b, d.Deal.ListingExpiry)
	b = append(b, d.Deal.Token[:]...)

	b, err := appendFramed(b, d.Deal.AppendBinary)
	for i := range d.Bids {
		if err == nil {
			b, err = appendFramed(b, d.Bids[i].AppendBinary)
		}
	}
	if err != nil {
		return entry{}, fmt.Errorf("encode listing %s: %w", d.Deal.ID.Dec(), err)
	}
	return entry{key: deals.Key(&d.Deal.ID), row: b}, nil
}

// appendFramed appends what encode appends, behind its length in two bytes.
func appendFramed(b []byte, encode func([]byte) ([]byte, error)) ([]byte, error) {
	at := len(b)
	b, err := encode(append(b, 0, 0))
	if err != nil {
		return b, err
	}
	n := len(b) - at - 2
	if n > 1<<16-1 {
		return b, fmt.Errorf("%d bytes", n)
	}
	binary.BigEndian.PutUint16(b[at:], uint16(n))
	return b, nil
}

var errMalformed = errors.New("malformed row")

// decodeRow reads a row back.
func decodeRow(row string) (d query.DealWithBids, err error) {
	if len(row) < headerBytes {
		return d, errMalformed
	}
	b, first := []byte(row[headerBytes:]), true
	for first || len(b) > 0 {
		if len(b) < 2 || int(binary.BigEndian.Uint16(b)) > len(b)-2 {
			return d, errMalformed
		}
		n := int(binary.BigEndian.Uint16(b))
		part := b[2 : 2+n]
		b = b[2+n:]
		if first {
			err = d.Deal.UnmarshalBinary(part)
			first = false
		} else {
			d.Bids = append(d.Bids, topics.Bid{})
			err = d.Bids[len(d.Bids)-1].UnmarshalBinary(part)
		}
		if err != nil {
			return d, fmt.Errorf("%w: %w", errMalformed, err)
		}
	}
	return d, nil
}

// load makes the entry of a deal from the state: its removal if it is not listed, or expired long ago.
func load(v state.Reader, partition int32, key []byte, expiredBefore uint64) (entry, error) {
	gone := entry{key: key}
	row, err := v.Get(deals.Deals, key)
	if err != nil || row == nil {
		return gone, err
	}
	var d query.DealWithBids
	if err := d.Deal.UnmarshalBinary(row); err != nil {
		return gone, fmt.Errorf("deal %s: %w", deals.ID(key).Dec(), err)
	}
	if d.Deal.State != contracts.DealListedState || deals.Expired(d.Deal.ListingExpiry, expiredBefore) {
		return gone, nil
	}
	var bad error
	if d.Deal.OpenBids > 0 {
		err = v.ScanIndex(deals.IndexOpenBid, key, nil, func(_, value []byte) bool {
			var b topics.Bid
			if bad = b.UnmarshalBinary(value); bad != nil {
				return false
			}
			if rules.OnTerms(&d.Deal, &b) {
				d.Bids = append(d.Bids, b)
			}
			return true
		})
	}
	if err := errors.Join(err, bad); err != nil {
		return gone, fmt.Errorf("bids of deal %s: %w", deals.ID(key).Dec(), err)
	}
	return newEntry(partition, &d)
}

// setName names what an order of a query walks: the narrowest set; the rest is filtered by the members.
func setName(q *query.ListingsQuery) string {
	switch {
	case q.Asset != nil:
		return "t" + string(q.Asset[:])
	case q.Lane != nil:
		return "l" + string([]byte{byte(*q.Lane)})
	default:
		return "a"
	}
}

// barrier is a block as the scripts remember it.
func barrier(at topics.BlockRef) string {
	return string(append(binary.BigEndian.AppendUint64(make([]byte, 0, 40), at.Number), at.Hash[:]...))
}
