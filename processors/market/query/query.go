// Package query is the read API of the market: its operations, how a node computes each from its views, and how
// the partial answers of partitions are combined. It must not write state, must not know which node holds what
// (the engine's read API does), and must not know HTTP resources of the services.
package query

import (
	"context"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// Sort is an order of listings.
type Sort = deals.Sort

// SortNames is how callers name the orders. It is read-only.
var SortNames = deals.SortNames

// The orders of listings.
const (
	SortNewest = deals.SortNewest // listedAt, descending
	SortExpiry = deals.SortExpiry // listingExpiry, ascending, open-ended last
	SortCap    = deals.SortCap    // cap, descending
	SortCost   = deals.SortCost   // (cap-minPrice)*10000/minPrice, ascending
)

// MaxBids bounds the bids of a DealWithBids. Bids lists all.
const MaxBids = 200

// DealWithBids is a deal with a summary of its bids. A single deal also has its bids; in a list it has none.
type DealWithBids struct {
	Deal       topics.Deal
	Acceptable Acceptable
	Bids       []topics.Bid // in any state, ascending by ID: the newest
	Truncated  bool         // there are more than MaxBids
}

// Acceptable sums up the bids that the borrower could accept as of the answer's block: open, on the deal's
// current terms and not expired.
type Acceptable struct {
	Count uint64
	Best  *topics.Bid // the highest price, the earliest on a tie; nil: none
}

// Listed reports whether the deal may be funded at a time: LISTED, and its listing not expired.
func (d *DealWithBids) Listed(timestamp uint64) bool {
	return d.Deal.State == contracts.DealListedState && !rules.ListingExpired(d.Deal.ListingExpiry, timestamp)
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

// operationReader reads an operation of Application. Those of a List need no method of their own.
type operationReader interface {
	Read(ctx context.Context, q read.Request) (*read.Response, error)
}

// Reader is the read API for the serving nodes. Every answer is as of one block on every partition that it
// spans. Errors: ErrNotFound, ErrUnavailable, those of ctx.
type Reader interface {
	operationReader
	MarketReader
	ExchangeReader
	ChangeReader

	Head(ctx context.Context) (Head, error)
	// Empty reports whether no block is indexed yet. It can be called for every request, as Current can.
	Empty() bool
	// Current reports whether an answer from these partitions is still the latest. It uses no network, and no
	// lock while nothing changes, so it can be called for every request.
	Current(at topics.BlockRef, from []int32) bool
	Listings(ctx context.Context, q ListingsQuery) (Answer[Page[DealWithBids]], error)
	Deals(ctx context.Context, q DealsQuery) (Answer[Page[DealWithBids]], error)
	Assets(ctx context.Context, q AssetsQuery) (Answer[Page[topics.Asset]], error)
}
