package deals

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// Sort is an order of listings. Ties break by deal ID, descending.
type Sort uint8

// The orders of listings.
const (
	SortNewest Sort = iota // listedAt, descending
	SortExpiry             // listingExpiry, ascending, open-ended last
	SortCap                // cap, descending
	SortCost               // (cap-minPrice)*10000/minPrice, ascending

	Sorts // number of orders
)

// SortNames is how callers name the orders. It is read-only.
var SortNames = []string{"newest", "expiry", "cap", "cost"}

// ListingKey is a deal's position in an order: bytewise order is the order of the list. It ends with Key(deal).
func ListingKey(sort Sort, d *topics.Deal) []byte {
	return appendListingKey(make([]byte, 0, 2*idBytes), sort, d)
}

func appendListingKey(b []byte, sort Sort, d *topics.Deal) []byte {
	switch sort {
	case SortExpiry:
		b = appendUint64(b, openEndedLast(d.ListingExpiry))
	case SortCap:
		raw := new(uint256.Int).Not(&d.Cap).Bytes32()
		b = append(b, raw[16:]...) // a uint128
	case SortCost:
		c := cost(d)
		raw := c.Bytes32()
		b = append(b, raw[:]...)
	default:
		b = appendUint64(b, ^d.ListedAt)
	}
	return appendDescending(b, &d.ID)
}

// ExpiredBefore is a position in SortExpiry after all listings that are expired at a time, and before all
// others.
func ExpiredBefore(timestamp uint64) []byte {
	if timestamp == 0 {
		return nil
	}
	b := appendUint64(make([]byte, 0, 8+idBytes), timestamp-1)
	for range idBytes {
		b = append(b, 0xff)
	}
	return b
}

func openEndedLast(expiry uint64) uint64 {
	if expiry == 0 {
		return math.MaxUint64
	}
	return expiry
}

// cost is the cost at the minimum price; values that the contract does not allow sort to the ends.
func cost(d *topics.Deal) (c uint256.Int) {
	if d.MinPrice.IsZero() {
		return *c.SetAllOne()
	}
	return rules.CostBps(&d.Cap, &d.MinPrice)
}

// ListingFilter is the value in IndexListing: what a list can be filtered by without reading rows.
type ListingFilter struct {
	Lane   contracts.Lane
	Term   uint32
	Asset  common.Address
	Expiry uint64
}

const filterBytes = 1 + 4 + common.AddressLength + 8

func (f ListingFilter) append(b []byte) []byte {
	b = append(b, byte(f.Lane))
	b = binary.BigEndian.AppendUint32(b, f.Term)
	b = append(b, f.Asset[:]...)
	return appendUint64(b, f.Expiry)
}

// DecodeListingFilter decodes the value of an entry of IndexListing.
func DecodeListingFilter(value []byte) (f ListingFilter, err error) {
	if len(value) != filterBytes {
		return f, errors.New("listing filter has the wrong length")
	}
	f.Lane = contracts.Lane(value[0])
	f.Term = binary.BigEndian.Uint32(value[1:])
	copy(f.Asset[:], value[5:])
	f.Expiry = binary.BigEndian.Uint64(value[5+common.AddressLength:])
	return f, nil
}
