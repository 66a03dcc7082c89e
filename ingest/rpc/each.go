package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
)

// A node that refuses receipts as too large causes as many calls as it claims transactions. So their number is bounded
// by the gas that the header proves, and calls that yield no proof, or nothing new, pause this way of fetching: in the
// long run an endpoint causes at most eachRate of them a second.
const (
	eachGas  = 4_500 // minimum gas of a transaction (EIP-2780), after refunds
	eachFree = 64    // system transactions of a block, which may take no gas
	eachRate = 2     // calls per second
)

// errPaused: fetching receipts one by one is paused, because the last ones did not match their block.
var errPaused = errors.New("fetching receipts one by one is paused for this endpoint")

// eachPart holds the receipts of a block that came one by one so far.
type eachPart struct {
	block  common.Hash
	hashes []common.Hash
	each   [][]byte // as the chain hashes them, a fraction of the JSON; the first `done` have come
	done   int
	size   int // bytes of each
	asked  int // calls
	owed   int // calls for other blocks that yielded no proof
}

// receiptsEach fetches the receipts of a block as the chain hashes them, or one by one in batches, and decodes them in
// order. A wrong list of transactions shows in the root. If it fails on the way, the next call continues.
//
// One block at a time: each holds all of its receipts.
func (e *endpoint) receiptsEach(ctx context.Context, h *follow.Header, r *receipts) error {
	select {
	case e.bigTurn <- struct{}{}:
		defer func() { <-e.bigTurn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	e.mu.Lock()
	until, p := e.eachAfter, e.each
	e.each = nil
	e.mu.Unlock()
	if p == nil {
		p = &eachPart{block: h.Hash}
	}
	if time.Now().Before(until) {
		e.keepEach(p, until)
		return fmt.Errorf("receipts of block %d: %w: %w", h.Number, errPaused, errTooBig)
	}
	if p.block != h.Hash {
		p = &eachPart{block: h.Hash, owed: p.asked + p.owed}
	}
	was, before := p.done, p.asked
	p.asked += 20 // so that other responses are paid for too
	err := e.transactionsOf(ctx, h, p)
	if err == nil && p.done == 0 {
		if has, failed := e.receiptsRaw(ctx, h, p.hashes, r); has {
			return nil
		} else if failed != nil {
			err = failed
		}
	}
	if err == nil {
		err = e.fetchEach(ctx, h, p)
	}
	switch {
	case ctx.Err() != nil:
		e.keepEach(p, time.Time{})
		return ctx.Err()
	case err == nil:
		r.reset()
		for _, encoded := range p.each {
			r.encoded = append(r.encoded, encoded...)
			r.ends = append(r.ends, len(r.encoded))
		}
		if root := r.root(); root != h.Receipts {
			err = lied("receipts_root", "receipts of block %d have root %s, the header %s", h.Number, root, h.Receipts)
		} else if err = r.logsOf(h, p.hashes); err == nil {
			return nil
		}
		e.keepEach(nil, paidFor(p.asked+p.owed)) // none was of use
	case errors.Is(err, errTooBig):
		e.keepEach(nil, paidFor(p.asked+p.owed))
	case p.done > was && p.owed == 0:
		e.keepEach(p, time.Now().Add(eachAgain)) // progress is bounded by the block
	default:
		owed := p.owed
		p.owed = 0
		e.keepEach(p, paidFor(p.asked-before+owed))
	}
	return err
}

// eachAgain is the pause after a failure on the way.
const eachAgain = 2 * time.Second

// paidFor is the time when calls are paid for at eachRate.
func paidFor(calls int) time.Time {
	return time.Now().Add(time.Duration(calls) * time.Second / eachRate)
}

// keepEach keeps the received part of one block for the next request, which comes not before `until`.
func (e *endpoint) keepEach(p *eachPart, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.each = p; until.After(e.eachAfter) {
		e.eachAfter = until
	}
}

// pausedEach reports whether a block's receipts are too large to fetch at once while fetching them one by one is
// paused.
func (e *endpoint) pausedEach(h *follow.Header) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.each != nil && e.each.block == h.Hash && e.receiptFailures[h.Hash] == nil && time.Now().Before(e.eachAfter)
}

// transactionsOf fetches the hashes of the transactions of a block.
func (e *endpoint) transactionsOf(ctx context.Context, h *follow.Header, p *eachPart) error {
	if p.hashes == nil {
		err := e.do(ctx, []call{{
			method: "eth_getBlockByHash", params: append(appendHex([]byte{'['}, h.Hash[:]), ",false]"...),
			result: func(s *scanner) (err error) {
				p.hashes, err = decodeTransactions(s)
				return err
			},
		}})
		if err != nil {
			p.hashes = nil
			return err
		}
		p.each = make([][]byte, len(p.hashes))
	}
	if most := eachFree + h.GasUsed/eachGas; uint64(len(p.hashes)) > most {
		n := len(p.hashes)
		*p = eachPart{block: p.block, asked: p.asked, owed: p.owed}
		return lied(lieRoot, "block %d has %d transactions, and gas for %d", h.Number, n, most)
	}
	return nil
}

// fetchEach fetches the receipts that are missing.
func (e *endpoint) fetchEach(ctx context.Context, h *follow.Header, p *eachPart) error {
	one := newReceipts()
	defer releaseReceipts(one)
	for p.done < len(p.hashes) {
		var bad error // of one response: a smaller batch would not help
		to := min(len(p.hashes), p.done+e.client.cfg.MaxBatch)
		calls := make([]call, 0, to-p.done)
		for i := p.done; i < to; i++ {
			calls = append(calls, call{
				method: "eth_getTransactionReceipt", params: append(appendHex([]byte{'['}, p.hashes[i][:]), ']'),
				result: func(s *scanner) error { // in any order
					if s.null() {
						return errNoBlock
					}
					raw, err := s.raw()
					if err != nil || bad != nil {
						return err
					}
					one.reset()
					if bad = one.one(&scanner{b: raw}); bad != nil {
						bad = fmt.Errorf("receipt %d of block %d: %w", i, h.Number, bad)
						return nil //nolint:nilerr // of this response alone: the others are read
					}
					if p.size += len(one.encoded) - len(p.each[i]); p.size > e.client.cfg.MaxBody {
						bad = fmt.Errorf("receipts of block %d: %w", h.Number, errTooBig)
						return nil
					}
					p.each[i] = bytes.Clone(one.encoded)
					return nil
				},
			})
		}
		p.asked += len(calls)
		if err := e.do(ctx, calls); err != nil {
			return err
		}
		if bad != nil {
			return malformedReply(bad)
		}
		p.done = to
	}
	return nil
}

// decodeTransactions decodes the hashes of a block's transactions.
func decodeTransactions(s *scanner) (hashes []common.Hash, err error) {
	if s.null() {
		return nil, errNoBlock
	}
	err = s.field("block", "transactions", func() error {
		hashes = nil
		return s.list("transactions", maxTransactions, func() error {
			hashes = append(hashes, common.Hash{})
			return s.fixed(hashes[len(hashes)-1][:])
		})
	})
	return hashes, err
}
