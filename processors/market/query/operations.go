package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/topics"
)

// The operations of the market: each with the function that computes it on a node, which names its query type. Those of
// the overview and of the lists of one table are declared beside them.
var (
	opDeal           = newOperation("deal", readDeal).Brief()
	opListings       = newOperation("listings", readListings)
	opDeals          = newOperation("deals", readDeals)
	opAssets         = newOperation("assets", readAssets)
	opChanges        = newOperation("changes", readChanges)
	opDealWithReward = newOperation("deal with reward", readDealWithReward).Brief()
	opAssetDeals     = newOperation("asset deals", readAssetDeals)
	opPortfolio      = newOperation("portfolio", readPortfolio)
	opStakes         = newOperation("stakes", readStakes)
	opPositions      = newOperation("positions", readPositions)
	opStats          = newOperation("stats", readStats)
	opExchange       = newOperation("exchange", readExchange)
	opContents       = newOperation("contents", readContents)
	opBids           = newOperation("bids", readBids)
	opOpenPositions  = newOperation("open positions", readOpenPositions)
	opAmounts        = newOperation("amounts", readAmounts)
	opWalletBids     = newOperation("wallet bids", readWalletBids)
	opWalletBalances = newOperation("wallet balances", readWalletBalances)
	opWalletDrips    = newOperation("wallet drips", readWalletDrips)
	opDealDrips      = newOperation("deal drips", readDealDrips)
	opCounts         = newOperation("counts", readCounts)
	opHolders        = newOperation("holders", readHolders)
	opHistory        = newOperation("history", readHistory)
	opOpenChanges    = newOperation("open changes", readOpenChanges)
	opDayAmounts     = newOperation("day amounts", readDayAmounts)
)

// operations are all operations of the market. newOperation adds to it while the package's variables are initialised.
var operations []*read.Operation

// newOperation is read.NewOperation, and adds the operation to those of the market.
func newOperation[T any, Q interface {
	*T
	read.Query
}](name string, serve func(context.Context, *read.Views, *T) ([]read.Item, error)) *read.Operation {
	op := read.NewOperation[T, Q](name, serve)
	operations = append(operations, op)
	return op
}

// Application is the market's read API.
func Application() read.Application {
	return read.Application{Name: topics.AppMarket, Operations: slices.Clone(operations)}
}

// Bounds of the queries.
const (
	maxAfterBytes = 256
	maxKeys       = 64 << 10

	// MaxLimit bounds a page.
	MaxLimit = 1000
)

func checkPage(limit int, after []byte) error {
	if limit < 1 || limit > MaxLimit {
		return fmt.Errorf("limit: %d is not in 1-%d", limit, MaxLimit)
	}
	if len(after) > maxAfterBytes {
		return fmt.Errorf("after: position has %d bytes", len(after))
	}
	return nil
}

func codePage(c *wire.Coder, after *[]byte, limit *int) {
	c.Bytes(after, maxAfterBytes)
	c.Int(limit)
}

func codeAddress(c *wire.Coder, a **common.Address) {
	wire.Optional(c, a, func(a *common.Address) { c.Fixed(a[:]) })
}

// dealQuery asks for a deal.
type dealQuery struct{ ID common.Hash }

func (q *dealQuery) Code(c *wire.Coder) { c.Fixed(q.ID[:]) }
func (q *dealQuery) Validate() error    { return nil }

// Code implements wire.Value.
func (q *ListingsQuery) Code(c *wire.Coder) {
	c.Uint8((*uint8)(&q.Sort))
	wire.Optional(c, &q.Lane, func(l *contracts.Lane) { c.Uint8((*uint8)(l)) })
	wire.Optional(c, &q.Term, c.Uint32)
	codeAddress(c, &q.Asset)
	codePage(c, &q.After, &q.Limit)
}

// Validate implements read.Query.
func (q *ListingsQuery) Validate() error {
	if q.Sort >= deals.Sorts {
		return fmt.Errorf("sort: %d", q.Sort)
	}
	return checkPage(q.Limit, q.After)
}

// Code implements wire.Value.
func (q *DealsQuery) Code(c *wire.Coder) {
	codeAddress(c, &q.Wallet)
	wire.Optional(c, &q.State, func(s *contracts.DealState) { c.Uint8((*uint8)(s)) })
	codePage(c, &q.After, &q.Limit)
}

// Validate implements read.Query.
func (q *DealsQuery) Validate() error { return checkPage(q.Limit, q.After) }

// Code implements wire.Value.
func (q *AssetsQuery) Code(c *wire.Coder) {
	wire.Optional(c, &q.Lane, func(l *contracts.Lane) { c.Uint8((*uint8)(l)) })
	codePage(c, &q.After, &q.Limit)
}

// Validate implements read.Query.
func (q *AssetsQuery) Validate() error { return checkPage(q.Limit, q.After) }

