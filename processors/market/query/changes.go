package query

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/topics"
)

// ErrMomentUnknown: the changes since a moment are no longer known: read the market from scratch.
var ErrMomentUnknown = errors.New("changes since that block are not known")

// MaxChanges bounds the deals of an answer of Changes. With more changes it is faster to read from scratch.
const MaxChanges = 4096

// Changes are the changes of the market between two moments, as of the later one.
type Changes struct {
	At    Moment
	Deals []ChangedDeal // newest ID first
	PoolOverview
}

// ChangedDeal is a deal of which a row or a bid changed, or whose listing expired.
type ChangedDeal struct {
	ID   uint256.Int
	Deal *DealWithBids // bids as in a list; nil: its block was reverted
}

// ChangeReader reads changes of the market.
type ChangeReader interface {
	// Changes returns all changes after a moment, as of the latest block; nil: only the latest moment. It may
	// include deals that did not change. ErrMomentUnknown: the moment is too old, or is on another branch.
	Changes(ctx context.Context, since *Moment) (Changes, error)
	// Holders lists the nodes that hold each partition and their progress, ascending by partition. It uses no network.
	Holders() []Holder
}

// ChangeLog is a node's memory of the changes in its partitions. A Source that implements it serves Changes.
type ChangeLog interface {
	// ChangedSince returns the keys of the deals that changed after a moment, up to the block. Keys may repeat.
	// ErrMomentUnknown: the log does not reach back so far; ErrUnavailable: the moment or the block is not
	// known here, or not yet.
	ChangedSince(partition int32, since *Moment, upTo topics.BlockRef) (Changed, error)
}

// Changed is the answer of a ChangeLog for one partition.
type Changed struct {
	Keys  []common.Hash
	At    Moment // of the requested block
	Exact bool   // the moment is a commit of this partition, number and hash; else Keys begins earlier
}

// Changes implements ChangeReader: it reads the pool first, and then the changes up to the same block.
func (c *Client) Changes(ctx context.Context, since *Moment) (Changes, error) {
	pool, err := c.Pool(ctx)
	if err != nil {
		return Changes{}, err
	}
	a, err := c.Read(ctx, read.Request{
		Operation: opChanges, Query: &changesQuery{since}, At: &pool.At, Limit: MaxChanges + len(c.All()),
	})
	if errors.Is(err, read.ErrExpired) {
		return Changes{}, ErrMomentUnknown
	}
	if err != nil {
		return Changes{}, err
	}
	return decodeChanges(a, since != nil, pool.Value)
}

func decodeChanges(a *read.Response, since bool, pool PoolOverview) (Changes, error) {
	c := Changes{At: Moment{Block: a.Block}, PoolOverview: pool}
	exact := !since
	for _, it := range a.Items {
		if len(it.Key) == 0 { // the item of the node
			reverts, used := binary.Uvarint(it.Row)
			if used <= 0 || len(it.Row) != used+1 {
				return Changes{}, read.ErrMalformed
			}
			c.At.Reverts = reverts
			exact = exact || it.Row[used] == 1
			continue
		}
		d := ChangedDeal{ID: *deals.ID(it.Key)}
		if len(it.Row) > 0 {
			deal, err := decodeDeal(it)
			if err != nil {
				return Changes{}, err
			}
			d.Deal = &deal
		}
		c.Deals = append(c.Deals, d)
	}
	if !exact || len(c.Deals) > MaxChanges {
		return Changes{}, ErrMomentUnknown
	}
	return c, nil
}

// readChanges returns an item for the node itself, then the deals, ascending by key.
func readChanges(_ context.Context, views *read.Views, q *changesQuery) ([]read.Item, error) {
	log, ok := views.Source.(ChangeLog)
	if !ok {
		return nil, fmt.Errorf("this node keeps no changes: %w", ErrUnavailable)
	}
	var (
		items []read.Item
		at    Moment
		exact bool
	)
	for i, p := range views.Partitions {
		changed, err := log.ChangedSince(p, q.Since, views.Of[i].At())
		if errors.Is(err, ErrMomentUnknown) {
			err = fmt.Errorf("%w: %w", read.ErrExpired, err)
		}
		if err != nil {
			return nil, fmt.Errorf("changes of partition %d: %w", p, err)
		}
		at, exact = changed.At, exact || changed.Exact
		found, err := changedDeals(views.Of[i], changed.Keys, q.Since)
		if err != nil {
			return nil, err
		}
		if items = append(items, found...); len(items) > MaxChanges {
			return nil, fmt.Errorf("%w: %w", read.ErrExpired, ErrMomentUnknown)
		}
	}
	slices.SortFunc(items, func(a, b read.Item) int { return bytes.Compare(a.Key, b.Key) })
	own := binary.AppendUvarint(nil, at.Reverts)
	if exact {
		own = append(own, 1)
	} else {
		own = append(own, 0)
	}
	return slices.Insert(items, 0, read.Item{Row: own}), nil
}

// changedDeals reads the deals that changed, and those whose listing expired meanwhile. After a revert the time
// is earlier: listings may no longer be expired.
func changedDeals(v state.View, keys []common.Hash, since *Moment) ([]read.Item, error) {
	if since != nil && since.Block.Timestamp != v.At().Timestamp {
		from := min(since.Block.Timestamp, v.At().Timestamp)
		ended := deals.ExpiredBefore(max(since.Block.Timestamp, v.At().Timestamp))
		err := v.ScanIndex(deals.IndexListing+byte(SortExpiry), nil, deals.ExpiredBefore(from), func(entry, _ []byte) bool {
			if bytes.Compare(entry, ended) > 0 || len(keys) > MaxChanges {
				return false
			}
			keys = append(keys, common.BytesToHash(entry))
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(keys, func(a, b common.Hash) int { return bytes.Compare(a[:], b[:]) })
	keys = slices.Compact(keys)
	var (
		found []position
		gone  []read.Item
	)
	for _, key := range keys {
		row, err := v.Get(deals.Deals, key[:])
		if err != nil {
			return nil, err
		}
		if row == nil {
			gone = append(gone, read.Item{Key: key.Bytes()})
			continue
		}
		found = append(found, position{read.Item{Key: key.Bytes()}, v})
	}
	items, err := withRows(found)
	return append(items, gone...), err
}
