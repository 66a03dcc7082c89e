package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// Head asks for the head of the chain.
func (c *Client) Head(ctx context.Context) (h follow.Header, err error) {
	err = c.try(ctx, nil, func(ctx context.Context, e *endpoint) error {
		h, err = e.header(ctx, `"latest"`)
		return err
	})
	if err != nil {
		return h, fmt.Errorf("fetch head: %w", err)
	}
	return h, nil
}

// BestHead asks every endpoint and takes the highest head: for when one that was relied on may have stopped.
// Endpoints that are behind it by more than lag blocks are rested.
func (c *Client) BestHead(ctx context.Context, lag uint64) (best follow.Header, err error) {
	heads := make([]follow.Header, len(c.endpoints))
	errs := make([]error, len(c.endpoints))
	var g errgroup.Group
	for i, e := range c.endpoints {
		g.Go(func() error {
			heads[i], errs[i] = e.header(ctx, `"latest"`)
			return nil
		})
	}
	_ = g.Wait()
	found := false
	for i, h := range heads {
		if errs[i] == nil && (!found || h.Number > best.Number) {
			best, found = h, true
		}
	}
	for i, e := range c.endpoints {
		switch {
		case ctx.Err() != nil:
		case errs[i] != nil:
			e.failed(errs[i])
		case heads[i].Number+lag < best.Number:
			e.failed(lied("stale_head", "head %d, another endpoint has %d", heads[i].Number, best.Number))
		}
	}
	if !found {
		return best, fmt.Errorf("fetch heads: %w", errors.Join(errs...))
	}
	return best, nil
}

// Finalized asks for the number of the finalized block; a chain without such is math.MaxUint64.
func (c *Client) Finalized(ctx context.Context) (uint64, error) {
	var h follow.Header
	err := c.try(ctx, nil, func(ctx context.Context, e *endpoint) (err error) {
		h, err = e.header(ctx, `"finalized"`)
		if errors.Is(err, errNoBlock) {
			return &Error{Code: codeNoTag, Message: "finalized block not found"}
		}
		return err
	})
	var answer *Error
	if errors.As(err, &answer) && answer.class() == classTag {
		return math.MaxUint64, nil
	}
	if err != nil {
		return 0, fmt.Errorf("fetch finalized block: %w", err)
	}
	return h.Number, nil
}

func (e *endpoint) header(ctx context.Context, tag string) (h follow.Header, err error) {
	return h, e.do(ctx, []call{{
		method: "eth_getBlockByNumber", params: []byte("[" + tag + ",false]"),
		result: func(s *scanner) error { return decodeHeader(s, &h) },
	}})
}

