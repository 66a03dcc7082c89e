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

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/epochs"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/processors/market/stats"
	"github.com/lienstream/lienstream/topics"
)

// followUps is what a request about the whole market must ask for, and only an earlier answer shows: which positions
// are collateral, and which nodes of the histograms lead to the medians.
type followUps struct {
	positions []common.Hash // ascending
	places    []int32       // the partitions of their pools; anywhere: unknown
	nodes     [][]byte
}

// anywhere stands for a position that every partition is asked for.
const anywhere = -1

// lacks returns what a request with n should have contained, or nil if it was complete.
func (n *followUps) lacks(open []common.Hash, place func(common.Hash) int32) *followUps {
	m := &followUps{positions: open, places: make([]int32, len(open)), nodes: n.nodes}
	complete := true
	for i, p := range open {
		m.places[i] = place(p)
		at, asked := slices.BinarySearchFunc(n.positions, p, common.Hash.Cmp)
		// A position that was requested everywhere and not found does not exist.
		complete = complete && asked && (m.places[i] != anywhere || n.places[at] == anywhere)
	}
	if complete {
		return nil
	}
	return m
}

// Stats implements MarketReader. It requests what the last answer needed, and repeats the read if this one
// needs more.
func (c *Client) Stats(ctx context.Context) (Answer[Stats], error) {
	n := c.last.followUps.Load()
	if n == nil {
		n = new(followUps)
	}
	for range attempts {
		q := &statsQuery{Market: c.market, Keys: n.positions, Places: n.places, Counts: countsQuery{n.nodes}}
		a, err := c.Read(ctx, read.Request{Operation: opStats, Query: q})
		if err != nil {
			return Answer[Stats]{}, err
		}
		split, err := inSections(a.Items)
		if err != nil {
			return Answer[Stats]{}, err
		}
		lacking, many, err := c.lacking(n, &split)
		if err != nil {
			return Answer[Stats]{}, err
		}
		if lacking != nil {
			n = lacking
			c.last.followUps.Store(n)
			continue
		}
		s, nodes, err := c.statsAt(ctx, a.Block, n, &split, many)
		if errors.Is(err, ErrUnavailable) {
			continue // the block was left behind
		}
		if err != nil {
			return Answer[Stats]{}, err
		}
		next := &followUps{positions: n.positions, places: n.places, nodes: nodes}
		if many { // they are read by themselves
			next.positions, next.places = nil, nil
		}
		c.last.followUps.Store(next)
		return Answer[Stats]{At: a.Block, Value: s}, nil
	}
	return Answer[Stats]{}, fmt.Errorf("the market changed between reads: %w", ErrUnavailable)
}

// lacking is what a request with n should have asked for, too; nil: nothing. Many: there are more positions than a
// request may have.
func (c *Client) lacking(n *followUps, split *[sections][]read.Item) (lacking *followUps, many bool, err error) {
	contents, err := liquidityOf(split[sectionLiquidity])
	if err != nil {
		return nil, false, err
	}
	if many = len(split[sectionOpenPosition]) > c.many; many {
		split[sectionOpenPosition] = nil
	}
	return n.lacks(openPositions(split[sectionOpenPosition]), func(id common.Hash) int32 {
		if p := contents[id]; p != nil {
			return c.poolPartition(p.PoolID)
		}
		return anywhere
	}), many, nil
}

// statsAt completes an answer by what has to be read as of its block. nodes are those that the medians took.
func (c *Client) statsAt(ctx context.Context, at topics.BlockRef, n *followUps, split *[sections][]read.Item, many bool) (s Stats, nodes [][]byte, err error) {
	set := ask(slices.Concat(roots(), n.nodes))
	if err := set.add(split[sectionCounts]); err != nil {
		return s, nil, err
	}
	medians, nodes, err := c.mediansOf(ctx, at, set)
	if err != nil {
		return s, nil, err
	}
	if many {
		more, err := c.amountsOf(ctx, at)
		if err != nil {
			return s, nil, err
		}
		split[sectionCollateral] = append(split[sectionCollateral], more...)
	}
	s, err = decodeStats(at, split, medians, &c.market)
	return s, nodes, err
}

