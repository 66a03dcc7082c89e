package query

import (
	"bytes"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/assets"
	"github.com/lienstream/lienstream/processors/balances"
	"github.com/lienstream/lienstream/processors/deals"
	"github.com/lienstream/lienstream/processors/state"
	"github.com/lienstream/lienstream/topics"
)

// The reads, as pure functions over views that are all of one block.

// read answers a request from views.
func read(views []state.View, req *request) ([]item, error) {
	switch req.Op {
	case opDeal:
		return readDeal(views, new(uint256.Int).SetBytes32(req.Deal[:]))
	case opListings:
		return readListings(views, req)
	case opDeals:
		return readDeals(views, req)
	case opAssets:
		return readAssets(views, req)
	case opBalances:
		return readBalances(views, req.Account)
	default:
		return readMarket(views, req)
	}
}

// readDeal finds a deal with all of its bids. No item: there is none.
func readDeal(views []state.View, id *uint256.Int) ([]item, error) {
	key := deals.Key(id)
	for _, v := range views {
		row, err := v.Get(deals.Deals, key)
		if err != nil {
			return nil, err
		}
		if row == nil {
			continue
		}
		it := item{key: key, row: row}
		err = v.Scan(deals.Bids, key, nil, func(_, row []byte) bool {
			it.bids = append(it.bids, bytes.Clone(row))
			return true
		})
		return []item{it}, err
	}
	return nil, nil
}

// readListings lists by an index whose entries say all that can be filtered by.
func readListings(views []state.View, req *request) ([]item, error) {
	found, err := lowest(views, req.Limit, func(v state.View, visit visitor) error {
		now, after := v.At().Timestamp, req.After
		if req.Sort == SortExpiry {
			// The expired ones come first: begin behind them.
			if start := deals.ExpiredBefore(now); bytes.Compare(after, start) < 0 {
				after = start
			}
		}
		var bad error
		err := v.ScanIndex(deals.IndexListing+byte(req.Sort), nil, after, func(entry, value []byte) bool {
			f, err := deals.DecodeListingFilter(value)
			if err != nil {
				bad = err
				return false
			}
			return visit(entry, nil, !deals.Expired(f.Expiry, now) &&
				(!req.HasLane || f.Lane == req.Lane) &&
				(!req.HasTerm || f.Term == req.Term) &&
				(!req.HasAsset || f.Asset == req.Asset))
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
func readDeals(views []state.View, req *request) ([]item, error) {
	index, prefix, checkState := deals.IndexState, deals.StatePrefix(req.State), false
	if req.HasWallet {
		index, prefix, checkState = deals.IndexWallet, deals.WalletPrefix(req.Wallet), req.HasState
	}
	var after []byte
	if req.After != nil {
		after = append(bytes.Clone(prefix), req.After...)
	}
	found, err := lowest(views, req.Limit, func(v state.View, visit visitor) error {
		if !req.HasWallet && !req.HasState {
			return v.Scan(deals.Deals, nil, req.After, func(key, _ []byte) bool { return visit(key, nil, true) })
		}
		return v.ScanIndex(index, prefix, after, func(entry, value []byte) bool {
			return visit(entry[len(prefix):], nil, !checkState || len(value) > 0 && contracts.DealState(value[0]) == req.State)
		})
	})
	if err != nil {
		return nil, err
	}
	return withRows(found)
}

func readAssets(views []state.View, req *request) ([]item, error) {
	found, err := lowest(views, req.Limit, func(v state.View, visit visitor) error {
		var bad error
		err := v.Scan(assets.Assets, nil, req.After, func(key, row []byte) bool {
			var a topics.Asset
			if req.HasLane { // there are few assets: no index
				if bad = a.UnmarshalBinary(row); bad != nil {
					return false
				}
			}
			return visit(key, row, !req.HasLane || a.Lane == req.Lane)
		})
		if bad != nil {
			return fmt.Errorf("decode asset: %w", bad)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	items := make([]item, len(found))
	for i, p := range found {
		items[i] = p.item
	}
	return items, nil
}

func readBalances(views []state.View, account common.Address) (items []item, err error) {
	for _, v := range views {
		err := v.Scan(balances.Balances, account[:], nil, func(key, row []byte) bool {
			items = append(items, item{key: bytes.Clone(key), row: bytes.Clone(row)})
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return items, nil
}

// position is an item of a list and the view that it is in.
type position struct {
	item
	view state.View
}

// visitor is told of every entry in order, and whether it belongs to the list. It says whether to go on.
type visitor func(key, row []byte, belongs bool) bool

// lowest finds the first `limit` positions over all views. A scan ends where what earlier views hold comes
// first, so that together they read little more than one list.
func lowest(views []state.View, limit int, scan func(state.View, visitor) error) ([]position, error) {
	var kept, fresh, merged []position
	for _, v := range views {
		fresh = fresh[:0]
		err := scan(v, func(key, row []byte, belongs bool) bool {
			if len(kept) == limit && bytes.Compare(key, kept[limit-1].key) >= 0 {
				return false
			}
			if belongs {
				fresh = append(fresh, position{item{key: bytes.Clone(key), row: bytes.Clone(row)}, v})
			}
			return len(fresh) < limit
		})
		if err != nil {
			return nil, err
		}
		merged = merge(merged[:0], kept, fresh, limit, func(p *position) []byte { return p.key })
		kept, merged = merged, kept
	}
	return kept, nil
}

// withRows fetches the deals at positions that end in the deal's key, and their open bids.
func withRows(found []position) ([]item, error) {
	items := make([]item, len(found))
	for i, p := range found {
		if len(p.key) < common.HashLength {
			return nil, fmt.Errorf("position of %d bytes in a list of deals", len(p.key))
		}
		key := p.key[len(p.key)-common.HashLength:]
		row, err := p.view.Get(deals.Deals, key)
		if err != nil {
			return nil, err
		}
		var d topics.Deal
		if err := d.UnmarshalBinary(row); err != nil { // a nil row too: an index entry without its row
			return nil, fmt.Errorf("deal %s in a list: %w", deals.ID(key).Dec(), err)
		}
		items[i] = item{key: p.key, row: row}
		if d.OpenBids == 0 {
			continue
		}
		err = p.view.ScanIndex(deals.IndexOpenBid, key, nil, func(_, bid []byte) bool {
			items[i].bids = append(items[i].bids, bytes.Clone(bid))
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return items, nil
}
