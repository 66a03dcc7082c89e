package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
)

// tag is a block tag such as finalized.
type tag uint8

const (
	tagFinalized tag = iota
	tagSafe

	tags
)

var tagNames = [tags]string{tagFinalized: "finalized", tagSafe: "safe"}

// claim is the block that an endpoint returned for a tag.
type claim struct {
	number uint64
	hash   common.Hash
	at     time.Time
	busy   bool // a request for it is running
}

// Finalized asks all endpoints for the finalized block. It returns the number that two of them have recently claimed,
// or one if no other has an answer. 0: they have no such block; an error: none has answered yet. Once the tag has
// worked, an endpoint that no longer supports it changes nothing.
func (c *Client) Finalized(ctx context.Context) (uint64, error) { return c.tagged(ctx, tagFinalized) }

// AskSafe is Finalized for the safe block, which is reverted only by a reorg of the parent chain. Safe is what came of it.
func (c *Client) AskSafe(ctx context.Context) error {
	_, err := c.tagged(ctx, tagSafe)
	return err
}

// Safe returns the safe block that two endpoints have recently claimed, or one if no other has an answer. upTo returns up to
// which block the caller's chain is that of a claimed block, or false if it does not know yet: then the claim does not
// count. So a claim of another branch makes no block safe that took another one's place. The hash is zero where no
// claimed block is the caller's; 0: there is none.
func (c *Client) Safe(upTo func(topics.BlockRef) (number uint64, known bool)) (safe topics.BlockRef) {
	var numbers []uint64
	all := c.claimed(tagSafe)
	for _, b := range all {
		if n, known := upTo(b); known {
			numbers = append(numbers, n)
		}
	}
	two, one := byTwo(numbers)
	safe.Number = max(two, one)
	for _, b := range all {
		if n, known := upTo(b); known && b.Number == safe.Number && n == b.Number {
			safe = b
		}
	}
	return safe
}

// tagged waits until two endpoints have answered, for the second at most claimWait. A later answer counts the next
// time.
func (c *Client) tagged(ctx context.Context, t tag) (uint64, error) {
	ended := make(chan error, len(c.endpoints))
	asked, began := 0, time.Now()
	for _, e := range c.endpoints {
		if c.only() || !e.resting() {
			asked++
			go func() { ended <- e.fetchTag(ctx, t) }()
		}
	}
	wait := time.NewTimer(claimWait)
	defer wait.Stop()
	var errs error
	answered := 0
	for running, said := asked, 0; running > 0 && said < 2; {
		select {
		case err := <-ended:
			running--
			if errs = errors.Join(errs, err); err == nil {
				answered++
			}
			said = c.claimedSince(t, began)
		case <-wait.C:
			running = 0
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	two, one := c.claims(t)
	switch {
	case asked == 0:
		errs = errors.New("all endpoints are paused after failures")
	case answered == 0 && errs == nil:
		errs = errPending
	}
	if two == 0 && one == 0 && errs != nil {
		return 0, fmt.Errorf("fetch %s block: %d of %d endpoints asked: %w", tagNames[t], asked, len(c.endpoints), errs)
	}
	return max(two, one), nil
}

var (
	errPending        = errors.New("endpoint has not answered yet")
	errEndpointPaused = errors.New("endpoint is paused after failures")
)

// fetchTag fetches a tag's block, one request at a time. It waits for a short pause of the endpoint.
func (e *endpoint) fetchTag(ctx context.Context, t tag) error {
	if !e.rested(ctx, claimWait) {
		return errEndpointPaused
	}
	e.mu.Lock()
	busy := e.claims[t].busy
	e.claims[t].busy = true
	e.mu.Unlock()
	if busy {
		return errPending
	}
	bounded, cancel := allow(ctx, e.client.cfg.Timeout) // waiting for our own rate limit is no failure
	defer cancel()
	err := e.tagged(bounded, t)
	e.mu.Lock()
	e.claims[t].busy = false
	e.mu.Unlock()
	switch {
	case err == nil:
		e.well()
	case ctx.Err() == nil:
		e.failed(err)
		err = fmt.Errorf("%s: %w", e.name, e.redact(err))
	}
	return err
}

// claimedSince is how many endpoints have claimed a tag's block since a time.
func (c *Client) claimedSince(t tag, since time.Time) (n int) {
	for _, e := range c.endpoints {
		e.mu.Lock()
		if !e.claims[t].at.Before(since) {
			n++
		}
		e.mu.Unlock()
	}
	return n
}

// tagged fetches a tag's block and records it as the endpoint's claim.
func (e *endpoint) tagged(ctx context.Context, t tag) error {
	h, err := e.header(ctx, `"`+tagNames[t]+`"`)
	// Any error of the node, whatever its text, means that it has no such block.
	if _, said := errors.AsType[*Error](err); errors.Is(err, errNoBlock) || said && classify(err) != classRate {
		e.client.metrics.errors.WithLabelValues(e.name, classTag.String()).Inc()
		return nil
	}
	if err == nil {
		e.claim(t, h.BlockRef)
	}
	return err
}

// claimsLast is how long a claim is valid.
const claimsLast = time.Minute

// claims returns the highest block that two endpoints have claimed for a tag, and the claim of a single one.
func (c *Client) claims(t tag) (two, one uint64) {
	var all []uint64
	for _, b := range c.claimed(t) {
		all = append(all, b.Number)
	}
	return byTwo(all)
}

// claimed are the blocks that endpoints have claimed for a tag. Endpoints that do not count are left out: a stuck one
// would keep the lower number for ever.
func (c *Client) claimed(t tag) (all []topics.BlockRef) {
	for _, e := range c.endpoints {
		e.mu.Lock()
		said := e.claims[t]
		e.mu.Unlock()
		if time.Since(said.at) < claimsLast && e.counts() {
			all = append(all, topics.BlockRef{Number: said.number, Hash: said.hash})
		}
	}
	return all
}

// Backed reports whether more than one endpoint has ever claimed that a block is final; if there is only one
// endpoint, its claim counts.
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

func (e *endpoint) claim(t tag, b topics.BlockRef) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claims[t].number, e.claims[t].hash, e.claims[t].at = b.Number, b.Hash, time.Now()
	if t == tagFinalized {
		e.vouched = max(e.vouched, b.Number)
	}
}

// FinalizedHash is the hash of a block if an endpoint last called it finalized; else zero.
func (c *Client) FinalizedHash(number uint64) (hash common.Hash) {
	for _, e := range c.endpoints {
		e.mu.Lock()
		if said := e.claims[tagFinalized]; said.number == number {
			hash = said.hash
		}
		e.mu.Unlock()
	}
	return hash
}
