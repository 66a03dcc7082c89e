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

// hedged is a round, and others beside it, one at a time, where nodes keep the first waiting. The first answer is taken.
func (r *Router) hedged(ctx context.Context, req *nodeRequest, limit int, atLeast uint64, tried tries) (*Response, error) {
	calls, ok := r.nodes.assign(req.Partitions, req.frontier, tried)
	if !ok {
		return nil, ErrUnavailable
	}
	if !slices.ContainsFunc(calls, call.remote) { // one process: no goroutine
		return r.round(ctx, calls, req, limit, atLeast, tried)
	}
	type outcome struct {
		response *Response
		err      error
		tried    tries
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome, 2)
	start := func(calls []call, tried tries) {
		a, err := r.round(ctx, calls, req, limit, atLeast, tried)
		outcomes <- outcome{a, err, tried}
	}
	go start(calls, maps.Clone(tried))
	before := maps.Clone(tried)
	late := time.NewTimer(hedgeAfter)
	defer late.Stop()
	for running := 1; ; {
		select {
		case o := <-outcomes:
			for k, n := range o.tried {
				tried[k] = max(tried[k], n)
			}
			if running--; o.err == nil || running == 0 {
				return o.response, o.err
			}
			late.Reset(hedgeAgain)
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
				start(others, avoided)
			}()
		}
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
