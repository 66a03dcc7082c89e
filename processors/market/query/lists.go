package query

import (
	"bytes"
	"context"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/balances"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/drips"
	"github.com/lienstream/lienstream/topics"
)

// The lists of which other answers have only a part, page by page.

// WalletListQuery asks for a list of a wallet.
type WalletListQuery struct {
	Wallet common.Address
	After  []byte
	Limit  int
}

// Code implements wire.Value.
func (q *WalletListQuery) Code(c *wire.Coder) {
	c.Fixed(q.Wallet[:])
	codePage(c, &q.After, &q.Limit)
}

// Validate implements read.Query.
func (q *WalletListQuery) Validate() error { return checkPage(q.Limit, q.After) }

// PageQuery asks for a page of a List.
type PageQuery struct {
	After []byte
	Limit int
}

// Code implements wire.Value.
func (q *PageQuery) Code(c *wire.Coder) { codePage(c, &q.After, &q.Limit) }

// Validate implements read.Query.
func (q *PageQuery) Validate() error { return checkPage(q.Limit, q.After) }

// List is a table of entities that is read page by page, in the order of its keys. One line declares it.
type List[T any] struct {
	op     *read.Operation
	decode func(read.Item) (T, error)
}

func newList[T any, P row[T]](name string, table *state.Table) List[T] {
	return List[T]{decode: decodeRow[T, P], op: newOperation(name, func(_ context.Context, views *read.Views, q *PageQuery) ([]read.Item, error) {
		return readRows(views.Of, table, q.After, q.Limit+1)
	})}
}

// Page reads a page.
func (l List[T]) Page(ctx context.Context, r Reader, q PageQuery) (Answer[Page[T]], error) {
	return readPage(ctx, r, l.op, &q, q.Limit, l.decode)
}

// WalletBids implements MarketReader.
func (c *Client) WalletBids(ctx context.Context, q WalletListQuery) (Answer[Page[topics.Bid]], error) {
	return readPage(ctx, c, opWalletBids, &q, q.Limit, decodeRow[topics.Bid])
}

// readWalletBids lists a lender's bids: they are in the partitions of their deals.
func readWalletBids(_ context.Context, views *read.Views, q *WalletListQuery) ([]read.Item, error) {
	prefix := deals.LenderPrefix(q.Wallet)
	return newest(views.Of, deals.IndexLenderBid, prefix, q.After, q.Limit+1, bidAt)
}

// bidAt finds the bid at a position of deals.IndexLenderBid.
func bidAt(v state.View, position []byte) ([]byte, error) {
	return v.Get(deals.Bids, deals.BidKey(deals.ID(position), deals.ID(position[:common.HashLength])))
}

// WalletBalances implements MarketReader.
func (c *Client) WalletBalances(ctx context.Context, q WalletListQuery) (Answer[Page[topics.Balance]], error) {
	return homePage(ctx, c, opWalletBalances, &q, func(read.Moment) func(read.Item) (topics.Balance, error) { return decodeRow[topics.Balance] })
}

func readWalletBalances(_ context.Context, views *read.Views, q *WalletListQuery) ([]read.Item, error) {
	return items(lowest(views.Of, q.Limit+1, func(v state.View, visit visitor) error {
		return v.Scan(balances.Balances, q.Wallet[:], behind(q.Wallet[:], q.After), func(key, row []byte) bool {
			return visit(key[len(q.Wallet):], row, true)
		})
	}))
}

// WalletDrips implements MarketReader.
func (c *Client) WalletDrips(ctx context.Context, q WalletListQuery) (Answer[Page[Drip]], error) {
	return homePage(ctx, c, opWalletDrips, &q, decodeDripAt)
}

// readWalletDrips lists an account's drips: a table that ascends, from its end.
func readWalletDrips(_ context.Context, views *read.Views, q *WalletListQuery) ([]read.Item, error) {
	var before []byte
	if len(q.After) == drips.PlaceBytes {
		before = drips.KeyAt(q.After)
	}
	return items(lowest(views.Of, q.Limit+1, func(v state.View, visit visitor) error {
		return v.ScanBack(drips.Drips, q.Wallet[:], before, func(key, row []byte) bool { return visit(drips.Place(key), row, true) })
	}))
}

