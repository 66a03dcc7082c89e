package read

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// hedgeAfter is how long a node may take to respond before other holders of its partitions are asked too. A
	// frozen node is detected only later, and a node with a hanging disk still reports its watermarks.
	hedgeAfter = 100 * time.Millisecond
	// hedgeAgain is when they are looked for once more if there was none, or it could not answer: a node becomes known, and
	// a standby that lacks the owner's last block applies it soon.
	hedgeAgain = 50 * time.Millisecond
	// maxHedges bounds the hedged reads: if all nodes are slow, they would make them slower.
	maxHedges = 16
)

// result is that of a round.
type result struct {
	response *Response
	err      error
	tried    tries // what it added to those of the read; nil: nothing
}

// hedged is a round, and others beside it, one at a time, where nodes keep the first waiting. The first answer is taken. The
// first round runs on the caller's goroutine, as it is nearly always the only one.
func (r *Router) hedged(ctx context.Context, req *nodeRequest, limit int, atLeast uint64, tried tries) (*Response, error) {
	calls, ok := r.nodes.assign(req.Partitions, req.frontier, tried)
	if !ok {
		return nil, ErrUnavailable
	}
	if !slices.ContainsFunc(calls, call.remote) { // one process: no timer
		return r.round(ctx, calls, req, limit, atLeast, tried)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, best, before := make(chan result, 1), make(chan result, 1), maps.Clone(tried)
	late := time.AfterFunc(hedgeAfter, func() {
		best <- r.beside(ctx, calls, req, limit, atLeast, before, first)
		cancel() // the first round is given up
	})
	a, err := r.round(ctx, calls, req, limit, atLeast, tried)
	if late.Stop() {
		return a, err
	}
	first <- result{response: a, err: err}
	o := <-best
	tried.add(o.tried)
	return o.response, o.err
}

// beside asks others than the nodes that keep the first round waiting. It returns the first answer, the first round's
// included, or the last error once all have failed.
func (r *Router) beside(ctx context.Context, calls []call, req *nodeRequest, limit int, atLeast uint64, before tries, first <-chan result) result {
	tried, rounds := tries{}, make(chan result, 1)
	late := time.NewTimer(0)
	defer late.Stop()
	for running := 1; ; {
		var o result
		select {
		case o = <-first:
		case o = <-rounds:
		case <-late.C:
			others, avoided, ok := r.nodes.instead(calls, req, before)
			if !ok || !r.hedges.TryAcquire(1) {
				late.Reset(hedgeAgain)
				continue
			}
			r.metrics.hedged.Inc()
			running++
			go func() {
				defer r.hedges.Release(1)
				a, err := r.round(ctx, others, req, limit, atLeast, avoided)
				rounds <- result{a, err, avoided}
			}()
			continue
		}
		tried.add(o.tried)
		if running--; o.err == nil || running == 0 {
			o.tried = tried
			return o
		}
		late.Reset(hedgeAgain)
	}
}

// instead assigns partitions to others than the nodes that have not answered yet. False: there are none.
func (n *nodes) instead(calls []call, req *nodeRequest, tried tries) ([]call, tries, bool) {
	avoided := maps.Clone(tried)
	var slow []*node
	for _, c := range calls {
		if c.remote() && c.waiting.Load() {
			slow = append(slow, c.node)
			for _, p := range c.partitions {
				avoided[try{c.node, p}]++
			}
		}
	}
	others, ok := n.assign(req.Partitions, req.frontier, avoided)
	if !ok || len(slow) == 0 || slices.ContainsFunc(others, func(c call) bool { return slices.Contains(slow, c.node) }) {
		return nil, nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range slow {
		h.slow = n.now()
	}
	return others, avoided, true
}