func openPositions(items []read.Item) []common.Hash {
	ids := make([]common.Hash, len(items))
	for i, it := range items {
		ids[i] = common.BytesToHash(it.Key[:common.HashLength])
	}
	return slices.Compact(ids) // ascending, as items are
}

func decodeStats(at topics.BlockRef, split *[sections][]read.Item, medians Medians, m *market) (s Stats, err error) {
	var totals [3]stats.Flow // all, a day ago, a week ago
	for _, it := range split[sectionTotals] {
		t, err := stats.Decode[stats.Totals](it.Row)
		if err != nil {
			return s, err
		}
		addFlow(&totals[0], &t.Flow)
		for i, n := range t.ByState {
			s.Deals.ByState[i] += n
			s.Deals.Total += n
		}
	}
	s.Deals.Active = s.Deals.ByState[contracts.DealFundedState]
	for i, section := range []byte{sectionFlowDay, sectionFlowWeek} {
		for _, it := range split[section] {
			f, err := stats.Decode[stats.Flow](it.Row)
			if err != nil {
				return s, err
			}
			addFlow(&totals[i+1], &f)
		}
	}
	s.Volume = windows(&totals[0].Volume, &totals[1].Volume, &totals[2].Volume)
	s.Fees = windows(&totals[0].Fees, &totals[1].Fees, &totals[2].Fees)
	s.Medians = medians
	if s.VolumeHistory, err = volumeHistory(split[sectionFlowHour], at.Timestamp); err != nil {
		return s, err
	}

	epoch, err := decodeFirst[topics.Epoch](split[sectionEpoch])
	if err != nil {
		return s, err
	}
	staking, err := decodeFirst[topics.Staking](split[sectionStaking])
	if err != nil {
		return s, err
	}
	s.Emissions.RatePerSecond = emissions(staking, at.Timestamp)
	if epoch != nil {
		s.Emissions.ReleasedThisEpoch = epoch.Released.Clone()
	}

	book, err := newPriceBook(split[sectionPool], m)
	if err != nil {
		return s, err
	}
	if s.TVL, err = lockedValue(split, book); err != nil {
		return s, err
	}
	s.PriceHistory, err = priceHistory(split, book, m, at.Timestamp)
	return s, err
}

func addFlow(to, f *stats.Flow) {
	to.Volume.Add(&to.Volume, &f.Volume)
	to.Fees.Add(&to.Fees, &f.Fees)
}

// volumeHistory is what was funded in each hour of a week, and in the current one so far.
func volumeHistory(items []read.Item, now uint64) ([]HourOfVolume, error) {
	sums := map[uint64]*stats.Flow{}
	for _, it := range items {
		f, err := stats.Decode[stats.Flow](it.Row)
		if err != nil || len(it.Key) != 8 {
			return nil, errors.Join(err, read.ErrMalformed)
		}
		n := binary.BigEndian.Uint64(it.Key)
		if sums[n] == nil {
			sums[n] = new(stats.Flow)
		}
		addFlow(sums[n], &f)
	}
	var all []HourOfVolume
	for start := historyStart(now); start <= now; start += prices.Hour {
		h := HourOfVolume{T: start}
		if f := sums[start/prices.Hour]; f != nil {
			h.Volume, h.Fees = f.Volume, f.Fees
		}
		all = append(all, h)
	}
	return all, nil
}

func windows(all, dayAgo, weekAgo *uint256.Int) (w Windows) {
	w.Total = *all
	w.Last24h.Sub(all, dayAgo)
	w.Last7d.Sub(all, weekAgo)
	return w
}

