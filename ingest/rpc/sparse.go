package rpc

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// Sparse fetches those of the blocks from..to that have logs, and the first and the last, which link to their
// neighbours. That the blocks between are empty is not verified, which would cost a header each.
func (c *Client) Sparse(ctx context.Context, from, to uint64) ([]follow.Block, error) {
	h := &sparse{client: c, known: map[uint64]follow.Header{}}
	logs, err := c.rangeLogs(ctx, from, to, h.of)
	if err != nil {
		return nil, fmt.Errorf("fetch sparse blocks %d-%d: %w", from, to, err)
	}
	headers, err := h.fetch(ctx, numbersOf(from, to, logs))
	if err != nil {
		return nil, fmt.Errorf("fetch sparse blocks %d-%d: %w", from, to, err)
	}
	return assemble(headers, logs), nil
}

// sparse holds the headers of a range fetched so far.
type sparse struct {
	client *Client

	mu    sync.Mutex
	known map[uint64]follow.Header
}

// of implements headersOf.
func (s *sparse) of(ctx context.Context, first, last uint64, logs []topics.Log, all bool) ([]follow.Header, error) {
	if all {
		return s.client.Headers(ctx, first, last)
	}
	return s.fetch(ctx, numbersOf(0, 0, logs))
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
	for i := 0; i < len(missing); i += s.client.cfg.HeaderBatch {
		end := min(i+s.client.cfg.HeaderBatch, len(missing))
		g.Go(func() error { return s.client.headers(ctx, missing[i:end], got[i:end]) })
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
