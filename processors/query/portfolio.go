package query

import (
	"bytes"
	"context"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/balances"
	"github.com/lienstream/lienstream/processors/deals"
	"github.com/lienstream/lienstream/processors/drips"
	"github.com/lienstream/lienstream/processors/state"
	"github.com/lienstream/lienstream/topics"
)

// Portfolio implements MarketReader.
func (r *Router) Portfolio(ctx context.Context, wallet common.Address) (Answer[Portfolio], error) {
	req := &request{Op: opPortfolio, Wallet: wallet, Limit: unlimited}
	req.Market.AccountPartition = r.accountPartition(wallet)
	a, err := r.read(ctx, r.all, req)
	if err != nil {
		return Answer[Portfolio]{}, err
	}
	p, err := decodePortfolio(a, wallet)
	return Answer[Portfolio]{At: a.At, Value: p}, err
}

func decodePortfolio(a *answer, wallet common.Address) (p Portfolio, err error) {
	split, err := inSections(a.Items)
	if err != nil {
		return p, err
	}
	for _, it := range clip(split[sectionDeal]) {
		d, err := decodeListedDeal(it)
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
	for _, it := range split[sectionSummary] {
		if err := p.Summary.add(it.row); err != nil {
			return p, err
		}
	}
	if p.Bids, err = decodeAll[topics.Bid](clip(split[sectionBid])); err != nil {
		return p, err
	}
	if p.Balances, err = decodeAll[topics.Balance](clip(split[sectionBalance])); err != nil {
		return p, err
	}
	p.Drips, err = dripsAt(clip(split[sectionDrip]), a.At.Timestamp)
	return p, err
}

// clip bounds a list whose parts are bounded alike.
func clip(items []item) []item { return items[:min(len(items), MaxPortfolio)] }

// readPortfolio reads a wallet's deals and bids in every partition, and what is the account's in its own.
func readPortfolio(views []state.View, req *request) ([]item, error) {
	var c collector
	prefix := deals.WalletPrefix(req.Wallet)
	found, err := lowest(views, MaxPortfolio, func(v state.View, visit visitor) error {
		var (
			sums Summary
			bad  error
		)
		more := true
		err := v.ScanIndex(deals.IndexWallet, prefix, nil, func(entry, value []byte) bool {
			w, err := deals.DecodeWalletEntry(value)
			if err != nil {
				bad = err
				return false
			}
			sums.count(&w)
			more = more && visit(entry[len(prefix):], nil, true)
			return true
		})
		c.add(sectionSummary, nil, sums.append(nil))
		if err == nil {
			err = bad
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	rows, err := withRows(found)
	if err != nil {
		return nil, err
	}
	for _, it := range rows {
		it.key = sectionKey(sectionDeal, it.key)
		c.items = append(c.items, it)
	}
	for i, v := range views {
		if err := addBids(&c, v, req.Wallet); err != nil {
			return nil, err
		}
		if req.Partitions[i] != req.Market.AccountPartition {
			continue
		}
		if err := v.Scan(balances.Balances, req.Wallet[:], nil, c.upTo(MaxPortfolio, sectionBalance)); err != nil {
			return nil, err
		}
		if err := addDrips(&c, v, req); err != nil {
			return nil, err
		}
	}
	return c.sorted(), nil
}

func addBids(c *collector, v state.View, lender common.Address) error {
	prefix := deals.LenderPrefix(lender)
	var entries [][]byte
	err := v.ScanIndex(deals.IndexLenderBid, prefix, nil, func(entry, _ []byte) bool {
		entries = append(entries, bytes.Clone(entry[len(prefix):]))
		return len(entries) < MaxPortfolio
	})
	if err != nil {
		return err
	}
	for _, entry := range entries {
		row, err := v.Get(deals.Bids, deals.BidKey(deals.ID(entry), deals.ID(entry[:common.HashLength])))
		if err != nil {
			return err
		}
		c.add(sectionBid, entry, row)
	}
	return nil
}

func addDrips(c *collector, v state.View, req *request) error {
	return v.Scan(drips.Drips, req.Wallet[:], nil, c.upTo(MaxPortfolio, sectionDrip))
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
		return errMalformed
	}
	for i, w := range words {
		w.Add(w, new(uint256.Int).SetBytes32(row[i*32:]))
	}
	return nil
}
