package query

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/assets"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// The reads, as pure functions over views that are all of one block.

// readDeal finds a deal with its newest bids. No item: there is none.
func readDeal(_ context.Context, views *read.Views, q *dealQuery) ([]read.Item, error) {
	key := deals.Key(new(uint256.Int).SetBytes32(q.ID[:]))
	for _, v := range views.Of {
		row, err := v.Get(deals.Deals, key)
		if err != nil {
			return nil, err
		}
		if row == nil {
			continue
		}
		it := read.Item{Key: key, Row: row}
		var d topics.Deal
		if err := d.UnmarshalBinary(row); err != nil {
			return nil, fmt.Errorf("deal %s: %w", deals.ID(key).Dec(), err)
		}
		if it.Parts, err = bidParts(v, key, &d); err == nil {
			it.Parts, err = withBids(v, key, it.Parts)
		}
		return []read.Item{it}, err
	}
	return nil, nil
}

// readListings reads an index whose entries have every field that can be filtered by.
func readListings(_ context.Context, views *read.Views, q *ListingsQuery) ([]read.Item, error) {
	found, err := lowest(views.Of, q.Limit+1, func(v state.View, visit visitor) error {
		now, after := v.At().Timestamp, q.After
		if q.Sort == SortExpiry {
			// The expired ones come first: begin behind them.
			if start := deals.ExpiredBefore(now); bytes.Compare(after, start) < 0 {
				after = start
			}
		}
		var bad error
		err := v.ScanIndex(deals.IndexListing+byte(q.Sort), nil, after, func(entry, value []byte) bool {
			f, err := deals.DecodeListingFilter(value)
			if err != nil {
				bad = err
				return false
			}
			return visit(entry, nil, !rules.ListingExpired(f.Expiry, now) &&
				(q.Lane == nil || f.Lane == *q.Lane) &&
				(q.Term == nil || f.Term == *q.Term) &&
				(q.Asset == nil || f.Asset == *q.Asset))
		})
		if bad != nil {
			return bad
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return withRows(found)
}

// readDeals lists the newest ID first, by the narrowest index.
func readDeals(_ context.Context, views *read.Views, q *DealsQuery) ([]read.Item, error) {
	var (
		index  byte
		prefix []byte
	)
	switch {
	case q.Wallet != nil:
		index, prefix = deals.IndexWallet, deals.WalletPrefix(*q.Wallet)
	case q.State != nil:
		index, prefix = deals.IndexState, deals.StatePrefix(*q.State)
	}
	var after []byte
	if q.After != nil {
		after = append(bytes.Clone(prefix), q.After...)
	}
	found, err := lowest(views.Of, q.Limit+1, func(v state.View, visit visitor) error {
		if prefix == nil {
			return v.Scan(deals.Deals, nil, q.After, func(key, _ []byte) bool { return visit(key, nil, true) })
		}
		return v.ScanIndex(index, prefix, after, func(entry, value []byte) bool {
			return visit(entry[len(prefix):], nil, q.Wallet == nil || q.State == nil || len(value) > 0 && contracts.DealState(value[0]) == *q.State)
		})
	})
	if err != nil {
		return nil, err
	}
	return withRows(found)
}

func readAssets(_ context.Context, views *read.Views, q *AssetsQuery) ([]read.Item, error) {
	found, err := lowest(views.Of, q.Limit+1, func(v state.View, visit visitor) error {
		var bad error
		err := v.Scan(assets.Assets, nil, q.After, func(key, row []byte) bool {
			var a topics.Asset
			if q.Lane != nil { // there are few assets: no index
				if bad = a.UnmarshalBinary(row); bad != nil {
					return false
				}
			}
			return visit(key, row, q.Lane == nil || a.Lane == *q.Lane)
		})
		if bad != nil {
			return fmt.Errorf("decode asset: %w", bad)
		}
		return err
	})
	return items(found, err)
}

// position is an item of a list and the view that it is in. Without a view it is where a scan gave up.
type position struct {
	read.Item
	view state.View
}

// MaxSkipped is how many entries a scan of a partition skips for a page, because of a filter or their time. It then
// gives up, and the page ends there: the next one begins behind it. It is more than a page of Redis may skip
// (hotcache.Config.MaxScan), so that a page of Redis is not shorter here, unless Redis has dropped that many expired
// listings.
const MaxSkipped = 5000

// visitor gets every entry in order, and whether it belongs to the list. It returns whether to go on.
type visitor func(key, row []byte, belongs bool) bool

// lowest finds the first `limit` positions over all views, or those before the first at which a scan gave up, and that
// one. A scan ends where what earlier views hold comes first, so that together they read little more than one list.
func lowest(views []state.View, limit int, scan func(state.View, visitor) error) ([]position, error) {
	var kept, fresh, merged []position
	whole := false // what is kept is all that can be used
	for _, v := range views {
		fresh = fresh[:0]
		skipped := 0
		err := scan(v, func(key, row []byte, belongs bool) bool {
			if whole && bytes.Compare(key, kept[len(kept)-1].Key) >= 0 {
				return false
			}
			if belongs {
				fresh = append(fresh, position{read.Item{Key: bytes.Clone(key), Row: bytes.Clone(row)}, v})
				return len(fresh) < limit
			}
			if skipped++; skipped == MaxSkipped {
				fresh = append(fresh, position{Item: read.Item{Key: bytes.Clone(key)}})
			}
			return skipped < MaxSkipped
		})
		if err != nil {
			return nil, err
		}
		merged = read.Merge(merged[:0], kept, fresh, limit, func(p *position) []byte { return p.Key })
		if end := slices.IndexFunc(merged, func(p position) bool { return p.view == nil }); end >= 0 {
			merged, whole = merged[:end+1], true
		}
		whole = whole || len(merged) == limit
		kept, merged = merged, kept
	}
	return kept, nil
}

// withRows fetches the deals at positions that end in the deal's key, and what their bids come to.
func withRows(found []position) ([]read.Item, error) {
	items := make([]read.Item, len(found))
	for i, p := range found {
		if len(p.Key) < common.HashLength {
			return nil, fmt.Errorf("position in a list of deals has %d bytes", len(p.Key))
		}
		if p.view == nil {
			items[i] = p.Item
			continue
		}
		key := p.Key[len(p.Key)-common.HashLength:]
		row, err := p.view.Get(deals.Deals, key)
		if err != nil {
			return nil, err
		}
		var d topics.Deal
		if err := d.UnmarshalBinary(row); err != nil { // a nil row too: an index entry without its row
			return nil, fmt.Errorf("deal %s in a list: %w", deals.ID(key).Dec(), err)
		}
		items[i] = read.Item{Key: p.Key, Row: row}
		if items[i].Parts, err = bidParts(p.view, key, &d); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// readRows lists a table in the order of its keys.
func readRows(views []state.View, table *state.Table, after []byte, limit int) ([]read.Item, error) {
	return items(lowest(views, limit, func(v state.View, visit visitor) error {
		return v.Scan(table, nil, after, func(key, row []byte) bool { return visit(key, row, true) })
	}))
}
