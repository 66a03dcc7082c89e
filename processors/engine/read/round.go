package read

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/pause"
)

const (
	maxRounds = 12
	firstWait = 2 * time.Millisecond
	maxWait   = 100 * time.Millisecond
)

// Request is a read of partitions.
type Request struct {
	Operation  *Operation
	Query      Query
	Partitions []int32          // ascending; nil: all
	At         *topics.BlockRef // number and hash; nil: the frontier, or the latest that all of them have
	Limit      int              // of the items of all nodes together; 0: none

	// Owned asks owners alone, and waits for them: whatever they have answered to be written is in the answer, through whichever
	// router. A standby may lack it.
	Owned bool
}

// Read asks the holders of the partitions until they answer as of one block, or until Patience is over. Errors:
// ErrUnavailable, ErrBadRequest, those of the operation, those of ctx.
func (r *Router) Read(ctx context.Context, q Request) (a *Response, err error) {
	op := q.Operation
	if err := op.validate(q.Query); err != nil {
		return nil, err
	}
	partitions := q.Partitions
	if partitions == nil {
		partitions = r.all
	}
	req := &nodeRequest{Application: r.cfg.Application, Operation: op.name, Partitions: partitions, op: op, query: q.Query, owned: q.Owned}
	if q.At != nil {
		req.Pinned, req.At = true, *q.At
	}
	if q.Limit == 0 {
		q.Limit = math.MaxInt
	}
	start := time.Now()
	defer func() {
		m := r.metrics.of(op.name)
		m.reads[outcome(a, err)].Inc()
		m.seconds.Observe(time.Since(start).Seconds())
	}()

	patience, atLeast := r.cfg.Patience, MinBlock(ctx)
	if q.At == nil && atLeast > 0 {
		patience = max(patience, minBlockWait)
		at := r.await(ctx, partitions, atLeast)
		if at == isNowhere && ctx.Err() == nil {
			return nil, fmt.Errorf("read %s: block %d: %w", op.name, atLeast, ErrStale)
		}
		req.aside = at == isAside
	}
	r.awaitAnswerable(ctx, partitions, q.At == nil && !req.aside, patience)
	tried := tries{} // failed nodes are tried last
	wait := firstWait
	for range maxRounds {
		if q.At == nil && !req.aside {
			req.frontier, req.Pinned = r.asOf()
			req.At = req.frontier.Block
		}
		if a, err = r.hedged(ctx, req, q.Limit, atLeast, tried); err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read %s: %w", op.name, ctx.Err())
		}
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrStale) || time.Since(start)+wait > patience {
			break
		}
		if err := pause.For(ctx, wait); err != nil {
			return nil, fmt.Errorf("read %s: %w", op.name, err)
		}
		wait = min(2*wait, maxWait)
	}
	return nil, fmt.Errorf("read %s: %w", op.name, err)
}

// round asks each holder once. Where the read is not as of a certain block that is its latest one, and those ahead of
// the others are asked again at the lowest.
func (r *Router) round(ctx context.Context, calls []call, req *nodeRequest, limit int, atLeast uint64, tried tries) (*Response, error) {
	r.metrics.rounds.Inc()
	floor := r.nodes.floorOf(req.Partitions)
	latest := make([]*Response, len(calls))
	if err := r.askAll(ctx, calls, latest, req, tried); err != nil {
		return nil, err
	}
	earliest, same := oneBlock(latest)
	if !same {
		r.metrics.aligned.Inc()
		pinned := *req
		pinned.Pinned, pinned.At = true, earliest.Block
		for i, a := range latest {
			if a.Block.Hash != earliest.Block.Hash {
				latest[i] = nil
			}
		}
		if err := r.askAll(ctx, calls, latest, &pinned, tried); err != nil {
			return nil, err
		}
		if at, same := oneBlock(latest); !same || at.Block.Hash != earliest.Block.Hash {
			return nil, fmt.Errorf("nodes disagree on block %d: %w", earliest.Block.Number, ErrUnavailable)
		}
	}
	a := joined(latest, limit)
	if req.frontier != (Moment{}) {
		a.Moment = req.frontier
	}
	switch {
	case req.Pinned && req.frontier == (Moment{}): // the caller's
	case a.Before(floor):
		r.metrics.refused.WithLabelValues(refusedBehind).Inc()
		return nil, fmt.Errorf("answer is as of block %d, but block %d was already shown: %w", a.Block.Number, floor.Block.Number, ErrUnavailable)
	case a.Block.Number < atLeast:
		return nil, ErrStale
	case req.aside:
	default:
		r.nodes.shown(a.Moment, req.Partitions)
	}
	return a, nil
}

// askAll sends the calls without a response in parallel.
func (r *Router) askAll(ctx context.Context, calls []call, answers []*Response, req *nodeRequest, tried tries) error {
	if len(calls) == 1 { // one process: no goroutine, no copy
		a, err := r.ask(ctx, calls[0], req)
		if err != nil {
			tried.failed(calls[0], err)
			return err
		}
		answers[0] = a
		return nil
	}
	var g errgroup.Group // the first error cancels nothing: the outcome of each node is recorded
	errs := make([]error, len(calls))
	for i, c := range calls {
		if answers[i] == nil {
			g.Go(func() error {
				answers[i], errs[i] = r.ask(ctx, c, req)
				return errs[i]
			})
		}
	}
	err := g.Wait()
	for i, c := range calls {
		// A node without a certain block may lack it in the next round too: an owner that has just taken over
		// keeps few blocks, its predecessor many.
		if errs[i] != nil {
			tried.failed(c, errs[i])
		}
	}
	return err
}

// mayAsk reports whether a holder may answer.
func (r *nodeRequest) mayAsk(w *Watermark) bool { return !r.owned || w.Role == topics.RoleOwner }

// ask asks one node and checks its response.
func (r *Router) ask(ctx context.Context, c call, req *nodeRequest) (*Response, error) {
	own := *req
	own.Partitions = c.partitions
	waiting := ctx
	if c.remote() {
		if !req.owned { // else there is nobody to ask instead of a silent one
			var done context.CancelFunc
			waiting, done = r.nodes.called(ctx, c)
			defer done()
		}
		c.waiting.Store(true)
		defer c.waiting.Store(false)
	}
	var floor Moment
	if !req.Pinned {
		floor = r.nodes.floorOf(c.partitions)
	}
	a, err := c.node.ask(waiting, &own)
	if err != nil {
		// Who lacks a view of a certain block may answer for the next.
		if _, lacking := errors.AsType[*lackingError](err); ctx.Err() == nil && c.remote() && (!req.Pinned || req.frontier != (Moment{}) && !lacking) {
			r.nodes.failedNow(c.node)
		}
		r.metrics.refused.WithLabelValues(refusedFailed).Inc()
		return nil, err
	}
	reason, partition := r.nodes.accept(c, a, floor)
	if i := slices.IndexFunc(a.Watermarks, func(w Watermark) bool { return !req.mayAsk(&w) }); reason == "" && i >= 0 {
		reason, partition = refusedStandby, a.Watermarks[i].Partition // it was the owner when it was last heard of
	}
	if reason != "" {
		r.metrics.refused.WithLabelValues(reason).Inc()
		return nil, &lackingError{partition, fmt.Errorf("response of %q: %s: %w", c.node.instance, reason, ErrUnavailable)}
	}
	return a, nil
}
