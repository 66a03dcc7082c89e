package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rlp"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// If the receipts of a block are too large for one response of an endpoint, these ways are tried in order:
//
//  1. another endpoint that returns them at once;
//  2. debug_getRawReceipts, the receipts as the chain hashes them: a third of the bytes;
//  3. one by one (each.go), a call a transaction: no other method returns a part of what the root covers.
//
// Many endpoints do not report that receipts are too large: a gateway times out, a page of HTML comes, half a
// response, or none. So repeated failures of that kind count as too large, if the endpoint can list the block's
// transactions at the same time; one that is down cannot.

// wholeAgain is how long other endpoints are preferred to one that did not return a block's receipts at once, and how
// long one that did not return raw receipts is not asked for them.
const (
	wholeAgain = time.Minute
	noneAgain  = 10 * time.Minute // the same, if it lacks the method
)

const (
	enoughFailures     = 2    // failures in a row after which the receipts of a block may be too large
	enoughThrottled    = 8    // the same, if it throttles; each comes after a pause
	maxReceiptFailures = 1024 // blocks with a count
)

// tooBig reports whether a request for the receipts of blocks failed because some are too large, and returns the
// error.
func (e *endpoint) tooBig(ctx context.Context, headers []follow.Header, done []bool, sent time.Time, err error) (bool, error) {
	e.mu.Lock()
	for i := range headers {
		if done[i] || err != nil && classify(err) == classRange {
			delete(e.receiptFailures, headers[i].Hash)
		}
	}
	e.mu.Unlock()
	at := slices.Index(done, false)
	if err == nil || ctx.Err() != nil || at < 0 {
		return false, err
	}
	enough := enoughFailures
	switch c := classify(err); {
	case c == classRange:
		return true, err
	case c == classRate:
		enough = enoughThrottled
	case c == classLie:
		if l, _ := errors.AsType[*lie](err); l.kind != "malformed" && l.kind != "batch" {
			return false, err
		}
	case c != classOther:
		return false, err
	}
	h := &headers[at]
	if n, paused := e.failedAt(h, sent, 0); n < enough || paused {
		return false, err
	}
	if len(headers) > 1 { // one block at a time from now on
		for i := at + 1; i < len(headers); i++ {
			if !done[i] {
				e.failedAt(&headers[i], sent, enough)
			}
		}
		return true, err
	}
	p := &eachPart{block: h.Hash}
	if other := e.transactionsOf(ctx, h, p); other != nil {
		if c := classify(other); ctx.Err() != nil || c == classLie || c == classGone {
			return false, other
		}
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.each == nil {
		e.each = p
	}
	return true, err
}

// failedAt counts a request that failed with the receipts of a block, and returns the count, at least `least`. paused:
// fetching them one by one is paused.
func (e *endpoint) failedAt(h *follow.Header, sent time.Time, least int) (n int, paused bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.receiptFailures[h.Hash]
	if s == nil {
		if len(e.receiptFailures) >= maxReceiptFailures {
			clear(e.receiptFailures)
		}
		s = &streak{}
		e.receiptFailures[h.Hash] = s
	}
	return s.add(sent, least), time.Now().Before(e.eachAfter)
}

// deferToOthers reports whether receipts that the endpoint does not return at once should come from others first. It
// does so once in an attempt: after that no other has them.
func (e *endpoint) deferToOthers(a *attempt) bool {
	e.mu.Lock()
	e.parts = time.Now().Add(wholeAgain)
	e.mu.Unlock()
	if a == nil || e.client.only() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	first := !a.parts[e]
	a.parts[e] = true
	return first
}

// receiptsRaw fetches the receipts of a block as the chain hashes them, and decodes them. hashes are those of its
// transactions. It reports whether it succeeded. An endpoint that lacks them, or returns others, is not asked again
// for a while, and is no liar: some encode receipts in another way than their chain hashes them.
func (e *endpoint) receiptsRaw(ctx context.Context, h *follow.Header, hashes []common.Hash, r *receipts) (bool, error) {
	e.mu.Lock()
	not := time.Now().Before(e.unencoded)
	e.mu.Unlock()
	if not {
		return false, nil
	}
	r.reset()
	err := e.do(ctx, []call{{
		method: "debug_getRawReceipts", params: append(appendHex([]byte{'['}, h.Hash[:]), ']'),
		result: func(s *scanner) error {
			r.reset()
			if s.null() {
				return errNoBlock
			}
			return s.list("receipts", len(hashes), func() error { return r.encodedOne(s) })
		},
	}})
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err == nil && len(r.ends) != len(hashes):
		err = fmt.Errorf("%d receipts of %d transactions", len(r.ends), len(hashes))
	case err == nil && r.root() != h.Receipts:
		err = errors.New("they do not have the header's root")
	case err == nil:
		err = r.logsOf(h, hashes)
	}
	if err == nil {
		return true, nil
	}
	pause := wholeAgain
	if classify(err) == classMethod {
		pause = noneAgain
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unencoded = time.Now().Add(pause)
	return false, nil
}

// encodedOne decodes a receipt as the chain hashes it.
func (r *receipts) encodedOne(s *scanner) error {
	v, err := s.digits()
	if err != nil {
		return err
	}
	if len(v)%2 > 0 || len(v) == 0 {
		return errHex
	}
	from := len(r.encoded)
	r.encoded = append(r.encoded, make([]byte, len(v)/2)...)
	r.ends = append(r.ends, len(r.encoded))
	return unhex(r.encoded[from:], v)
}

// logsOf decodes the logs of the encoded receipts of a block, whose transactions have these hashes.
func (r *receipts) logsOf(h *follow.Header, hashes []common.Hash) error {
	r.hashes = append(r.hashes[:0], hashes...)
	from := 0
	for tx, end := range r.ends {
		if err := r.logsIn(h, tx, r.encoded[from:end]); err != nil {
			return fmt.Errorf("receipt %d: %w", tx, err)
		}
		from = end
		r.upTo = append(r.upTo, len(r.logs.logs))
	}
	return nil
}

func (r *receipts) logsIn(h *follow.Header, tx int, b []byte) error {
	if b[0] <= 0x7f { // its type
		b = b[1:]
	}
	fields, _, err := rlp.SplitList(b)
	for range 3 { // status or root, gas, bloom filter
		if err == nil {
			_, fields, err = rlp.SplitString(fields)
		}
	}
	if err != nil {
		return err
	}
	_, after, err := rlp.SplitList(fields)
	if err != nil {
		return err
	}
	var logs []*types.Log
	if err := rlp.DecodeBytes(fields[:len(fields)-len(after)], &logs); err != nil {
		return err
	}
	for _, l := range logs {
		if len(r.logs.logs) >= math.MaxUint32 || len(l.Topics) > 4 {
			return errMissing
		}
		r.logs.logs = append(r.logs.logs, topics.Log{
			Block: h.BlockRef, TxHash: r.hashes[tx], TxIndex: uint32(tx), LogIndex: uint32(len(r.logs.logs)), //nolint:gosec // of a block
			Address: l.Address, Topics: l.Topics, Data: l.Data,
		})
	}
	return nil
}
