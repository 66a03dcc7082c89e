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
	"github.com/lienstream/lienstream/processors/market/balances"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/drips"
	"github.com/lienstream/lienstream/topics"
)

// Portfolio implements MarketReader.
func (c *Client) Portfolio(ctx context.Context, wallet common.Address) (Answer[Portfolio], error) {
	a, err := c.Read(ctx, read.Request{Operation: opPortfolio, Query: &portfolioQuery{wallet, c.accountPartition(wallet)}})
	if err != nil {
		return Answer[Portfolio]{}, err
	}
	p, err := decodePortfolio(a, wallet)
	return Answer[Portfolio]{At: a.Block, Value: p}, err
}

func decodePortfolio(a *read.Response, wallet common.Address) (p Portfolio, err error) {
	split, err := inSections(a.Items)
	if err != nil {
		return p, err
	}
	for _, it := range split[sectionDeal] {
		d, err := decodeDeal(it)
		if err != nil {
			return p, err
		}
		if d.Deal.Borrower == wallet {
			p.AsBorrower = append(p.AsBorrower, d)
		}
		if d.Deal.Funding != nil && d.Deal.Funding.Lender == wallet {
			p.AsLender = append(p.AsLender, d)
		}
	}
	p.AsBorrower = clip(p.AsBorrower, &p.Truncated)
	p.AsLender = clip(p.AsLender, &p.Truncated)
	for _, it := range split[sectionSummary] {
		if err := p.Summary.add(it.Row); err != nil {
			return p, err
		}
	}
	if p.Bids, err = decodeAll[topics.Bid](clip(split[sectionBid], &p.Truncated)); err != nil {
		return p, err
	}
	if p.Balances, err = decodeAll[topics.Balance](clip(split[sectionBalance], &p.Truncated)); err != nil {
		return p, err
	}
	p.Drips, err = dripsAt(clipNewest(split[sectionDrip], &p.Truncated), a.Block.Timestamp)
	return p, err
}

// clip bounds a list of which each part has one more than the bound where there is more.
func clip[T any](all []T, truncated *bool) []T {
	if len(all) <= MaxPortfolio {
		return all
	}
	*truncated = true
	return all[:MaxPortfolio]
}

// clipNewest bounds a list that ascends by age: the newest are its last.
func clipNewest[T any](all []T, truncated *bool) []T {
	if len(all) <= MaxPortfolio {
		return all
	}
	*truncated = true
	return all[len(all)-MaxPortfolio:]
}

// readPortfolio reads a wallet's deals and bids in every partition, and what is the account's in its own.
func readPortfolio(_ context.Context, views *read.Views, q *portfolioQuery) ([]read.Item, error) {
	var c collector
	found, err := walletDeals(&c, views.Of, q.Wallet)
	if err != nil {
		return nil, err
	}
	rows, err := withRows(found)
	if err != nil {
		return nil, err
	}
	for _, it := range rows {
		it.Key = sectionKey(sectionDeal, it.Key)
		c.items = append(c.items, it)
	}
	for i, v := range views.Of {
		if err := addBids(&c, v, q.Wallet); err != nil {
			return nil, err
		}
		if views.Partitions[i] != q.Home {
			continue
		}
		if err := v.Scan(balances.Balances, q.Wallet[:], nil, c.upTo(MaxPortfolio+1, sectionBalance)); err != nil {
			return nil, err
		}
		if err := addDrips(&c, v, q.Wallet); err != nil {
			return nil, err
		}
	}
	return c.sorted(), nil
}

