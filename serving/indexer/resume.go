package indexer

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lienstream/lienstream/processors/market/query"
)

const (
	resumeWait  = 5 * time.Second // for processors that are behind the client
	resumeEvery = 50 * time.Millisecond
)

// resume fetches changes that the feed does not have from the processors: everything since the client's moment. Where
// that ends within a frame of the feed, it is called again.
func (s *subscription) resume(ctx context.Context, tenure uint64) (net.Buffers, <-chan struct{}, error) {
	tick := time.NewTicker(resumeEvery)
	defer tick.Stop()
	patience := time.NewTimer(resumeWait)
	defer patience.Stop()
	for {
		var (
			missed []byte
			err    error
		)
		over := s.conn.Read(ctx, func() int {
			missed, err = s.missed(ctx, tenure)
			return len(missed)
		})
		switch {
		case over != nil:
			return nil, nil, over
		case err == nil && missed == nil:
			if news, moved, err := s.x.feed.after(s); !errors.Is(err, errElsewhere) { // else the feed went past it meanwhile
				return news, moved, err
			}
		case err == nil:
			return net.Buffers{missed}, nil, nil
		case !errors.Is(err, query.ErrUnavailable):
			return s.restart(), nil, nil
		}
		select {
		case <-tick.C:
			continue
		case <-patience.C:
		case <-ctx.Done():
		}
		return s.restart(), nil, nil
	}
}

// restart has the client start over, and tells it so.
func (s *subscription) restart() net.Buffers {
	s.x.metrics.resumed.WithLabelValues(resumedNot).Inc()
	s.have = nil
	return net.Buffers{[]byte(resetEvent)}
}

// missed are the events since the client's moment, and moves that on. Nil: there are none, as another node had shown it
// the last ones, which the feed of this one has not come to.
func (s *subscription) missed(ctx context.Context, tenure uint64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, resumeWait)
	defer cancel()
	all := &s.x.resumes
	for {
		r, own := all.join(*s.have, tenure, s.x.feed)
		if own {
			r.at, r.data, r.err = s.x.changesSince(ctx, s.have)
			all.land(*s.have, r)
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		from := resumedShared
		if own {
			from = resumedProcessors
		}
		switch {
		case r.err == nil && s.tenure == 0:
			s.x.metrics.resumed.WithLabelValues(from).Inc()
		case r.err == nil: // it has resumed before, and the feed did not stop where it was
		case !own && ctx.Err() == nil && (errors.Is(r.err, context.Canceled) || errors.Is(r.err, context.DeadlineExceeded)):
			continue // the client that read has left
		default:
			return nil, r.err
		}
		s.set(r.at, tenure)
		s.own = own
		return r.data, nil
	}
}

// changesSince reads the events since a moment, and up to which one they are. Nil: there are none.
func (x *Indexer) changesSince(ctx context.Context, have *query.Moment) (query.Moment, []byte, error) {
	c, err := x.reader.Changes(ctx, have)
	if err != nil || c.At.Same(*have) {
		return c.At, nil, err
	}
	head, _ := x.reader.Head(ctx) // only for the chain's head
	b := appendPoolEvent(appendDealEvents(nil, &c), &c.PoolOverview)
	return c.At, x.ids.appendBlockEvent(appendEpochEvent(b, &c.PoolOverview), c.At, head.Latest), nil
}

// resumes are what the processors told of moments, for all clients that come back with the same one: a node that stops
// has all of its clients come to the others at once.
type resumes struct {
	mu   sync.Mutex
	of   map[query.Moment]*resumption
	kept []query.Moment // those in of that are read, the oldest first
	size int            // bytes of these
}

// resumption is the events from a moment up to a later one, once it is done. Nobody changes it then.
type resumption struct {
	done   chan struct{}
	tenure uint64
	at     query.Moment
	data   []byte
	err    error
}

const (
	maxResumes     = 512
	maxResumeBytes = 8 << 20
)

// join returns the resumption of a moment, which may not be done. If it is the caller's own, it must be read and
// landed.
func (a *resumes) join(have query.Moment, tenure uint64, feed *feed) (r *resumption, own bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r = a.of[have]; r != nil {
		select {
		case <-r.done:
			if r.tenure == tenure && feed.follows(r.at, tenure) {
				return r, false
			}
			a.drop(have)
		default:
			if r.tenure == tenure {
				return r, false
			}
		}
	}
	r = &resumption{done: make(chan struct{}), tenure: tenure}
	if a.of == nil {
		a.of = map[query.Moment]*resumption{}
	}
	a.of[have] = r
	return r, true
}

// land ends the wait for a resumption, and keeps it if it was read.
func (a *resumes) land(have query.Moment, r *resumption) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(r.done)
	if a.of[have] != r {
		return // of an earlier tenure
	}
	if r.err != nil {
		delete(a.of, have)
		return
	}
	a.kept = append(a.kept, have)
	a.size += len(r.data)
	for len(a.kept) > maxResumes || a.size > maxResumeBytes {
		a.drop(a.kept[0])
	}
}

// drop forgets what is kept of a moment. The lock is held.
func (a *resumes) drop(have query.Moment) {
	i := slices.Index(a.kept, have)
	a.kept = slices.Delete(a.kept, i, i+1)
	a.size -= len(a.of[have].data)
	delete(a.of, have)
}
