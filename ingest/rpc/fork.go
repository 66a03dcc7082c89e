package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics"
)

// ErrFork: the endpoints have different blocks of one number, and not most of them the fetched one. Try again later.
var ErrFork = errors.New("the endpoints are on different chains")

// Shared checks that a fetched block is not on the chain of one endpoint alone. That headers hash and link right shows that
// they belong together, and not that anybody else has them: an endpoint may make up a chain, with logs or without. Who has
// no block of that number, or does not answer, has no say.
func (c *Client) Shared(ctx context.Context, block topics.BlockRef) error {
	if len(c.endpoints) < 2 {
		return nil
	}
	var (
		g           errgroup.Group
		mu          sync.Mutex
		same, other []*endpoint
	)
	asking, cancel := context.WithTimeout(ctx, shortRest+opinionWait)
	defer cancel()
	for _, e := range c.endpoints {
		g.Go(func() error {
			if !e.rested(asking, shortRest) {
				return nil
			}
			bounded, stop := context.WithTimeout(asking, opinionWait)
			defer stop()
			h, err := e.byNumber(bounded, block.Number)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && h.Hash == block.Hash:
				if same = append(same, e); 2*len(same) > len(c.endpoints) {
					cancel() // whatever the others say
				}
			case err == nil:
				other = append(other, e)
			case asking.Err() == nil && !errors.Is(err, errNoBlock):
				e.failed(err)
			}
			return nil
		})
	}
	_ = g.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(other) == 0 || len(same) > len(other) {
		return nil
	}
	for _, e := range same {
		if len(same) < len(other) {
			e.failed(lied("fork", "block %d is %s, but %d endpoints have another one", block.Number, block.Hash, len(other)))
		} else {
			c.metrics.lies.WithLabelValues(e.name, "disagreement").Inc()
		}
	}
	c.log.Warn("endpoints are on different chains", zap.Uint64("block", block.Number), zap.Stringer("hash", block.Hash), zap.Int("have it", len(same)), zap.Int("have another", len(other)))
	return fmt.Errorf("block %d %s, which %d endpoints have and %d do not: %w", block.Number, block.Hash, len(same), len(other), ErrFork)
}
