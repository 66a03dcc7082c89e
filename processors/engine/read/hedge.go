package read

import (
	"context"
	"slices"
	"sync"
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
	calls, ok := r.nodes.assign(req, tried)
	if !ok {
		return nil, ErrUnavailable
	}
	if !slices.ContainsFunc(calls, call.remote) { // one process: no timer
		return r.round(ctx, calls, req, limit, atLeast, tried)
	}
	one, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(calls) == 1 {
		calls[0].cancel = &cancel // the call's context is the round's: another one costs as much as the rest of it
	}
	var meet meeting
	var before tries
	before.add(tried)
	late := time.AfterFunc(hedgeAfter, func() {
		others, end := context.WithCancel(ctx)
		defer end()
		meet.open()
		meet.best <- r.beside(others, calls, req, limit, atLeast, before, meet.first)
		cancel() // the first round is given up
	})
	a, err := r.round(one, calls, req, limit, atLeast, tried)
	if late.Stop() {
		return a, err
	}
	meet.open()
	meet.first <- result{response: a, err: err}
	o := <-meet.best
	tried.add(o.tried)
	return o.response, o.err
}

// meeting is where the first round and those beside it meet. Hardly any read has any beside it, so whoever comes first opens it.
type meeting struct {
	once        sync.Once
	first, best chan result
}

func (m *meeting) open() {
	m.once.Do(func() { m.first, m.best = make(chan result, 1), make(chan result, 1) })
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
	avoided := tries{}
	avoided.add(tried)
	var slow []*node
	for _, c := range calls {
		if c.remote() && c.waiting.Load() {
			slow = append(slow, c.node)
			for _, p := range c.partitions {
				avoided[try{c.node, p}]++
			}
		}
	}
	others, ok := n.assign(req, avoided)
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
