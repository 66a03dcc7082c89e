package indexer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics/polltest"
)

// slowReader holds reads of the changes since a moment: each goes on when it is told to.
type slowReader struct {
	query.Reader
	since query.Moment
	goOn  chan struct{}
	now   atomic.Int64
	most  atomic.Int64
}

func (r *slowReader) Changes(ctx context.Context, since *query.Moment) (query.Changes, error) {
	if since == nil || !since.Same(r.since) {
		return r.Reader.Changes(ctx, since) // of the feed
	}
	n := r.now.Add(1)
	defer r.now.Add(-1)
	for m := r.most.Load(); n > m && !r.most.CompareAndSwap(m, n); m = r.most.Load() {
	}
	<-r.goOn
	return r.Reader.Changes(ctx, since)
}

// ends hangs up with the first event that it is sent.
type ends struct {
	http.ResponseWriter
	stop context.CancelFunc
	sent int
}

func (e *ends) Write(b []byte) (int, error) {
	if e.sent++; e.sent > 1 { // the first one says when to retry
		e.stop()
	}
	return len(b), nil
}

// Flush implements http.Flusher.
func (*ends) Flush() {}

// Streams that a client resumes read in turn with its other reads.
func TestResumesWaitTheirTurn(t *testing.T) {
	m := newMarket(t)
	m.block(start+1, listed(1))
	old := query.Moment{Block: m.at}
	m.block(start+2, listed(2))
	x := m.indexer()
	r := &slowReader{Reader: x.reader, since: old, goOn: make(chan struct{})}
	const streams = 16
	var g sync.WaitGroup
	id := string(x.ids.append(nil, old))
	x.reader, x.cfg.MaxStreamAge = r, time.Hour
	feed, stop := context.WithCancel(t.Context())
	var f sync.WaitGroup
	f.Go(func() { _ = x.feed.run(feed) })
	defer f.Wait()
	defer stop()
	for range streams {
		g.Go(func() {
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			q := httptest.NewRequestWithContext(ctx, http.MethodGet, "/stream", http.NoBody)
			q.RemoteAddr = "192.0.2.1:1"
			q.Header.Set("Last-Event-ID", id)
			x.ServeHTTP(&ends{ResponseWriter: httptest.NewRecorder(), stop: hangUp}, q)
		})
	}
	polltest.Until(t, "all streams are open", func() bool {
		x.feed.mu.Lock()
		defer x.feed.mu.Unlock()
		return x.feed.followers == streams
	})
	for range streams {
		r.goOn <- struct{}{}
	}
	g.Wait()
	if n, most := r.most.Load(), int64(x.cfg.HTTP.Client.MaxReads); n > most {
		t.Errorf("%d reads of one client at once, its MaxReads is %d", n, most)
	}
}