// Headers fetches the headers from..to, which link.
func (c *Client) Headers(ctx context.Context, from, to uint64) ([]follow.Header, error) {
	all := make([]follow.Header, to-from+1)
	g, gctx := errgroup.WithContext(ctx)
	for i := 0; i < len(all); i += c.cfg.HeaderBatch {
		part := all[i:min(i+c.cfg.HeaderBatch, len(all))]
		first := from + uint64(i)
		g.Go(func() error {
			return c.try(gctx, nil, func(ctx context.Context, e *endpoint) error { return e.headers(ctx, first, part) })
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("fetch headers %d-%d: %w", from, to, err)
	}
	for i := 1; i < len(all); i++ {
		if all[i].Parent != all[i-1].Hash {
			return nil, fmt.Errorf("fetch headers %d-%d: batches do not link at %d: %w", from, to, from+uint64(i), ErrGone)
		}
	}
	return all, nil
}

// headers fills one batch.
func (e *endpoint) headers(ctx context.Context, first uint64, into []follow.Header) error {
	calls := make([]call, len(into))
	for i := range into {
		into[i] = follow.Header{}
		calls[i] = call{
			method: "eth_getBlockByNumber", params: append(appendQuantity([]byte{'['}, first+uint64(i)), ",false]"...),
			result: func(s *scanner) error { return decodeHeader(s, &into[i]) },
		}
	}
	if err := e.do(ctx, calls); err != nil {
		return err
	}
	for i := range into {
		if n := first + uint64(i); into[i].Number != n {
			return lied("wrong_block", "asked for block %d, got %d", n, into[i].Number)
		}
		if i > 0 && into[i].Parent != into[i-1].Hash {
			return lied("parent", "block %d has parent %s, block before it is %s", into[i].Number, into[i].Parent, into[i-1].Hash)
		}
	}
	return nil
}

// Blocks fetches the blocks from..to with their logs, by number.
func (c *Client) Blocks(ctx context.Context, from, to uint64) ([]follow.Block, error) {
	var (
		headers []follow.Header
		ready   = make(chan struct{})
		got     []topics.Log
	)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		if headers, err = c.Headers(ctx, from, to); err == nil {
			close(ready)
		}
		return err
	})
	g.Go(func() (err error) {
		got, err = c.rangeLogs(ctx, from, to, func(first, last uint64) ([]follow.Header, error) {
			select {
			case <-ready:
				return headers[first-from : last-from+1], nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("fetch blocks %d-%d: %w", from, to, err)
	}
	return assemble(headers, got), nil
}

// rangeLogs fetches the logs of from..to, in as many requests as the endpoints' limits need. headersOf
// waits for the headers that they are held against, so that both are fetched at once.
func (c *Client) rangeLogs(ctx context.Context, from, to uint64, headersOf func(first, last uint64) ([]follow.Header, error)) ([]topics.Log, error) {
	var all []topics.Log
	for next := from; next <= to; {
		last := to
		logs, err := c.confirmed(ctx, func(ctx context.Context, e *endpoint) (a answer, err error) {
			a.logs, last, err = c.ask(ctx, e, next, to)
			if err != nil {
				return a, err
			}
			if a.headers, err = headersOf(next, last); err != nil {
				return a, err
			}
			return a, c.filter.match(a.headers, a.logs)
		})
		if errors.Is(err, errLeftOut) {
			// By hash a node has to look at the block itself, and not at an index that may be wrong.
			var headers []follow.Header
			if headers, err = headersOf(next, last); err == nil {
				logs, err = c.logsOf(ctx, headers)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("fetch logs %d-%d: %w", next, to, err)
		}
		if next = last + 1; all == nil && next > to {
			return logs, nil
		}
		all = append(all, logs...)
	}
	return all, nil
}

// ask asks one endpoint for the logs from block first on, as far as it answers at once.
func (c *Client) ask(ctx context.Context, e *endpoint, first, to uint64) ([]topics.Log, uint64, error) {
	for {
		last := min(to, first+e.blocks()-1)
		logs, err := e.logs(ctx, c.filter.byNumber(first, last))
		switch {
		case err == nil:
			e.grow(last - first + 1)
			return logs, last, inRange(logs, first, last)
		case classify(err) != classRange || last == first:
			return nil, last, err
		}
		c.metrics.errors.WithLabelValues(e.name, classRange.String()).Inc()
		e.shrink(last - first + 1)
	}
}

// Logs fetches the logs of blocks whose headers are known, by hash. Of those whose bloom filter has
// nothing of ours it asks nothing.
func (c *Client) Logs(ctx context.Context, headers []follow.Header) ([]follow.Block, error) {
	logs, err := c.logsOf(ctx, headers)
	if err != nil {
		return nil, err
	}
	return assemble(headers, logs), nil
}

func (c *Client) logsOf(ctx context.Context, headers []follow.Header) ([]topics.Log, error) {
	var wanted []follow.Header
	for i := range headers {
		if c.cfg.NoBloom || c.filter.wants(&headers[i]) {
			wanted = append(wanted, headers[i])
		}
	}
	var all []topics.Log
	for len(wanted) > 0 {
		part := wanted[:min(len(wanted), c.cfg.HeaderBatch)]
		wanted = wanted[len(part):]
		logs, err := c.confirmed(ctx, func(ctx context.Context, e *endpoint) (answer, error) {
			logs, err := e.logs(ctx, c.filter.byHash(part))
			if err == nil {
				err = c.filter.matchSparse(part, logs)
			}
			return answer{headers: part, logs: logs}, err
		})
		if err != nil {
			return nil, fmt.Errorf("fetch logs of blocks %d-%d: %w", part[0].Number, part[len(part)-1].Number, err)
		}
		all = append(all, logs...)
	}
	return all, nil
}

// logs runs the queries as one request and merges their answers in the order of the chain.
func (e *endpoint) logs(ctx context.Context, queries [][]byte) ([]topics.Log, error) {
	answers := make([]logDecoder, len(queries))
	calls := make([]call, len(queries))
	for i, q := range queries {
		calls[i] = call{method: "eth_getLogs", params: q, result: func(s *scanner) error {
			if s.null() {
				return lied("null", "logs are null")
			}
			return answers[i].decode(s)
		}}
	}
	if err := e.do(ctx, calls); err != nil {
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

// assemble lays logs, which were matched to their headers, into blocks.
func assemble(headers []follow.Header, logs []topics.Log) []follow.Block {
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
	return blocks
}

// Call is an eth_call.
type Call struct {
	To   common.Address
	Data []byte
}

// Call runs calls as of a block, by its hash. An answer is nil where the contract refused or has nothing
// at that address. ErrNoState, ErrGone: see there.
func (c *Client) Call(ctx context.Context, block common.Hash, calls []Call) ([][]byte, error) {
	var answers [][]byte
	err := c.try(ctx, nil, func(ctx context.Context, e *endpoint) error {
		answers = make([][]byte, len(calls))
		batch := make([]call, len(calls))
		for i, to := range calls {
			p := append([]byte(`[{"to":`), appendHex(nil, to.To[:])...)
			p = appendHex(append(p, `,"data":`...), to.Data)
			p = append(appendHex(append(p, `},{"blockHash":`...), block[:]), `}]`...)
			batch[i] = call{
				method: "eth_call", params: p,
				result: func(s *scanner) error {
					v, err := s.digits()
					if err != nil || len(v) == 0 {
						return err
					}
					answers[i] = make([]byte, len(v)/2)
					return unhex(answers[i], v)
				},
				failed: func(answer *Error) bool { return answer.class() == classRevert },
			}
		}
		return e.do(ctx, batch)
	})
	if err != nil {
		return nil, fmt.Errorf("call at block %s: %w", block, err)
	}
	return answers, nil
}