func readStats(_ context.Context, views *read.Views, q *statsQuery) ([]read.Item, error) {
	var c collector
	for i, v := range views.Of {
		for _, add := range []func(*collector, state.View, *statsQuery) error{addSums, addHistograms, addMarket} {
			if err := add(&c, v, q); err != nil {
				return nil, err
			}
		}
		if err := addContents(&c, v, q.keysIn(views.Partitions[i])); err != nil {
			return nil, err
		}
	}
	open, err := lowestOpen(views.Of, nil, maxOpenPositions+1)
	for _, p := range open {
		c.add(sectionOpenPosition, p.Key, []byte{})
	}
	return c.sorted(), err
}

// addSums adds the partition's totals, what they were a day and a week ago, and its collateral.
func addSums(c *collector, v state.View, _ *statsQuery) error {
	row, err := stats.ReadTotals(v)
	if err != nil {
		return err
	}
	c.add(sectionTotals, nil, row)
	now := v.At().Timestamp
	for section, window := range map[byte]uint64{sectionFlowDay: day, sectionFlowWeek: week} {
		if now < window {
			continue
		}
		row, err := stats.ReadFlow(v, now-window)
		if err != nil {
			return err
		}
		c.add(section, nil, row)
	}
	err = stats.ScanHours(v, historyStart(now), func(n uint64, added []byte) {
		c.add(sectionFlowHour, binary.BigEndian.AppendUint64(nil, n), added)
	})
	if err != nil {
		return err
	}
	return stats.ScanCollateral(v, c.addAll(sectionCollateral))
}

// addHistograms adds the roots of the histograms, and the requested nodes.
func addHistograms(c *collector, v state.View, q *statsQuery) error {
	return addCounts(c, v, slices.Concat(roots(), q.Counts.Nodes))
}

// keysIn are the positions requested from a partition.
func (q *statsQuery) keysIn(partition int32) []common.Hash {
	var keys []common.Hash
	for i, place := range q.Places {
		if place == anywhere || place == partition {
			keys = append(keys, q.Keys[i])
		}
	}
	return keys
}

// addMarket adds the pools that define prices, the price history of sTKN's pools, and the emissions.
func addMarket(c *collector, v state.View, q *statsQuery) error {
	m := &q.Market
	if err := addDecimals(c, v, m); err != nil {
		return err
	}
	now := v.At().Timestamp
	var history []common.Hash
	err := addPools(c, v, m, func(p *topics.Pool) {
		if pairs(p, m.TKN, m.USDG) {
			history = append(history, p.ID)
		}
	})
	if err != nil || m.Pool == (common.Hash{}) {
		return err
	}
	history = append(history, m.Pool)
	for _, id := range history {
		if err := addHours(c, v, id, now); err != nil {
			return err
		}
	}
	staking, err := v.Get(liquidity.Stakings, m.Pool[:])
	if err != nil {
		return err
	}
	c.add(sectionStaking, m.Pool[:], staking)
	return v.Scan(epochs.Epochs, nil, nil, func(key, row []byte) bool {
		c.add(sectionEpoch, bytes.Clone(key), row)
		return false
	})
}

// addPools adds the pools that define prices; fn is called for those that the registry allows.
func addPools(c *collector, v state.View, m *market, fn func(*topics.Pool)) error {
	var bad error
	err := v.ScanIndex(liquidity.IndexAllowedPool, nil, nil, func(key, row []byte) bool {
		var p topics.Pool
		if bad = p.UnmarshalBinary(row); bad == nil {
			c.add(sectionPool, key, row)
			fn(&p)
		}
		return bad == nil
	})
	if err = errors.Join(err, bad); err != nil || m.Pool == (common.Hash{}) {
		return err
	}
	row, err := v.Get(liquidity.Pools, m.Pool[:])
	c.add(sectionPool, m.Pool[:], row)
	return err
}

func pairs(p *topics.Pool, a, b common.Address) bool {
	return p.Currency0 == a && p.Currency1 == b || p.Currency0 == b && p.Currency1 == a
}