// walletDeals finds the newest deals of a wallet in each of its roles, each bounded by itself: many deals in
// the one push none of the other out. What all of them sum up to is gathered by the way.
func walletDeals(c *collector, views []state.View, wallet common.Address) ([]position, error) {
	prefix := deals.WalletPrefix(wallet)
	key := func(p *position) []byte { return p.Key }
	var borrowed, lent, merged []position
	for _, v := range views {
		var (
			sums           Summary
			owned, claimed []position // of this view, the newest first
			bad            error
		)
		err := v.ScanIndex(deals.IndexWallet, prefix, nil, func(entry, value []byte) bool {
			w, err := deals.DecodeWalletEntry(value)
			if err != nil {
				bad = err
				return false
			}
			sums.count(&w)
			owns, claims := w.Borrower && len(owned) <= MaxPortfolio, w.Lender && len(claimed) <= MaxPortfolio
			if !owns && !claims {
				return true
			}
			p := position{read.Item{Key: bytes.Clone(entry[len(prefix):])}, v}
			if owns {
				owned = append(owned, p)
			}
			if claims {
				claimed = append(claimed, p)
			}
			return true
		})
		if err == nil {
			err = bad
		}
		if err != nil {
			return nil, err
		}
		c.add(sectionSummary, nil, sums.append(nil))
		merged, borrowed = borrowed, read.Merge(merged[:0], borrowed, owned, MaxPortfolio+1, key)
		merged, lent = lent, read.Merge(merged[:0], lent, claimed, MaxPortfolio+1, key)
	}
	both := read.Merge(nil, borrowed, lent, len(borrowed)+len(lent), key)
	return slices.CompactFunc(both, func(p, q position) bool { return bytes.Equal(p.Key, q.Key) }), nil
}

func addBids(c *collector, v state.View, lender common.Address) error {
	prefix := deals.LenderPrefix(lender)
	var entries [][]byte
	err := v.ScanIndex(deals.IndexLenderBid, prefix, nil, func(entry, _ []byte) bool {
		entries = append(entries, bytes.Clone(entry[len(prefix):]))
		return len(entries) <= MaxPortfolio
	})
	if err != nil {
		return err
	}
	for _, entry := range entries {
		row, err := bidAt(v, entry)
		if err != nil {
			return err
		}
		c.add(sectionBid, entry, row)
	}
	return nil
}

// addDrips adds the newest drips of an account, and what all of them sum up to at the view's block.
func addDrips(c *collector, v state.View, account common.Address) error {
	var (
		rows [][2][]byte // a ring of the newest: a scan ascends by ID
		n    int
		sums dripSums
		bad  error
	)
	now := v.At().Timestamp
	err := v.Scan(drips.Drips, account[:], nil, func(key, row []byte) bool {
		var d topics.Drip
		if bad = d.UnmarshalBinary(row); bad != nil {
			return false
		}
		sums.count(&d, now)
		own := [2][]byte{bytes.Clone(key), bytes.Clone(row)}
		if n++; n <= MaxPortfolio+1 {
			rows = append(rows, own)
		} else {
			rows[(n-1)%len(rows)] = own
		}
		return true
	})
	if err == nil && bad != nil {
		err = fmt.Errorf("decode drip: %w", bad)
	}
	if err != nil {
		return err
	}
	for _, r := range rows {
		c.add(sectionDrip, r[0], r[1])
	}
	c.add(sectionDripSum, nil, sums.append(nil))
	return nil
}

// upTo gathers the first rows of a scan.
func (c *collector) upTo(limit int, section byte) func(key, row []byte) bool {
	return func(key, row []byte) bool {
		c.add(section, key, row)
		limit--
		return limit > 0
	}
}

// count adds what a deal is to the wallet.
func (s *Summary) count(w *deals.WalletEntry) {
	if w.Borrower {
		s.ReceivedAlready.Add(&s.ReceivedAlready, new(uint256.Int).Sub(&w.Price, &w.Fee))
	}
	if w.Lender {
		s.PaidOut.Add(&s.PaidOut, &w.Price)
	}
	if w.State != contracts.DealFundedState {
		return
	}
	if w.Borrower {
		s.StillAtStake.Add(&s.StillAtStake, &w.Cap)
	}
	if w.Lender {
		s.AwaitingExpiry.Add(&s.AwaitingExpiry, &w.Cap)
	}
}

func (s *Summary) words() [4]*uint256.Int {
	return [...]*uint256.Int{&s.ReceivedAlready, &s.StillAtStake, &s.PaidOut, &s.AwaitingExpiry}
}

// append makes a row of a partition's share.
func (s *Summary) append(b []byte) []byte {
	for _, w := range s.words() {
		raw := w.Bytes32()
		b = append(b, raw[:]...)
	}
	return b
}

// add adds a partition's share.
func (s *Summary) add(row []byte) error {
	words := s.words()
	if len(row) != len(words)*32 {
		return read.ErrMalformed
	}
	for i, w := range words {
		w.Add(w, new(uint256.Int).SetBytes32(row[i*32:]))
	}
	return nil
}
