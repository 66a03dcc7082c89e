package rpc

import (
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
)

func (e *endpoint) header(ctx context.Context, tag string) (h follow.Header, err error) {
	return e.headerOf(ctx, "eth_getBlockByNumber", tag)
}

func (e *endpoint) byHash(ctx context.Context, hash common.Hash) (h follow.Header, err error) {
	return e.headerOf(ctx, "eth_getBlockByHash", `"`+hash.Hex()+`"`)
}

func (e *endpoint) headerOf(ctx context.Context, method, block string) (h follow.Header, err error) {
	return h, e.do(ctx, []call{{
		method: method, params: []byte("[" + block + ",false]"),
		result: func(s *scanner) error { return decodeHeader(s, &h, e.client.cfg.Proof != ProofOff) },
	}})
}

// Headers fetches the headers from..to, which link, and end with the hash top; zero: with any. If two batches do not
// link, a vote decides which of them is wrong, and it is fetched again.
func (c *Client) Headers(ctx context.Context, from, to uint64, top common.Hash) ([]follow.Header, error) {
	all := make([]follow.Header, to-from+1)
	batch := func(ctx context.Context, i int) error {
		part := all[i:min(i+c.cfg.MaxBatch, len(all))]
		return c.headers(ctx, consecutive(from+uint64(i), len(part)), part)
	}
	g, gctx := errgroup.WithContext(ctx)
	for i := 0; i < len(all); i += c.cfg.MaxBatch {
		g.Go(func() error { return batch(gctx, i) })
	}
	err := g.Wait()
	for rounds := 0; err == nil; rounds++ {
		at := unlinked(all, top)
		if at < 0 {
			return all, nil
		}
		if rounds > 2*len(c.endpoints) || c.only() {
			err = fmt.Errorf("what follows block %d does not link to it: %w", all[at].Number, ErrGone)
			break
		}
		var most follow.Header
		if most, err = c.Vote(ctx, all[at].Number, false); err != nil {
			break
		}
		switch wrong := all[at].Hash != most.Hash; {
		case !wrong && at == len(all)-1:
			err = fmt.Errorf("block %d is %s, not %s: %w", to, most.Hash, top, ErrGone)
		case !wrong:
			at++
			fallthrough
		default:
			err = batch(ctx, at/c.cfg.MaxBatch*c.cfg.MaxBatch)
		}
	}
	return nil, fmt.Errorf("fetch headers %d-%d: %w", from, to, err)
}

// consecutive are so many block numbers from one on.
func consecutive(from uint64, n int) []uint64 {
	numbers := make([]uint64, n)
	for i := range numbers {
		numbers[i] = from + uint64(i)
	}
	return numbers
}

// unlinked returns the index of the first header that what follows does not link to; negative: all link.
func unlinked(all []follow.Header, top common.Hash) int {
	for i := 1; i < len(all); i++ {
		if all[i].Parent != all[i-1].Hash {
			return i - 1
		}
	}
	if last := len(all) - 1; top != (common.Hash{}) && all[last].Hash != top {
		return last
	}
	return -1
}

// headers fetches one batch of headers, ascending by number. For a small batch, as at the tip, a slow endpoint is not
// waited for.
func (c *Client) headers(ctx context.Context, numbers []uint64, into []follow.Header) error {
	want := choice{block: numbers[len(numbers)-1]}
	if len(numbers) > c.cfg.ReceiptsBatch {
		return c.try(ctx, want, func(ctx context.Context, e *endpoint) error { return e.headers(ctx, numbers, into) })
	}
	got, _, err := hedged(ctx, c, want, func(ctx context.Context, e *endpoint) ([]follow.Header, error) {
		part := make([]follow.Header, len(numbers))
		return part, e.headers(ctx, numbers, part)
	})
	copy(into, got)
	return err
}

func (e *endpoint) headers(ctx context.Context, numbers []uint64, into []follow.Header) error {
	calls := make([]call, len(into))
	for i := range into {
		into[i] = follow.Header{}
		calls[i] = call{
			method: "eth_getBlockByNumber", params: append(appendQuantity([]byte{'['}, numbers[i]), ",false]"...),
			result: func(s *scanner) error { return decodeHeader(s, &into[i], e.client.cfg.Proof != ProofOff) },
		}
	}
	if err := e.do(ctx, calls); err != nil {
		return err
	}
	for i := range into {
		if into[i].Number != numbers[i] {
			return lied("wrong_block", "requested block %d, got %d", numbers[i], into[i].Number)
		}
		if i > 0 && numbers[i] == numbers[i-1]+1 && into[i].Parent != into[i-1].Hash {
			return lied("parent", "block %d has parent %s, but the block before it is %s", into[i].Number, into[i].Parent, into[i-1].Hash)
		}
	}
	e.remember(into[0], into[len(into)-1])
	return nil
}
