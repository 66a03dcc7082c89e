package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lienstream/lienstream/ingest/follow"
)

// A head is a claim: its header hashes right, and nothing says that the chain knows it.
const (
	// maxJump is how many blocks a head may be above what is verified, or was shown, without anybody showing it.
	maxJump = 64
	// maxStale is how many blocks a head may be below what is verified before its endpoint is rested.
	maxStale = 16
	// staleAgain is how often an endpoint whose head stands behind another's is asked all the same.
	staleAgain = 2 * time.Second
)

// Head asks one endpoint for the head of the chain, each in turn: one that stands still costs no more than a turn.
// verified is the last block that is known to be on the chain. A head far above it counts once another endpoint has
// one as high, or once the headers below it are there: until then the answer is lower.
func (c *Client) Head(ctx context.Context, verified uint64) (h follow.Header, err error) {
	err = c.try(ctx, choice{turn: turnHead}, func(ctx context.Context, e *endpoint) (err error) {
		if h, err = e.header(ctx, `"latest"`); err != nil {
			return err
		}
		if others := c.top(e); h.Number+maxStale < min(verified, others) {
			e.saw(h.Number)
			return lied("stale_head", "head is %d, but block %d is verified and another endpoint is at %d", h.Number, verified, others)
		}
		if !c.Plausible(h.Number, verified) {
			if h, err = c.shown(ctx, e, h, verified); err != nil {
				return err
			}
		}
		e.saw(h.Number)
		return nil
	})
	if err != nil {
		return h, fmt.Errorf("fetch head: %w", err)
	}
	return h, nil
}

// Plausible says whether a head needs nobody to show it.
func (c *Client) Plausible(head, verified uint64) bool {
	return head <= max(verified, c.highest.Load())+maxJump
}

// Forget forgets which heads were shown: blocks below them are not to be had.
func (c *Client) Forget() { c.highest.Store(0) }

// shown returns as much of a claimed head as is shown by another endpoint, or by the claimant's own headers.
func (c *Client) shown(ctx context.Context, by *endpoint, claim follow.Header, verified uint64) (follow.Header, error) {
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
		alone = false
		if other.Number+maxJump >= claim.Number {
			c.raise(claim.Number)
			return claim, nil
		}
		if other.Number > verified {
			c.raise(other.Number)
			return other, nil
		}
	}
	number := claim.Number - 1
	if !alone {
		number = verified + maxJump // step by step: what is fetched has to link
	}
	below, err := by.byNumber(ctx, number)
	switch {
	case errors.Is(err, errNoBlock), err == nil && alone && below.Hash != claim.Parent:
		return claim, lied("inflated_head", "head is %d, but block %d below it is missing", claim.Number, number)
	case err != nil:
		return claim, err
	case alone:
		c.raise(claim.Number)
		return claim, nil
	}
	return below, nil
}

// byNumber asks for one header.
func (e *endpoint) byNumber(ctx context.Context, number uint64) (follow.Header, error) {
	h, err := e.header(ctx, string(appendQuantity(nil, number)))
	if err == nil && h.Number != number {
		err = lied("wrong_block", "requested block %d, got %d", number, h.Number)
	}
	return h, err
}

// raise notes a head that was shown.
func (c *Client) raise(n uint64) {
	for {
		was := c.highest.Load()
		if n <= was || c.highest.CompareAndSwap(was, n) {
			return
		}
	}
}

// tag is a block that nodes know by a name.
type tag uint8

const (
	tagFinalized tag = iota
	tagSafe

	tags
)

var tagNames = [tags]string{tagFinalized: "finalized", tagSafe: "safe"}

// claim is what an endpoint said that a tag is.
type claim struct {
	number uint64
	at     time.Time
}

// Finalized asks one endpoint, each in turn, for the finalized block, and returns the number that two have claimed of
// late, or the only one that has. 0: none is known. A tag that once worked is never replaced by a guess: who does not
// know it any more changes nothing.
func (c *Client) Finalized(ctx context.Context) (uint64, error) {
	return c.tagged(ctx, tagFinalized, turnFinal)
}

// Safe is Finalized for the safe block: one that only a reorg of the chain below would take back.
func (c *Client) Safe(ctx context.Context) (uint64, error) { return c.tagged(ctx, tagSafe, turnSafe) }

func (c *Client) tagged(ctx context.Context, t tag, turn turn) (uint64, error) {
	err := c.try(ctx, choice{turn: turn}, func(ctx context.Context, e *endpoint) error {
		h, err := e.header(ctx, `"`+tagNames[t]+`"`)
		// Whatever a node says but a block, in the words of its client, is that it knows none.
		if _, said := errors.AsType[*Error](err); errors.Is(err, errNoBlock) || said && classify(err) != classRate {
			c.metrics.errors.WithLabelValues(e.name, classTag.String()).Inc()
			return nil
		}
		if err == nil {
			e.claim(t, h.Number)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("fetch %s block: %w", tagNames[t], err)
	}
	two, one := c.claims(t)
	return max(two, one), nil
}

// claimsLast is for how long a claim is held against others.
const claimsLast = time.Minute

// claims are the highest block that two endpoints have claimed a tag to be, and, where only one has, what it claimed.
func (c *Client) claims(t tag) (two, one uint64) {
	var all []uint64
	for _, e := range c.endpoints {
		e.mu.Lock()
		if said := e.claims[t]; time.Since(said.at) < claimsLast {
			all = append(all, said.number)
		}
		e.mu.Unlock()
	}
	slices.Sort(all)
	switch n := len(all); n {
	case 0:
		return 0, 0
	case 1:
		return 0, all[0]
	default:
		return all[n-2], 0
	}
}

// Backed says whether more than one endpoint has ever claimed that a block is final; where there is only one, it does.
func (c *Client) Backed(n uint64) bool {
	by := 0
	for _, e := range c.endpoints {
		e.mu.Lock()
		if e.vouched >= n {
			by++
		}
		e.mu.Unlock()
	}
	return by >= min(2, len(c.endpoints))
}

func (e *endpoint) claim(t tag, n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claims[t] = claim{n, time.Now()}
	if t == tagFinalized {
		e.vouched = max(e.vouched, n)
	}
}

// saw notes a head that the endpoint told of.
func (e *endpoint) saw(head uint64) {
	top := e.client.top(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.head, e.behind = head, head < top
}

// has notes a block that the endpoint has.
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