// DealDrips implements MarketReader. The drips are in the partitions of the deal's parties.
func (c *Client) DealDrips(ctx context.Context, q DealListQuery) (Answer[Page[Drip]], error) {
	a, err := c.Read(ctx, read.Request{Operation: opDealDrips, Query: &q, Limit: q.Limit + 2}) // one item more tells that the list continues
	if err != nil {
		return Answer[Page[Drip]]{}, err
	}
	if len(a.Items) == 0 || len(a.Items[0].Key) > 0 {
		return Answer[Page[Drip]]{At: a.Block}, ErrNotFound
	}
	p, err := read.PageOf(a.Items[1:], q.Limit, decodeDripAt(a.Moment)) // after the item of the deal
	return Answer[Page[Drip]]{At: a.Block, Value: p}, err
}

// readDealDrips lists a deal's drips, after an item without a key if the deal exists.
func readDealDrips(_ context.Context, views *read.Views, q *DealListQuery) ([]read.Item, error) {
	found, err := dealDrips(views.Of, &q.Deal, q.After, q.Limit+1)
	if err != nil {
		return nil, err
	}
	for _, v := range views.Of {
		row, err := v.Get(deals.Deals, deals.Key(&q.Deal))
		if err != nil {
			return nil, err
		}
		if row != nil {
			return slices.Insert(found, 0, read.Item{}), nil
		}
	}
	return found, nil
}

// dealDrips finds the newest drips of a deal, the newest first.
func dealDrips(views []state.View, deal *uint256.Int, after []byte, limit int) ([]read.Item, error) {
	return newest(views, drips.IndexDeal, drips.DealPrefix(deal), after, limit, func(v state.View, place []byte) ([]byte, error) {
		return v.Get(drips.Drips, drips.KeyAt(place))
	})
}

// homePage reads a page of a list that is in the partition of its account.
func homePage[T any](ctx context.Context, c *Client, op *read.Operation, q *WalletListQuery, decode func(read.Moment) func(read.Item) (T, error)) (Answer[Page[T]], error) {
	from := c.partitionOf(contracts.AccountEntity(q.Wallet))
	a, err := c.Read(ctx, read.Request{Operation: op, Query: q, Partitions: from})
	if err != nil {
		return Answer[Page[T]]{}, err
	}
	p, err := read.PageOf(a.Items, q.Limit, decode(a.Moment))
	return Answer[Page[T]]{At: a.Block, Value: p, From: from}, err
}

// newest lists an index under a prefix, each entry with the row that it stands for. Positions are without the
// prefix.
func newest(views []state.View, index byte, prefix, after []byte, limit int, row func(v state.View, position []byte) ([]byte, error)) ([]read.Item, error) {
	found, err := lowest(views, limit, func(v state.View, visit visitor) error {
		return v.ScanIndex(index, prefix, behind(prefix, after), func(entry, _ []byte) bool { return visit(entry[len(prefix):], nil, true) })
	})
	if err != nil {
		return nil, err
	}
	for i, p := range found {
		if found[i].Row, err = row(p.view, p.Key); err != nil {
			return nil, err
		}
	}
	return items(found, nil)
}

// behind is the position after which a list under a prefix goes on; nil: it begins.
func behind(prefix, after []byte) []byte {
	if after == nil {
		return nil
	}
	return append(bytes.Clone(prefix), after...)
}

func items(found []position, err error) ([]read.Item, error) {
	all := make([]read.Item, len(found))
	for i, p := range found {
		all[i] = p.Item
	}
	return all, err
}

// decodeDripAt decodes a drip as of a moment.
func decodeDripAt(at read.Moment) func(read.Item) (Drip, error) {
	return func(it read.Item) (Drip, error) {
		row, err := decodeRow[topics.Drip](it)
		if err != nil {
			return Drip{}, err
		}
		return dripAt(row, at.Block.Timestamp), nil
	}
}
