package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// Sparse fetches the blocks of from..to that have logs, and the first and the last, which link to their neighbours. It
// does not verify that the blocks between are empty, which would cost a header each.
//
// These blocks do not link to each other, so one endpoint could make up any of them. Where several are configured, a
// header must come from two endpoints, and so must logs; one alone decides only if all others are silent (fork.go),
// and one that has not the blocks or their logs yet confirms nothing (indexed.go). While no other answers, the range is
// fetched with all of its headers.
func (c *Client) Sparse(ctx context.Context, from, to uint64) ([]follow.Block, error) {
	c.settled.Store(max(to, c.settled.Load()))
	blocks, err := c.sparse(ctx, from, to)
	if errors.Is(err, errNobodyElse) || errors.Is(err, errNotIndexed) {
		blocks, err = c.linked(ctx, from, to)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch sparse blocks %d-%d: %w", from, to, err)
	}
	return blocks, nil
}

func (c *Client) sparse(ctx context.Context, from, to uint64) ([]follow.Block, error) {
	h := &sparse{client: c, known: map[uint64]follow.Header{}}
	logs, err := c.rangeLogs(ctx, from, to, h.of)
	if err != nil {
		return nil, err
	}
	headers, err := h.fetch(ctx, numbersOf(from, to, logs))
	if err != nil {
		return nil, err
	}
	return assemble(headers, logs)
}

// linkedBlocks is how many headers linked holds at once.
const linkedBlocks = 2000

// linked returns the same blocks as Sparse, but verifies that they link and proves their logs.
func (c *Client) linked(ctx context.Context, from, to uint64) (all []follow.Block, err error) {
	var has held
	var last common.Hash
	for next := from; next <= to; {
		headers, err := c.Headers(ctx, next, min(to, next+linkedBlocks-1), common.Hash{})
		if err != nil {
			return nil, err
		}
		if next > from && headers[0].Parent != last {
			return nil, fmt.Errorf("block %d does not link to the one before it: %w", next, ErrGone)
		}
		proved, err := c.logsOf(ctx, headers)
		if err != nil {
			return nil, err
		}
		if has.add(proved); c.dense(has, from < to) {
			return nil, ErrDense
		}
		blocks, err := assemble(headers, proved)
		if err != nil {
			return nil, err
		}
		for i := range blocks {
			if b := &blocks[i]; len(b.Logs) > 0 || b.Number == from || b.Number == to {
				all = append(all, *b)
			}
		}
		top := headers[len(headers)-1]
		next, last = top.Number+1, top.Hash
	}
	return all, nil
}

// sparse holds the headers of a range fetched so far.
type sparse struct {
	client *Client

	mu    sync.Mutex
	known map[uint64]follow.Header
}

// of implements headersOf. All headers of a range link, so they are right if the last one is.
func (s *sparse) of(ctx context.Context, first, last uint64, logs []topics.Log, all bool) ([]follow.Header, error) {
	if !all {
		return s.fetch(ctx, numbersOf(0, 0, logs))
	}
	end, err := s.fetch(ctx, []uint64{last})
	if err != nil {
		return nil, err
	}
	return s.client.Headers(ctx, first, last, end[0].Hash)
}

// numbersOf returns the blocks of logs, which ascend, and first and last, without duplicates.
func numbersOf(first, last uint64, logs []topics.Log) []uint64 {
	var all []uint64
	add := func(n uint64) {
		if k := len(all); n > 0 && (k == 0 || all[k-1] < n) {
			all = append(all, n)
		}
	}
	add(first)
	for i := range logs {
		add(logs[i].Block.Number)
	}
	add(last)
	return all
}

// fetch returns the headers of ascending numbers.
func (s *sparse) fetch(ctx context.Context, numbers []uint64) ([]follow.Header, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []uint64
	for _, n := range numbers {
		if _, ok := s.known[n]; !ok {
			missing = append(missing, n)
		}
	}
	got := make([]follow.Header, len(missing))
	g, ctx := errgroup.WithContext(ctx)
	for i := 0; i < len(missing); i += s.client.cfg.MaxBatch {
		end := min(i+s.client.cfg.MaxBatch, len(missing))
		g.Go(func() error { return s.client.twice(ctx, missing[i:end], got[i:end]) })
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("fetch %d headers: %w", len(missing), err)
	}
	for i := range got {
		s.known[got[i].Number] = got[i]
	}
	all := make([]follow.Header, len(numbers))
	for i, n := range numbers {
		all[i] = s.known[n]
	}
	return all, nil
}

// twice fetches headers, ascending by number, that two nodes have. Where two differ, all are asked.
func (c *Client) twice(ctx context.Context, numbers []uint64, into []follow.Header) error {
	last := numbers[len(numbers)-1]
	confirmed := make([]follow.Header, len(into))
	for range 2 * len(c.endpoints) {
		var by, other *endpoint
		err := c.try(ctx, choice{block: last}, func(ctx context.Context, e *endpoint) error {
			by = e
			return e.headers(ctx, numbers, into)
		})
		if err != nil || c.decides(by) {
			return err
		}
		err = c.try(ctx, choice{block: last, not: []*endpoint{by}}, func(ctx context.Context, e *endpoint) error {
			other = e
			return e.headers(ctx, numbers, confirmed)
		})
		if err != nil {
			return fmt.Errorf("confirm headers: %w", err)
		}
		differ := 0
		for differ < len(into) && into[differ].Hash == confirmed[differ].Hash {
			differ++
		}
		if differ == len(into) {
			c.history.add(&into[len(into)-1])
			return nil
		}
		most, err := c.Vote(ctx, numbers[differ], true)
		if err != nil {
			return err
		}
		for e, has := range map[*endpoint]follow.Header{by: into[differ], other: confirmed[differ]} {
			if has.Hash != most.Hash {
				e.lost(true, lied(lieFork, "block %d is %s, but most endpoints have %s", most.Number, has.Hash, most.Hash))
			}
		}
	}
	return fmt.Errorf("headers %d-%d: two endpoints never agree: %w", numbers[0], last, ErrGone)
}

// agreed holds the last blocks of history that two endpoints were found to have. A vote on one of them asks no
// endpoint again: with three endpoints or fewer no other block can have more.
type agreed struct {
	mu   sync.Mutex
	all  [64]agreement
	next int
}

type agreement struct {
	header follow.Header
	at     time.Time
}

func (a *agreed) add(h *follow.Header) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[a.next] = agreement{*h, time.Now()}
	a.next = (a.next + 1) % len(a.all)
}

// find returns the block of a height.
func (a *agreed) find(number uint64) (follow.Header, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.all {
		if of := &a.all[i]; of.header.Number == number && time.Since(of.at) < recentFor {
			return of.header, true
		}
	}
	return follow.Header{}, false
}
