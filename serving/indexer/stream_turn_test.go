package indexer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics/polltest"
)

// slowReader holds reads of the changes since any moment but the last: each goes on when it is told to.
type slowReader struct {
	query.Reader
	last query.Moment
	goOn chan struct{}
	now  atomic.Int64
	most atomic.Int64
	all  atomic.Int64
}

func (r *slowReader) Changes(ctx context.Context, since *query.Moment) (query.Changes, error) {
	if since == nil || since.Same(r.last) {
		return r.Reader.Changes(ctx, since) // of the feed
	}
	r.all.Add(1)
	n := r.now.Add(1)
	defer r.now.Add(-1)
	for m := r.most.Load(); n > m && !r.most.CompareAndSwap(m, n); m = r.most.Load() {
	}
	select {
	case <-r.goOn:
	case <-ctx.Done():
		return query.Changes{}, ctx.Err()
	}
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

// resuming has as many clients as IDs come back to an indexer, each with its own or all from one address. goOn runs while they
// wait; reads go on as it tells them to.
func resuming(t *testing.T, m *market, ids []query.Moment, address func(i int) string, goOn func(r *slowReader)) (*Indexer, *slowReader) {
	t.Helper()
	x := m.indexer()
	r := &slowReader{Reader: x.reader, last: query.Moment{Block: m.at}, goOn: make(chan struct{})}
	x.reader, x.cfg.MaxStreamAge = r, time.Hour
	feed, stop := context.WithCancel(t.Context())
	var f, g sync.WaitGroup
	f.Go(func() { _ = x.feed.run(feed) })
	defer f.Wait()
	defer stop()
	for i, have := range ids {
		g.Go(func() {
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			q := httptest.NewRequestWithContext(ctx, http.MethodGet, "/stream", http.NoBody)
			q.RemoteAddr = address(i)
			q.Header.Set("Last-Event-ID", string(x.ids.append(nil, have)))
			x.ServeHTTP(&ends{ResponseWriter: httptest.NewRecorder(), stop: hangUp}, q)
		})
	}
	polltest.Until(t, "all streams are open", func() bool {
		x.feed.mu.Lock()
		defer x.feed.mu.Unlock()
		return x.feed.followers == len(ids)
	})
	goOn(r)
	g.Wait()
	return x, r
}

// Streams that a client resumes read in turn with its other reads.
func TestResumesWaitTheirTurn(t *testing.T) {
	m := newMarket(t)
	var ids []query.Moment
	for n := range uint64(16) {
		m.block(start+n, listed(n))
		ids = append(ids, query.Moment{Block: m.at})
	}
	m.block(start+100, listed(100))
	x, r := resuming(t, m, ids, func(int) string { return "192.0.2.1:1" }, func(r *slowReader) {
		for range ids {
			r.goOn <- struct{}{}
		}
	})
	if n, most := r.most.Load(), int64(x.cfg.HTTP.Client.MaxReads); n > most {
		t.Errorf("%d reads of one client at once, its MaxReads is %d", n, most)
	}
}

// Clients that come back with the same ID are told what was read once. Who reads for the others may leave.
func TestResumesOfOneMomentAreShared(t *testing.T) {
	m := newMarket(t)
	m.block(start+1, listed(1))
	old := query.Moment{Block: m.at}
	m.block(start+2, listed(2))
	const streams = 100
	x, r := resuming(t, m, slices.Repeat([]query.Moment{old}, streams), func(i int) string { return fmt.Sprintf("192.0.2.%d:1", 1+i) },
		func(r *slowReader) { close(r.goOn) })
	if n := r.all.Load(); n != 1 {
		t.Errorf("%d reads for one moment", n)
	}
	shared := testutil.ToFloat64(x.metrics.resumed.WithLabelValues(resumedShared))
	if own := testutil.ToFloat64(x.metrics.resumed.WithLabelValues(resumedProcessors)); own != 1 || shared != streams-1 {
		t.Errorf("%v read, and %v were told the same", own, shared)
	}
}

// TestWhoReadsForOthersMayLeave: then one of these reads.
func TestWhoReadsForOthersMayLeave(t *testing.T) {
	m := newMarket(t)
	m.block(start+1, listed(1))
	old := query.Moment{Block: m.at}
	m.block(start+2, listed(2))
	x := m.indexer()
	r := &slowReader{Reader: x.reader, last: query.Moment{Block: m.at}, goOn: make(chan struct{})}
	x.reader = r
	x.feed.join()
	defer x.feed.leave()
	x.feed.step(t.Context())
	tenure := x.feed.tenure
	leaves, leave := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() {
		if _, err := (&subscription{x: x, have: &old}).missed(leaves, tenure); !errors.Is(err, context.Canceled) {
			t.Errorf("who has left: %v", err)
		}
	})
	polltest.Until(t, "one reads", func() bool { return r.all.Load() == 1 })
	stays := old
	g.Go(func() {
		news, err := (&subscription{x: x, have: &stays}).missed(t.Context(), tenure)
		if err != nil || !strings.Contains(string(news), m.at.Hash.Hex()) || !strings.Contains(string(news), `"id":"2"`) {
			t.Errorf("who stays: %q %v", news, err)
		}
	})
	leave()
	polltest.Until(t, "the other reads", func() bool { return r.all.Load() == 2 })
	close(r.goOn)
	g.Wait()
}

// TestKeptResumesAreBounded: and forgotten where the feed begins after them.
func TestKeptResumesAreBounded(t *testing.T) {
	x := newMarket(t).indexer()
	a := &x.resumes
	x.feed.known, x.feed.base = true, query.Moment{Reverts: 1}
	moment := func(n uint64) query.Moment { return query.Moment{Reverts: n} }
	add := func(n uint64, bytes int) {
		r, own := a.join(moment(n), 1, x.feed)
		if !own {
			t.Fatalf("moment %d is known", n)
		}
		r.at, r.data = moment(n+1), make([]byte, bytes)
		a.land(moment(n), r)
	}
	for n := range uint64(2 * maxResumes) {
		add(n, 1<<10)
	}
	if len(a.kept) != maxResumes || len(a.of) != maxResumes || a.size != maxResumes<<10 {
		t.Errorf("%d and %d are kept, %d bytes", len(a.kept), len(a.of), a.size)
	}
	add(5000, maxResumeBytes)
	if len(a.kept) != 1 || len(a.of) != 1 || a.size != maxResumeBytes {
		t.Errorf("%d and %d are kept, %d bytes", len(a.kept), len(a.of), a.size)
	}
	if _, own := a.join(moment(5000), 1, x.feed); own {
		t.Error("what is kept is read again")
	}
	x.feed.base, x.feed.at = moment(6000), moment(6000)
	if _, own := a.join(moment(5000), 1, x.feed); !own {
		t.Error("what the feed does not go on from is used")
	}
	if len(a.kept) != 0 || a.size != 0 {
		t.Errorf("%d are kept, %d bytes", len(a.kept), a.size)
	}
}
