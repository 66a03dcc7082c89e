package hotcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// A row in Redis is a header, from which the scripts make the members of the orders, then the deal, a sum of
// its open bids, and bids, each length-prefixed. A page may be as of an earlier or later time than the row, and
// bids expire meanwhile. So the row has all open bids on the deal's terms; with more than maxRowBids it has
// only the best one, and the sum says when it is valid. The header has fixed offsets for write.lua:
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

// positionBytes is the length of a position in each order, including the deal's key.
var positionBytes = [deals.Sorts]int{
	deals.SortNewest: 8 + dealKeyBytes, deals.SortExpiry: 8 + dealKeyBytes,
	deals.SortCap: 16 + dealKeyBytes, deals.SortCost: 32 + dealKeyBytes,
}

// entry is the change of a deal, as passed to the scripts. An empty row: the deal is no longer listed.
type entry struct{ key, row []byte }

// maxRowBids is the maximum number of bids in a row.
const maxRowBids = 64

// offers are the open bids of a listing on its terms: all of them, or their sum and the best one.
type offers struct {
	summed      bool
	count       uint64
	from, until uint64 // when the sum is valid
	bids        []topics.Bid
}

const offersBytes = 1 + 3*8

func (o *offers) append(b []byte) ([]byte, error) {
	if o.summed {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	for _, n := range []uint64{o.count, o.from, o.until} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b, nil
}

func (o *offers) decode(b []byte) bool {
	if len(b) != offersBytes || b[0] > 1 {
		return false
	}
	o.summed = b[0] == 1
	o.count, o.from, o.until = binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:]), binary.BigEndian.Uint64(b[17:])
	return true
}

// errAnotherTime: a row's bid sum is not valid at the time of the page.
var errAnotherTime = errors.New("bid sums are as of another time")

// at sums up the bids at a time.
func (o *offers) at(d *topics.Deal, now uint64) (a query.Acceptable, err error) {
	if !o.summed {
		best, count := rules.BestBid(d, o.bids, now)
		return query.Acceptable{Count: uint64(count), Best: best}, nil
	}
	if now < o.from || now >= o.until {
		return a, errAnotherTime
	}
	if a.Count = o.count; len(o.bids) > 0 {
		a.Best = &o.bids[0]
	}
	return a, nil
}

// newEntry makes the entry of a listing.
func newEntry(partition int32, d *topics.Deal, o *offers) (entry, error) {
	b := make([]byte, 0, headerBytes+384)
	for sort := range deals.Sorts {
		position := deals.ListingKey(sort, d)
		b = append(b, position[:len(position)-dealKeyBytes]...)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(partition))
	b = append(b, byte(d.Lane))
	b = binary.BigEndian.AppendUint32(b, d.Term)
	b = binary.BigEndian.AppendUint64(b, d.ListingExpiry)
	b = append(b, d.Token[:]...)

	b, err := appendFramed(b, d.AppendBinary)
	if err == nil {
		b, err = appendFramed(b, o.append)
	}
	for i := range o.bids {
		if err == nil {
			b, err = appendFramed(b, o.bids[i].AppendBinary)
		}
	}
	if err != nil {
		return entry{}, fmt.Errorf("encode listing %s: %w", d.ID.Dec(), err)
	}
	return entry{key: deals.Key(&d.ID), row: b}, nil
}

// appendFramed appends what encode appends, prefixed by its length in two bytes.
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

// decodeRow decodes a row as of a time.
func decodeRow(row string, now uint64) (v query.DealWithBids, err error) {
	d, o, err := decodeParts(row)
	if err != nil {
		return v, err
	}
	v.Deal = d
	v.Acceptable, err = o.at(&v.Deal, now)
	return v, err
}

func decodeParts(row string) (d topics.Deal, o offers, err error) {
	if len(row) < headerBytes {
		return d, o, errMalformed
	}
	part := 0
	for b := []byte(row[headerBytes:]); part < 2 || len(b) > 0; part++ {
		if len(b) < 2 || int(binary.BigEndian.Uint16(b)) > len(b)-2 {
			return d, o, errMalformed
		}
		n := int(binary.BigEndian.Uint16(b))
		framed := b[2 : 2+n]
		b = b[2+n:]
		switch part {
		case 0:
			err = d.UnmarshalBinary(framed)
		case 1:
			if !o.decode(framed) {
				return d, o, errMalformed
			}
		default:
			o.bids = append(o.bids, topics.Bid{})
			err = o.bids[len(o.bids)-1].UnmarshalBinary(framed)
		}
		if err != nil {
			return d, o, fmt.Errorf("%w: %w", errMalformed, err)
		}
	}
	return d, o, nil
}

// load makes the entry of a deal from the state; it removes the deal if it is not listed, or expired long ago.
func load(v state.View, partition int32, key []byte, expiredBefore uint64) (entry, error) {
	gone := entry{key: key}
	row, err := v.Get(deals.Deals, key)
	if err != nil || row == nil {
		return gone, err
	}
	var d topics.Deal
	if err := d.UnmarshalBinary(row); err != nil {
		return gone, fmt.Errorf("deal %s: %w", deals.ID(key).Dec(), err)
	}
	if d.State != contracts.DealListedState || rules.ListingExpired(d.ListingExpiry, expiredBefore) {
		return gone, nil
	}
	o, err := loadOffers(v, key, &d)
	if err != nil {
		return gone, fmt.Errorf("bids of deal %s: %w", deals.ID(key).Dec(), err)
	}
	return newEntry(partition, &d, o)
}

func loadOffers(v state.View, key []byte, d *topics.Deal) (*offers, error) {
	o := &offers{}
	if d.OpenBids == 0 {
		return o, nil
	}
	sum, err := deals.SumBids(v, key, d.TermsHash, v.At().Timestamp)
	if err != nil {
		return nil, err
	}
	var ids []uint256.Int
	if o.summed = sum.Open > maxRowBids; o.summed {
		o.count, o.from, o.until = sum.Count, sum.From, sum.Until
		if sum.Best != nil {
			ids = append(ids, *sum.Best)
		}
	} else if ids, err = deals.OpenBids(v, key, d.TermsHash); err != nil {
		return nil, err
	}
	slices.SortFunc(ids, func(a, b uint256.Int) int { return a.Cmp(&b) })
	o.bids = make([]topics.Bid, len(ids))
	for i := range ids {
		row, err := v.Get(deals.Bids, deals.BidKey(&d.ID, &ids[i]))
		if err == nil {
			err = o.bids[i].UnmarshalBinary(row)
		}
		if err != nil {
			return nil, err
		}
	}
	return o, nil
}

// setName is the set that a query reads: the most selective one. Its members are filtered by the rest.
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

// barrier encodes a block for the scripts.
func barrier(at topics.BlockRef) string {
	return string(append(binary.BigEndian.AppendUint64(make([]byte, 0, 40), at.Number), at.Hash[:]...))
}
