package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
)

// Existed returns those of the addresses that have code as of a block: proved, or only claimed by an endpoint, if
// no endpoint proves or disproves it.
func (c *Client) Existed(ctx context.Context, block common.Hash, addresses []common.Address) (proved, claimed []common.Address, err error) {
	at := append(appendHex([]byte(`{"blockHash":`), block[:]), '}')
	all, _, err := c.withCode(ctx, choice{}, at, addresses, false)
	if err != nil {
		return nil, nil, fmt.Errorf("get code at block %s: %w", block, err)
	}
	if c.cfg.Proof == ProofOff {
		return nil, all, nil
	}
	for _, a := range all {
		switch is, sure, err := c.provedCode(ctx, block, a); {
		case err != nil:
			return nil, nil, err
		case is && sure:
			proved = append(proved, a)
		case is:
			claimed = append(claimed, a)
		}
	}
	return proved, claimed, nil
}

// Created returns the block in which a contract was created, or an earlier one if no endpoint answers for that time:
// nodes that do not keep all states keep the latest, and not every one serves eth_getCode. Where endpoints differ, a
// proof of the account decides; otherwise one that claims code everywhere would make the whole chain be read.
func (c *Client) Created(ctx context.Context, contract common.Address, upTo uint64) (uint64, error) {
	low, high := uint64(0), upTo // the contract exists at high
	for low < high {
		middle := low + (high-low)/2
		// On the chain that the endpoints have now.
		all, split, err := c.withCode(ctx, choice{block: middle}, appendQuantity(nil, middle), []common.Address{contract}, true)
		is := len(all) > 0
		if err == nil && split && c.cfg.Proof != ProofOff {
			var most follow.Header
			if most, err = c.Vote(ctx, middle, false); err == nil {
				is, _, err = c.provedCode(ctx, most.Hash, contract)
			}
		}
		switch {
		case errors.Is(err, ErrNoState), errors.Is(err, ErrGone) && !split:
			return low, nil
		case err != nil:
			return 0, fmt.Errorf("find the creation of %s: %w", contract, err)
		case is:
			high = middle
		default:
			low = middle + 1
		}
	}
	return low, nil
}

// withCode returns those of the addresses that have code as of a block. Nothing proves a response, and one without
// code hides the history of a contract. So if an endpoint reports no code, all others are asked too, and any that
// reports code is believed: a history that begins too early is only longer. everyone: all are asked in any case.
// split: they differ. It returns ErrNoState too if all refuse for codeWait, or fail for codeOutage.
func (c *Client) withCode(ctx context.Context, want choice, block []byte, addresses []common.Address, everyone bool) (all []common.Address, split bool, err error) {
	var last error
	bounded, cancel := context.WithTimeout(ctx, codeWait)
	defer cancel()
	err = c.try(bounded, want, func(bounded context.Context, e *endpoint) error {
		first, err := e.withCode(bounded, block, addresses)
		if err != nil {
			last = e.redact(err)
			return err
		}
		said := map[*endpoint][]bool{e: first}
		if everyone || slices.Contains(first, false) {
			c.others(ctx, e, func(ctx context.Context, o *endpoint, mu *sync.Mutex) error {
				is, err := o.withCode(ctx, block, addresses)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					said[o] = is
				}
				return err
			})
		}
		all, split = c.mergeCode(said, addresses)
		return ctx.Err()
	})
	switch {
	case err == nil:
		c.noCode.end()
	case ctx.Err() == nil && bounded.Err() != nil:
		err = cmp.Or(last, err)
		if isRefusal(err) || c.noCode.lasts() {
			err = fmt.Errorf("%w: %w", ErrNoState, err)
		}
	}
	return all, split, err
}

const (
	// codeWait is the limit for all endpoints to report whether there is code. Not every provider serves eth_getCode, and
	// it may refuse in an unknown wording, or as if it throttled.
	codeWait = 15 * time.Second
	// codeOutage is how long an endpoint may fail instead of refusing: without the code a whole chain has to be read.
	codeOutage = 5 * time.Minute
)

// isRefusal reports whether an error is an endpoint's refusal, and not its outage.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return isAnswer(err) && (!ok || e.Code != codeInternal)
}

// outage is the time since which no endpoint answers.
type outage struct {
	mu    sync.Mutex
	since time.Time
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since = time.Time{}
}

// lasts records a failure, and reports whether the outage has lasted for codeOutage.
func (o *outage) lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = time.Now()
	}
	return time.Since(o.since) >= codeOutage
}

// mergeCode returns the addresses that have code according to any endpoint, and counts contradictions. It pauses no
// endpoint: one that is believed without proof must not be able to silence others.
func (c *Client) mergeCode(said map[*endpoint][]bool, addresses []common.Address) (all []common.Address, split bool) {
	for i, a := range addresses {
		is := false
		for _, by := range said {
			is = is || by[i]
		}
		if !is {
			continue
		}
		all = append(all, a)
		for e, by := range said {
			if !by[i] {
				split = true
				c.metrics.lies.WithLabelValues(e.name, "disagreement").Inc()
				c.log.Warn("endpoint reports no code where another one has code", zap.String("endpoint", e.name), zap.Stringer("contract", a))
			}
		}
	}
	return all, split
}
