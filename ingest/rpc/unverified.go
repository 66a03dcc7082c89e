package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
)

// Events fetches the events of a contract with one first topic, without the headers that would verify them: those that
// any endpoint has, or if none supports eth_getLogs those in the receipts. Use it only to learn where else to look.
func (c *Client) Events(ctx context.Context, address common.Address, topic common.Hash, from, to uint64) (all []topics.Log, err error) {
	err = c.unverified(ctx, onlyOf(address, topic, &c.noBloom), from, to, func(logs []topics.Log) bool {
		all = append(all, logs...)
		return true
	})
	return all, err
}

// Logged returns one of the contracts of which any endpoint has a log, or if none supports eth_getLogs the receipts;
// empty: there is no log.
func (c *Client) Logged(ctx context.Context, contracts []common.Address, from, to uint64) (found []common.Address, err error) {
	err = c.unverified(ctx, newFilter(contracts, nil, &c.noBloom), from, to, func(logs []topics.Log) bool {
		for i := range logs {
			if slices.Contains(contracts, logs[i].Address) {
				found = append(found, logs[i].Address)
				return false
			}
		}
		return true
	})
	return found, err
}

// errSitsOut: an endpoint is not asked for a range.
var errSitsOut = errors.New("the endpoint sits out")

// attendance counts the ranges for which an endpoint did not answer, when asked twice; once it did not, asking once
// suffices. It then sits out 16 ranges, and each time four times as many, so that a silent endpoint does not hold up
// every range of a long history.
type attendance struct{ failed, missed, until int }

func (a *attendance) fail(at int) {
	if again := a.failed == at+1; again || a.missed > 0 {
		a.until = at + 16<<min(2*a.missed, 20)
		a.missed++
	}
	a.failed = at + 1
}

// unverified fetches the logs that any endpoint has, until take returns false.
func (c *Client) unverified(ctx context.Context, f filter, from, to uint64, take func([]topics.Log) bool) error {
	present := make(map[*endpoint]*attendance, len(c.endpoints))
	for _, e := range c.endpoints {
		present[e] = new(attendance)
	}
	for at, next := 0, from; next <= to; at++ {
		last := to
		var logs []topics.Log
		err := c.try(ctx, choice{logs: true}, func(ctx context.Context, e *endpoint) (err error) {
			if logs, last, err = c.ask(ctx, e, &f, next, to); err != nil {
				return err
			}
			c.others(ctx, e, func(ctx context.Context, o *endpoint, mu *sync.Mutex) error {
				if at < present[o].until {
					return errSitsOut
				}
				more, err := c.askAll(ctx, o, &f, next, last)
				if err != nil {
					present[o].fail(at)
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				logs = merge(logs, more)
				return nil
			})
			return ctx.Err()
		})
		if errors.Is(err, errNoLogs) && c.cfg.Proof != ProofOff {
			last = min(to, next+linkedBlocks-1)
			logs, err = c.byReceipts(ctx, f, next, last)
		}
		if err != nil {
			return fmt.Errorf("fetch events %d-%d: %w", next, to, err)
		}
		if !take(logs) {
			return nil
		}
		next = last + 1
	}
	return nil
}

// byReceipts fetches logs from the receipts of the blocks that most endpoints have.
func (c *Client) byReceipts(ctx context.Context, f filter, from, to uint64) ([]topics.Log, error) {
	most, err := c.Vote(ctx, to, false)
	if err != nil {
		return nil, err
	}
	headers, err := c.Headers(ctx, from, to, most.Hash)
	if err != nil {
		return nil, err
	}
	of := &Client{nodes: c.nodes, hits: new(hits), filter: f}
	return of.logsOf(ctx, headers)
}