// Code implements wire.Value.
func (q *AssetDealsQuery) Code(c *wire.Coder) {
	c.Fixed(q.Token[:])
	codePage(c, &q.After, &q.Limit)
}

// Validate implements read.Query.
func (q *AssetDealsQuery) Validate() error { return checkPage(q.Limit, q.After) }

// Code implements wire.Value.
func (q *StakesQuery) Code(c *wire.Coder) {
	c.Fixed(q.Owner[:])
	codePage(c, &q.After, &q.Limit)
}

// Validate implements read.Query.
func (q *StakesQuery) Validate() error { return checkPage(q.Limit, q.After) }

// changesQuery asks for the changes since a moment; nil: only for the current moment.
type changesQuery struct{ Since *Moment }

func (q *changesQuery) Code(c *wire.Coder) {
	wire.Optional(c, &q.Since, func(m *Moment) {
		c.Uint64(&m.Block.Number)
		c.Fixed(m.Block.Hash[:])
		c.Uint64(&m.Block.Timestamp)
		c.Uint64(&m.Reverts)
	})
}

func (q *changesQuery) Validate() error { return nil }

// portfolioQuery asks for a wallet's portfolio; its account's data is in one partition.
type portfolioQuery struct {
	Wallet common.Address
	Home   int32 // partition of the account
}

func (q *portfolioQuery) Code(c *wire.Coder) {
	c.Fixed(q.Wallet[:])
	c.Int32(&q.Home)
}

func (q *portfolioQuery) Validate() error { return nil }

// market is the part of the deployment that answers need.
type market struct {
	Pool            common.Hash // of sTKN and TKN; zero: there is no token layer
	STKN, TKN, USDG common.Address
}

func marketOf(d contracts.Deployment) market {
	return market{Pool: d.PoolID, STKN: d.STKN, TKN: d.TKN, USDG: d.USDG}
}

func (m *market) code(c *wire.Coder) {
	c.Fixed(m.Pool[:])
	c.Fixed(m.STKN[:])
	c.Fixed(m.TKN[:])
	c.Fixed(m.USDG[:])
}

// positionsQuery asks for a page of a wallet's positions, and for the contents of the given ones.
type positionsQuery struct {
	PositionsQuery
	Manager common.Address
	Keys    []common.Hash // token IDs
}

func (q *positionsQuery) Code(c *wire.Coder) {
	c.Fixed(q.Owner[:])
	codePage(c, &q.After, &q.Limit)
	c.Fixed(q.Manager[:])
	codeHashes(c, &q.Keys)
}

func (q *positionsQuery) Validate() error {
	if len(q.Keys) > MaxLimit {
		return fmt.Errorf("keys: %d", len(q.Keys))
	}
	return checkPage(q.Limit, q.After)
}

// statsQuery asks for the whole market, and for details that an earlier answer has shown to be needed.
type statsQuery struct {
	Market market
	Keys   []common.Hash // token IDs of positions
	Places []int32       // for each key the partition of its pool, if known
	Counts countsQuery   // of histograms, beside their roots
}

func (q *statsQuery) Code(c *wire.Coder) {
	q.Market.code(c)
	codeHashes(c, &q.Keys)
	wire.Slice(c, &q.Places, maxKeys, 1, c.Int32)
	q.Counts.Code(c)
}

func (q *statsQuery) Validate() error {
	if len(q.Keys) > maxKeys || len(q.Places) != len(q.Keys) {
		return fmt.Errorf("keys: %d in %d groups", len(q.Keys), len(q.Places))
	}
	return q.Counts.Validate()
}

// exchangeQuery asks for the tradable pools, including the token layer's.
type exchangeQuery struct {
	ExchangeQuery
	Pool  common.Hash
	Room  int         // bytes of windows that a node reads at most, and one more window
	Known []knownPool // ascending
}

func (q *exchangeQuery) Code(c *wire.Coder) {
	c.Uint64(&q.Seconds)
	c.Uint64(&q.Hours)
	c.Fixed(q.Pool[:])
	c.Int(&q.Room)
	wire.Slice(c, &q.Known, maxKnown, 2*common.HashLength, func(k *knownPool) { k.code(c) })
}

func (q *exchangeQuery) Validate() error {
	if q.Room < 1 || q.Room > maxRoom {
		return fmt.Errorf("room: %d is not in 1-%d", q.Room, maxRoom)
	}
	return nil
}

// contentsQuery asks for the contents of positions.
type contentsQuery struct{ Keys []common.Hash }

func (q *contentsQuery) Code(c *wire.Coder) { codeHashes(c, &q.Keys) }
func (q *contentsQuery) Validate() error    { return nil }

func codeHashes(c *wire.Coder, all *[]common.Hash) {
	wire.Slice(c, all, maxKeys, common.HashLength, func(h *common.Hash) { c.Fixed(h[:]) })
}
