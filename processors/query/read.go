package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	maxRounds = 12
	firstWait = 2 * time.Millisecond
	maxWait   = 100 * time.Millisecond
)

// read asks the holders of the partitions until they answer as of one block, or patience ends.
func (r *Router) read(ctx context.Context, partitions []int32, req *request) (a *answer, err error) {
	req.Partitions = partitions
	if err := req.validate(); err != nil {
		return nil, err
	}
	start := time.Now()
	defer func() {
		r.metrics.reads.WithLabelValues(req.Op.String(), outcome(a, req.Op, err)).Inc()
		r.metrics.seconds.WithLabelValues(req.Op.String()).Observe(time.Since(start).Seconds())
	}()

	tried := tries{} // others go first
	wait := firstWait
	for range maxRounds {
		if a, err = r.round(ctx, partitions, req, tried); err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read %s: %w", req.Op, ctx.Err())
		}
		if !errors.Is(err, ErrUnavailable) || time.Since(start)+wait > r.cfg.Patience {
			break
		}
		if err := pause(ctx, wait); err != nil {
			return nil, fmt.Errorf("read %s: %w", req.Op, err)
		}
		wait = min(2*wait, maxWait)
	}
	return nil, fmt.Errorf("read %s: %w", req.Op, err)
}

// round asks each holder once, at its latest block, and those ahead of the others again at the lowest.
func (r *Router) round(ctx context.Context, partitions []int32, req *request, tried tries) (*answer, error) {
	r.metrics.rounds.Inc()
	pieces, ok := r.nodes.assign(partitions, tried)
	if !ok {
		return nil, ErrUnavailable
	}
	latest := make([]*answer, len(pieces))
	if err := r.askAll(ctx, pieces, latest, req, tried); err != nil {
		return nil, err
	}
	lowest, same := oneBlock(latest)
	if !same {
		r.metrics.aligned.Inc()
		pinned := *req
		pinned.Pinned, pinned.At = true, lowest
		for i, a := range latest {
			if a.At.Hash != lowest.Hash {
				latest[i] = nil
			}
		}
		if err := r.askAll(ctx, pieces, latest, &pinned, tried); err != nil {
			return nil, err
		}
		if at, same := oneBlock(latest); !same || at.Hash != lowest.Hash {
			return nil, fmt.Errorf("nodes disagree at block %d: %w", lowest.Number, ErrUnavailable)
		}
	}
	a := joined(latest, req.Limit)
	r.nodes.shown(lowest, a.Watermarks)
	return a, nil
}

// askAll asks, in parallel, for the pieces that have no answer yet.
func (r *Router) askAll(ctx context.Context, pieces []piece, answers []*answer, req *request, tried tries) error {
	if len(pieces) == 1 { // one process: no goroutine, no copy
		a, err := r.ask(ctx, pieces[0], req)
		if err != nil {
			tried.failed(pieces[0], err)
			return err
		}
		answers[0] = a
		return nil
	}
	var g errgroup.Group // the first error cancels nothing: each node shows whether it answers
	errs := make([]error, len(pieces))
	for i, c := range pieces {
		if answers[i] == nil {
			g.Go(func() error {
				answers[i], errs[i] = r.ask(ctx, c, req)
				return errs[i]
			})
		}
	}
	err := g.Wait()
	for i, c := range pieces {
		// One that no longer has a certain block may not have it in the next round either: an owner that
		// has just taken over keeps few, and whom it took over from keeps many.
		if errs[i] != nil {
			tried.failed(c, errs[i])
		}
	}
	return err
}

// ask asks one node and judges its answer.
func (r *Router) ask(ctx context.Context, c piece, req *request) (*answer, error) {
	own := *req
	own.Partitions = c.partitions
	waiting := ctx
	if c.node.instance != "" {
		var done context.CancelFunc
		waiting, done = r.nodes.called(ctx, c.node)
		defer done()
	}
	floors := r.nodes.floors(c.partitions)
	a, err := c.node.ask(waiting, &own)
	if err != nil {
		if ctx.Err() == nil && c.node.instance != "" && !req.Pinned {
			r.nodes.failedNow(c.node)
		}
		r.metrics.refused.WithLabelValues(refusedFailed).Inc()
		return nil, err
	}
	if c.node.instance != "" {
		r.nodes.answered(c.node)
	}
	if reason, partition := r.nodes.accept(c, a, floors); reason != "" {
		r.metrics.refused.WithLabelValues(reason).Inc()
		return nil, &lackingError{partition, fmt.Errorf("answer of %q: %s: %w", c.node.instance, reason, ErrUnavailable)}
	}
	return a, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
