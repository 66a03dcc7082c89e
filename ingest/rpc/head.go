package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
)

// A head is only a claim: its header's hash is right, but nothing shows that the block is on the chain.
const (
	// maxJump is how many blocks a head may be above the verified or confirmed ones without confirmation.
	maxJump = 64
	// maxStale is how many blocks a head may be below the verified ones before its endpoint is paused.
	maxStale = 16
	// staleAgain is how often an endpoint that is behind or slow is asked for its head all the same.
	staleAgain = 2 * time.Second
	// doubtFor is how long every head of an endpoint needs confirmation after blocks below one were missing. It
	// doubles each time.
	doubtFor    = time.Minute
	maxDoubtFor = 16 * time.Minute
	// excusedRest is the shortest time for which an excused endpoint is not followed above the others.
	excusedRest = time.Second
)

// Head fetches the chain's head from one endpoint, each in turn, so that a stalled endpoint costs one turn only.
// verified is the last block known to be on the chain. A head far above it is accepted once another endpoint is as
// high, or once the headers below it are there; until then a lower head is returned.
func (c *Client) Head(ctx context.Context, verified uint64) (Announcement, error) {
	poll := ctx
	h, by, err := hedged(ctx, c, choice{turn: turnHead}, func(ctx context.Context, e *endpoint) (follow.Header, error) {
		h, err := e.latest(poll, ctx)
		if err != nil {
			return h, err
		}
		e.recordHead(h, false)
		if e.isAhead(h.Number) {
			return h, fmt.Errorf("head %d is at a height that most endpoints lack: %w", h.Number, errNoBlock)
		}
		if others := c.top(e); above(min(verified, others), h.Number) > maxStale {
			e.saw(&h, true)
			return h, lied("stale_head", "head is %d, but block %d is verified and another endpoint is at %d", h.Number, verified, others)
		}
		if h.Number > verified && e.doubts(h.Hash) {
			if err := e.leadsUpTo(ctx, h); err != nil {
				return h, err
			}
			e.confirmHead(h.Hash)
		}
		if !c.Plausible(h.Number, verified) {
			if h, err = c.confirmedPart(ctx, e, h, verified); err != nil {
				return h, err
			}
		}
		e.saw(&h, false)
		return h, nil
	})
	if err != nil {
		return Announcement{Header: h}, fmt.Errorf("fetch head: %w", err)
	}
	return Announcement{Header: h, By: slices.Index(c.endpoints, by)}, nil
}

// Plausible reports whether a head needs no confirmation.
func (c *Client) Plausible(head, verified uint64) bool {
	return above(head, max(verified, c.highest.Load())) <= maxJump
}

// Forget forgets the confirmed heads, after blocks below the head of endpoint `by` turned out to be missing. For a
// while that endpoint must prove each of its heads and is not followed above the others, or its next claim would stop
// the blocks again. It is excused if it was throttling, or if a reorg replaced the head: then it is only not followed
// above the others, for a second, and longer each time.
func (c *Client) Forget(by int, replaced bool) {
	c.highest.Store(0)
	now := time.Now()
	for i, e := range c.endpoints {
		e.mu.Lock()
		if i == by {
			e.claimMissing(now, replaced)
		}
		e.behind = false // perhaps only that head was higher
		e.mu.Unlock()
	}
}

// Replaced reports whether a head whose blocks are missing was on the chain: another endpoint knows it by its hash, as
// nodes do after a reorg.
func (c *Client) Replaced(ctx context.Context, head Announcement) bool {
	others := slices.DeleteFunc(slices.Clone(c.endpoints), func(e *endpoint) bool { return e == c.endpoints[head.By] || e.throttled() })
	return c.knows(ctx, head.Hash, claimWait, others)
}

// claimMissing records that blocks which the endpoint announced were missing. The caller holds mu.
func (e *endpoint) claimMissing(now time.Time, replaced bool) {
	a := &e.announced
	var until time.Time
	if replaced || now.Before(e.throttle) {
		until = latest(e.throttle, now.Add(a.excused.add(now, 2*doubtFor, excusedRest, doubtFor)))
	} else {
		until = now.Add(a.doubts.add(now, forkMemory, doubtFor, maxDoubtFor))
		e.doubt = until
		e.head, a.newest = 0, follow.Header{}
	}
	a.claims = latest(a.claims, until)
}

// confirmedPart returns the part of a claimed head that another endpoint, or the claimant's own headers, confirm.
func (c *Client) confirmedPart(ctx context.Context, by *endpoint, claim follow.Header, verified uint64) (follow.Header, error) {
	alone := true
	for _, e := range c.endpoints {
		if e == by || e.resting() {
			continue
		}
		other, err := e.header(ctx, `"latest"`)
		if err != nil {
			e.failed(err)
			continue
		}
		e.recordHead(other, false)
		alone = false
		if above(claim.Number, other.Number) <= maxJump {
			c.raise(claim.Number)
			return claim, nil
		}
		if other.Number > verified {
			c.raise(other.Number)
			return other, nil
		}
	}
	if alone {
		if err := by.leadsUpTo(ctx, claim); err != nil {
			return claim, err
		}
		c.raise(claim.Number)
		return claim, nil
	}
	number := verified + maxJump // step by step: the fetched blocks must link
	below, err := by.byNumber(ctx, number)
	switch {
	case err == nil:
		by.remember(below)
	case errors.Is(err, errNoBlock):
		err = lied("inflated_head", "head is %d, but block %d below it is missing", claim.Number, number)
	}
	return below, err
}

// doubted reports whether a head of the endpoint needs confirmation.
func (e *endpoint) doubted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.doubt)
}

// doubts reports whether a polled head of the endpoint needs confirmation and has none yet.
func (e *endpoint) doubts(head common.Hash) bool {
	if e.client.only() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.doubt) && e.confirmedHead != head
}

// confirmHead records that the endpoint has the block below its head, so that the same head costs no further call.
func (e *endpoint) confirmHead(head common.Hash) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.confirmedHead = head
}

// leadsUpTo checks that the endpoint has the block below its head.
func (e *endpoint) leadsUpTo(ctx context.Context, head follow.Header) error {
	if head.Number == 0 {
		return nil
	}
	below, err := e.byNumber(ctx, head.Number-1)
	switch {
	case errors.Is(err, errNoBlock), err == nil && below.Hash != head.Parent:
		return lied("inflated_head", "head is %d, but block %d below it is missing", head.Number, head.Number-1)
	case err != nil:
		return err
	}
	return nil
}

// byNumber fetches one header.
func (e *endpoint) byNumber(ctx context.Context, number uint64) (follow.Header, error) {
	h, err := e.header(ctx, string(appendQuantity(nil, number)))
	if err == nil && h.Number != number {
		err = lied("wrong_block", "requested block %d, got %d", number, h.Number)
	}
	return h, err
}

// raise records a confirmed head.
func (c *Client) raise(n uint64) {
	for {
		was := c.highest.Load()
		if n <= was || c.highest.CompareAndSwap(was, n) {
			return
		}
	}
}

// saw records a head that the endpoint reported. stale: it is far below what is verified.
func (e *endpoint) saw(h *follow.Header, stale bool) {
	e.recordBlock(h, false)
	top := e.client.top(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.head, e.behind, e.announced.stale = h.Number, h.Number < top, stale
}

// has records a block that the endpoint has.
func (e *endpoint) has(n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.head = max(e.head, n)
}

func (e *endpoint) resting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.rest)
}
