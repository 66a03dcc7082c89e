package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
)

// reported is a log that endpoints return without the header that would verify it.
type reported struct {
	log    topics.Log
	by     []*endpoint
	proved bool // the log comes from proved receipts, and by is empty
}

// Events passes the events of a contract with one first topic to take, a range at a time, with the last block of each:
// those that two endpoints return or that are proved (see judge), and those of an only endpoint.
func (c *Client) Events(ctx context.Context, address common.Address, topic common.Hash, from, to uint64, take func(logs []topics.Log, upTo uint64)) error {
	f := onlyOf(address, topic, &c.noBloom)
	s := c.search(f)
	return c.reported(ctx, f, from, to, func(reported []reported, upTo uint64) (bool, error) {
		var logs []topics.Log
		for i := range reported {
			l := &reported[i]
			v := verdictTrue
			if !c.only() && len(l.by) < 2 {
				var err error
				if v, err = s.judge(ctx, l); err != nil {
					return false, err
				}
			}
			if v == verdictTrue {
				logs = append(logs, l.log)
			}
		}
		take(logs, upTo)
		return true, nil
	})
}

// Logged searches a range of blocks for a log of one of the contracts that is proved: see judge. Without one it returns
// a log that is neither proved nor disproved, if any endpoint has one.
func (c *Client) Logged(ctx context.Context, contracts []common.Address, from, to uint64) (logged, open *topics.Log, err error) {
	f := newFilter(contracts, nil, &c.noBloom)
	s := c.search(f)
	err = c.reported(ctx, f, from, to, func(logs []reported, _ uint64) (bool, error) {
		for i := range logs {
			v, err := s.judge(ctx, &logs[i])
			switch {
			case err != nil:
				return false, err
			case v == verdictTrue:
				logged = &logs[i].log
				return false, nil
			case v == verdictOpen && open == nil:
				open = &logs[i].log
			}
		}
		return true, nil
	})
	return logged, open, err
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

// reported fetches the logs that any endpoint has, a range at a time, until take returns false. If no endpoint supports
// eth_getLogs they come from receipts.
func (c *Client) reported(ctx context.Context, f filter, from, to uint64, take func(logs []reported, upTo uint64) (more bool, err error)) error {
	present := make(map[*endpoint]*attendance, len(c.endpoints))
	for _, e := range c.endpoints {
		present[e] = new(attendance)
	}
	for at, next := 0, from; next <= to; at++ {
		last := to
		var all collected
		err := c.try(ctx, choice{logs: true}, func(ctx context.Context, e *endpoint) error {
			logs, end, err := c.ask(ctx, e, &f, next, to)
			if err != nil {
				return err
			}
			last, all = end, collected{}
			all.add(e, logs)
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
				all.add(o, more)
				return nil
			})
			return ctx.Err()
		})
		if errors.Is(err, errNoLogs) && c.cfg.Proof != ProofOff {
			last, all = min(to, next+linkedBlocks-1), collected{}
			var logs []topics.Log
			if logs, err = c.byReceipts(ctx, f, next, last); err == nil {
				all.add(nil, logs)
			}
		}
		if err != nil {
			return fmt.Errorf("fetch events %d-%d: %w", next, to, err)
		}
		if more, err := take(all.logs, last); err != nil || !more {
			return err
		}
		next = last + 1
	}
	return nil
}

// collected are the reported logs of a range, each once.
type collected struct {
	logs []reported
	at   map[logKey]int
}

// logKey is what tells logs apart.
type logKey struct {
	number  uint64
	block   common.Hash
	index   uint32
	address common.Address
	topics  [4]common.Hash
	n       int
}

func keyOf(l *topics.Log) logKey {
	k := logKey{number: l.Block.Number, block: l.Block.Hash, index: l.LogIndex, address: l.Address, n: len(l.Topics)}
	copy(k.topics[:], l.Topics)
	return k
}

// add adds the logs that an endpoint returns; nil: they are proved.
func (all *collected) add(by *endpoint, logs []topics.Log) {
	if all.at == nil {
		all.at = map[logKey]int{}
	}
	for i := range logs {
		k := keyOf(&logs[i])
		at, found := all.at[k]
		if !found {
			at = len(all.logs)
			all.at[k] = at
			all.logs = append(all.logs, reported{log: logs[i], proved: by == nil})
		}
		if by != nil {
			all.logs[at].by = append(all.logs[at].by, by)
		}
	}
}

// byReceipts fetches logs from the receipts of the blocks that most endpoints have.
func (c *Client) byReceipts(ctx context.Context, f filter, from, to uint64) ([]topics.Log, error) {
	most, err := c.Vote(ctx, to, true)
	if err != nil {
		return nil, err
	}
	headers, err := c.Headers(ctx, from, to, most.Hash)
	if err != nil {
		return nil, err
	}
	return c.with(f).logsOf(ctx, headers)
}

// with returns a client with another filter.
func (c *Client) with(f filter) *Client {
	return &Client{nodes: c.nodes, hits: new(hits), filter: f}
}
