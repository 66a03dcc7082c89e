// Package query is the read API of the processors, both ends: the handler that a processor node serves
// and the router that a serving node asks. In one process the router calls the node directly. It must
// not write state and must not know HTTP resources of the services.
package query

import (
	"context"
	"errors"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/deals"
	"github.com/lienstream/lienstream/topics"
)

// ErrUnavailable means that no node can answer now: ask again later.
var ErrUnavailable = errors.New("no processor node can answer for the partition")

// ErrNotFound means that the entity does not exist as of the answer's block.
var ErrNotFound = errors.New("not found")

// Sort is an order of listings.
type Sort = deals.Sort

// The orders of listings.
const (
	SortNewest = deals.SortNewest // listedAt, descending
	SortExpiry = deals.SortExpiry // listingExpiry, ascending, open-ended last
	SortCap    = deals.SortCap    // cap, descending
	SortCost   = deals.SortCost   // (cap-minPrice)*10000/minPrice, ascending
)

// DealWithBids is a deal with bids of it, ascending by ID: all of them for one deal, those in OPEN on
// the deal's current terms (whatever their expiry) in a list.
type DealWithBids struct {
	Deal topics.Deal
	Bids []topics.Bid
}

// Listed says whether the deal may still be funded at a time: LISTED, and its listing not expired.
func (d *DealWithBids) Listed(timestamp uint64) bool {
	return d.Deal.State == contracts.DealListedState && !deals.Expired(d.Deal.ListingExpiry, timestamp)
}

// ListingsQuery asks for LISTED deals whose listing has not expired at the answer's block.
type ListingsQuery struct {
	Sort  Sort
	Lane  *contracts.Lane
	Term  *uint32
	Asset *common.Address
	After []byte // the last page's Next
	Limit int
}

// DealsQuery asks for deals, newest ID first.
type DealsQuery struct {
	Wallet *common.Address // borrower or lender
	State  *contracts.DealState
	After  []byte
	Limit  int
}

// AssetsQuery asks for assets, ascending by token.
type AssetsQuery struct {
	Lane  *contracts.Lane
	After []byte
	Limit int
}

// Page is a part of a list. Next is the position of its last item where more may follow, else nil.
type Page[T any] struct {
	Items []T
	Next  []byte
}

// Answer is a value and the block that it is true as of.
type Answer[T any] struct {
	At    topics.BlockRef
	Value T
	From  []int32 // the partitions that it was read from; nil: all
}

// Head is what the processors know of the chain and of themselves.
type Head struct {
	Indexed    topics.BlockRef // the lowest watermark of all partitions
	Latest     uint64          // the chain's head as the ingester last saw it
	ObservedAt time.Time       // when the ingester last saw the chain (the lowest of all partitions)
}

// Reader is the read API as the serving nodes see it. Every answer is true as of one block on every
// partition that it spans. Errors: ErrNotFound, ErrUnavailable, those of ctx.
type Reader interface {
	MarketReader
	ChangeReader

	Head(ctx context.Context) (Head, error)
	// Current says whether an answer that was read from these partitions is still the latest that can be
	// had. It costs no network, nor a lock while nothing moves: it is for every request.
	Current(at topics.BlockRef, from []int32) bool
	Deal(ctx context.Context, id *uint256.Int) (Answer[DealWithBids], error) // with ErrNotFound, At is set
	Listings(ctx context.Context, q ListingsQuery) (Answer[Page[DealWithBids]], error)
	Deals(ctx context.Context, q DealsQuery) (Answer[Page[DealWithBids]], error)
	Assets(ctx context.Context, q AssetsQuery) (Answer[Page[topics.Asset]], error)
	Balances(ctx context.Context, account common.Address) (Answer[[]topics.Balance], error)
}
