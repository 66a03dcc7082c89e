package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// Blocks fetches the blocks from..to with their logs, by number. final is the number up to which the chain is
// not expected to change; the logs of later blocks are verified as Proof says.
func (c *Client) Blocks(ctx context.Context, from, to, final uint64) ([]follow.Block, error) {
	var (
		headers []follow.Header
		ready   = make(chan struct{})
		got     []topics.Log
		above   []topics.Log
	)
	c.settled.Store(final)
	believed := to // the last block whose logs are fetched by range
	switch c.cfg.Proof {
	case ProofTip, ProofSparse:
		if believed = min(to, final); c.cfg.Proof == ProofTip && c.noBloom.Load() {
			believed = 0 // nothing shows what an answer leaves out
		}
	case ProofAll:
		believed = 0
	case ProofOff:
	}
	headersOf := func(ctx context.Context, first, last uint64) ([]follow.Header, error) {
		select {
		case <-ready:
			return headers[first-from : last-from+1], nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	g, fetching := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		if headers, err = c.Headers(fetching, from, to, common.Hash{}); err == nil {
			close(ready)
		}
		return err
	})
	if believed >= from {
		g.Go(func() (err error) {
			got, err = c.rangeLogs(fetching, from, believed, func(ctx context.Context, first, last uint64, _ []topics.Log, _ bool) ([]follow.Header, error) {
				return headersOf(ctx, first, last)
			})
			return err
		})
	}
	if believed < to {
		g.Go(func() error {
			proved, err := headersOf(fetching, max(from, believed+1), to)
			if err == nil {
				above, err = c.proved(fetching, c.wanted(proved))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		if errors.Is(err, ErrGone) && len(c.endpoints) > 1 {
			// The headers link, so if any is made up the last one is. A vote finds the endpoint that served it.
			bounded, cancel := context.WithTimeout(ctx, c.patience())
			defer cancel()
			if _, failed := c.Vote(bounded, to, false); failed != nil {
				err = fmt.Errorf("%w (%w)", err, failed)
			}
		}
		return nil, fmt.Errorf("fetch blocks %d-%d: %w", from, to, err)
	}
	return assemble(headers, append(got, above...))
}

// headersOf returns the headers to check the logs of a range against: those of the logs' blocks, or all of the
// range.
type headersOf func(ctx context.Context, first, last uint64, logs []topics.Log, all bool) ([]follow.Header, error)

// rangeLogs fetches the logs of from..to, in as many requests as the endpoints' limits require. of may wait for
// headers that are being fetched.
func (c *Client) rangeLogs(ctx context.Context, from, to uint64, of headersOf) ([]topics.Log, error) {
	var all []topics.Log
	var has held
	for next := from; next <= to; {
		last := uint64(0) // of the first response; confirmations are for the same blocks
		logs, err := c.confirmed(ctx, func(ctx context.Context, e *endpoint) (a response, err error) {
			if c.cfg.Proof == ProofSparse {
				if err := e.indexes(ctx, next, cmp.Or(last, to)); err != nil {
					return a, err
				}
			}
			if last == 0 {
				a.logs, last, err = c.ask(ctx, e, &c.filter, next, to)
			} else {
				a.logs, err = c.askAll(ctx, e, &c.filter, next, last)
			}
			if err != nil {
				return a, err
			}
			if a.headers, err = of(ctx, next, last, a.logs, false); err != nil {
				return a, &callerError{err}
			}
			return a, c.matches(ctx, a.headers, a.logs)
		})
		tooBig := errors.Is(err, errOneTooBig)
		if tooBig && c.cfg.Proof == ProofOff {
			return nil, fmt.Errorf("no endpoint returns all logs of block %d at once, and --rpc-proof=off does not read receipts: add an endpoint that does, or use another --rpc-proof: %v", max(last, next), err) //nolint:errorlint // not ErrGone: the block is there
		}
		if tooBig {
			last = max(last, next)
		}
		noLogs := errors.Is(err, errNoLogs)
		if noLogs && c.cfg.Proof == ProofOff {
			return nil, fmt.Errorf("%w, and --rpc-proof=off does not read receipts: add an endpoint that does, or use another --rpc-proof: %v", errNoLogs, err) //nolint:errorlint // not ErrGone
		}
		if noLogs {
			last = min(to, next+linkedBlocks-1)
		}
		if err != nil && last == 0 {
			return nil, fmt.Errorf("fetch logs from %d on: %w", next, err)
		}
		if tooBig || noLogs || errors.Is(err, errLeftOut) {
			// A block is verified by its receipts. A query by hash makes the node look at the block itself, and
			// not at an index that may be wrong.
			var headers []follow.Header
			if headers, err = of(ctx, next, last, nil, true); err == nil {
				logs, err = c.logsOf(ctx, headers)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("fetch logs %d-%d: %w", next, to, err)
		}
		if has.add(logs); c.dense(has, from < to) {
			return nil, fmt.Errorf("fetch logs %d-%d: %w", from, to, ErrDense)
		}
		if next = last + 1; all == nil && next > to {
			return logs, nil
		}
		all = append(all, logs...)
	}
	return all, nil
}

// held is the number of logs held, and their bytes.
type held struct{ logs, bytes int }

func (h *held) add(logs []topics.Log) {
	h.logs += len(logs)
	for i := range logs {
		h.bytes += logBytes + len(logs[i].Data)
	}
}

// dense reports whether the logs exceed the bound. The logs of a single block never do.
func (c *Client) dense(has held, several bool) bool {
	return several && (c.most > 0 && has.logs > c.most || has.bytes > c.cfg.MaxHeld)
}

// ask fetches logs from one endpoint, from block first on, as many blocks as it returns at once.
func (c *Client) ask(ctx context.Context, e *endpoint, f *filter, first, to uint64) (logs []topics.Log, last uint64, err error) {
	for {
		span := uint64(e.limits.span.now())
		last = min(to, first+span-1)
		asked, most := int(last-first+1), e.limits.addresses.of(len(f.listed))
		bound := 0
		if asked > 1 {
			bound = c.most * logBytes
		}
		sent := time.Now()
		logs, err = e.logs(ctx, f.byNumber(first, last, most), bound)
		if err == nil {
			e.limits.failures.end()
			e.hasLogs()
			e.limits.span.granted(asked)
			e.limits.addresses.granted(most)
			return logs, last, inRange(logs, first, last)
		}
		c := classify(err)
		again := e.limits.failures.add(sent, 0) >= persistent && c.perhapsSize()
		if again && c == classRate && e.throttles(ctx) {
			return nil, 0, err // smaller requests are refused too: it is not the size
		}
		switch {
		case ctx.Err() != nil:
			return nil, 0, err
		case c == classAddresses && most > 1:
			e.limits.addresses.refused(most)
		case (c == classRange || c == classOther) && asked > 1:
			e.limits.span.refused(asked)
			if answer, ok := errors.AsType[*Error](err); ok {
				e.limits.span.stated(suggested(answer.Message + " " + answer.Data))
			}
			if c == classOther {
				return nil, 0, err // the endpoint may be down: use another one, and this one later with a smaller range
			}
		case c == classRange:
			return nil, 0, fmt.Errorf("block %d: %w: %w", first, errOneTooBig, err)
		case again && asked > 1:
			e.limits.span.refused(asked)
			return nil, 0, err
		case (again || c == classOther) && most > 1:
			e.limits.addresses.refused(most)
			e.limits.span.forget() // the number of blocks was not the cause
			return nil, 0, err
		case again && c == classOther && isAnswer(err):
			return nil, 0, e.hasNoLogs(err, false) // not even of one block and one address
		default:
			return nil, 0, err
		}
		e.client.metrics.errors.WithLabelValues(e.name, c.String()).Inc()
	}
}

// askAll repeats ask up to the last block.
func (c *Client) askAll(ctx context.Context, e *endpoint, f *filter, first, to uint64) ([]topics.Log, error) {
	var all []topics.Log
	for next := first; next <= to; {
		logs, last, err := c.ask(ctx, e, f, next, to)
		if err != nil {
			return nil, err
		}
		all = append(all, logs...)
		next = last + 1
	}
	return all, nil
}

// Logs fetches the logs of blocks with known headers. It skips blocks whose bloom filter matches nothing of
// ours.
func (c *Client) Logs(ctx context.Context, headers []follow.Header) ([]follow.Block, error) {
	logs, err := c.logsOf(ctx, headers)
	if err != nil {
		return nil, err
	}
	return assemble(headers, logs)
}

func (c *Client) logsOf(ctx context.Context, headers []follow.Header) ([]topics.Log, error) {
	wanted := c.wanted(headers)
	if c.cfg.Proof != ProofOff {
		return c.proved(ctx, wanted)
	}
	var all []topics.Log
	var has held
	for len(wanted) > 0 {
		part := wanted[:min(len(wanted), c.cfg.MaxBatch)]
		wanted = wanted[len(part):]
		logs, err := c.confirmed(ctx, func(ctx context.Context, e *endpoint) (response, error) {
			logs, err := e.logs(ctx, c.filter.byHash(part), 0)
			if err == nil {
				err = c.filter.match(part, logs)
			}
			return response{headers: part, logs: logs}, err
		})
		if err != nil {
			return nil, fmt.Errorf("fetch logs of blocks %d-%d: %w", part[0].Number, part[len(part)-1].Number, err)
		}
		if has.add(logs); c.dense(has, len(headers) > 1) {
			return nil, ErrDense
		}
		all = append(all, logs...)
	}
	return all, nil
}

// lacksLogs reports whether the endpoint recently turned out not to support eth_getLogs.
func (e *endpoint) lacksLogs() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.noLogs)
}

// hasNoLogs notes, for a while, that the endpoint does not support eth_getLogs. One that refuses it in words of its own may just be
// out of order: it is asked again soon, and later each time.
func (e *endpoint) hasNoLogs(err error, sure bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.logsAgain = min(max(2*e.logsAgain, logsAgain), noneAgain)
	if sure {
		e.logsAgain = noneAgain
	}
	e.noLogs = time.Now().Add(e.logsAgain)
	return fmt.Errorf("%w: %w", errNoLogs, err)
}

// logsAgain is after how long an endpoint that refuses eth_getLogs is asked again at first.
const logsAgain = 2 * time.Second

// hasLogs notes that the endpoint supports eth_getLogs. If it refused even the smallest request, size was not the cause.
func (e *endpoint) hasLogs() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logsAgain > 0 {
		e.logsAgain = 0
		e.limits.span.forget()
		e.limits.addresses.forget()
	}
}

// logBytes is half of the response size of a log, as in call.bytes.
const logBytes = 512

// logs sends the queries as one request and merges the results in chain order. bytes bounds the response to each.
func (e *endpoint) logs(ctx context.Context, queries [][]byte, bytes int) ([]topics.Log, error) {
	answers := make([]logDecoder, len(queries))
	calls := make([]call, len(queries))
	for i, q := range queries {
		calls[i] = call{method: "eth_getLogs", params: q, bytes: bytes, result: func(s *scanner) error {
			if s.null() {
				return lied("null", "logs are null")
			}
			answers[i] = logDecoder{} // the field may come twice
			return answers[i].decode(s)
		}}
	}
	if e.lacksLogs() {
		return nil, errNoLogs
	}
	if err := e.do(ctx, calls); err != nil {
		if classify(err) == classMethod {
			err = e.hasNoLogs(err, true)
		}
		return nil, err
	}
	merged, n := answers[0].logs, 0
	for i := range answers {
		if err := ascending(answers[i].logs); err != nil {
			return nil, err
		}
		if i > 0 {
			merged = merge(merged, answers[i].logs)
		}
		n += len(answers[i].logs)
	}
	e.client.metrics.logs.Add(float64(n))
	return merged, nil
}

// assemble builds blocks from headers and their logs.
func assemble(headers []follow.Header, logs []topics.Log) ([]follow.Block, error) {
	blocks := make([]follow.Block, len(headers))
	items := make([]follow.Item, len(logs))
	at := 0
	for i := range headers {
		blocks[i].Header = headers[i]
		from := at
		for ; at < len(logs) && logs[at].Block.Hash == headers[i].Hash; at++ {
			logs[at].Block.Timestamp = headers[i].Timestamp
			items[at] = &logs[at]
		}
		blocks[i].Logs = items[from:at:at]
	}
	if at < len(logs) {
		return nil, fmt.Errorf("log of block %d %s has no header: %w", logs[at].Block.Number, logs[at].Block.Hash, ErrGone)
	}
	return blocks, nil
}
