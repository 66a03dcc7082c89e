package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// kept are the answers whose handlers said for how long they are true (Response.KeepWhile), to be repeated to
// whoever asks the same: path and query, letter by letter.
//
// Invariants:
//  1. The answers in now, and those in old, are at most half of the bound each.
//  2. An answer is asked whether it is still true each time before it is repeated.
//  3. Of those who ask for one that no longer is, one at a time asks the handler. The others wait, but not
//     long, for an answer that is still true when it is found, or that was asked for after they came: it is as
//     true as if they had asked. They would never have one of the first kind where it changes as fast as it is
//     found, and all at once would only be slower.
type kept struct {
	half     int64         // of the bound, in bytes
	patience time.Duration // of a request that waits for another to find the answer for both
	bytes    prometheus.Gauge

	mu               sync.Mutex
	now, old         map[question]*keptAnswer // what is not asked for while now fills up is forgotten
	nowSize, oldSize int64
	asking           map[question]*asking
}

// question is what an answer is kept by. Two spellings of one question are two questions.
type question struct{ path, query string }

// keptAnswer is a response with status 200, but for what differs from one to the next: the request's ID, and
// the form of the body.
type keptAnswer struct {
	*payload

	while  func() bool
	header []header
	route  string
	size   int64

	requests prometheus.Counter // of GET with 200, the usual
	seconds  prometheus.Observer
}

func newKept(bound int64, bytes prometheus.Gauge) *kept {
	return &kept{
		half: bound / 2, patience: time.Second, bytes: bytes,
		now: map[question]*keptAnswer{}, asking: map[question]*asking{},
	}
}

// questionOf is false for a request that no kept answer is for.
func questionOf(r *http.Request) (question, bool) {
	return question{r.URL.Path, r.URL.RawQuery}, (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.ContentLength == 0
}

// current returns the answer that is kept and true, or nil; had says that there is one, true or not.
func (k *kept) current(q question) (a *keptAnswer, had bool) {
	k.mu.Lock()
	if a = k.now[q]; a == nil {
		if a = k.old[q]; a != nil {
			k.put(q, a)
		}
	}
	k.mu.Unlock()
	if a == nil || a.while() {
		return a, a != nil
	}
	return nil, true
}

func (k *kept) keep(q question, a *keptAnswer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(q, a)
}

func (k *kept) put(q question, a *keptAnswer) {
	if last := k.now[q]; last != nil {
		delete(k.now, q)
		k.nowSize -= last.size
	}
	if last := k.old[q]; last != nil {
		delete(k.old, q)
		k.oldSize -= last.size
	}
	if a.size <= k.half {
		if k.nowSize+a.size > k.half {
			k.old, k.oldSize = k.now, k.nowSize
			k.now, k.nowSize = map[question]*keptAnswer{}, 0
		}
		k.now[q] = a
		k.nowSize += a.size
	}
	k.bytes.Set(float64(k.nowSize + k.oldSize))
}

// asking is one who asks the handler for all who want to know the same.
type asking struct {
	found  chan struct{}
	answer *keptAnswer // once it is found; nil: the handler failed, or does not let its answer be kept
}

// renew is for who found no true answer. It returns one that somebody else found meanwhile, or nil: then the
// handler is to be asked, and done told of the answer that is kept.
func (k *kept) renew(ctx context.Context, q question) (a *keptAnswer, done func(*keptAnswer)) {
	alone := func(*keptAnswer) {}
	if a, had := k.current(q); a != nil || !had {
		return a, alone
	}
	patience := time.NewTimer(k.patience)
	defer patience.Stop()
	for since := false; ; since = true { // the asking began since we came
		k.mu.Lock()
		at := k.asking[q]
		if at == nil {
			at = &asking{found: make(chan struct{})}
			k.asking[q] = at
			k.mu.Unlock()
			a, _ = k.current(q) // it may have been found between the look and the turn
			return a, func(a *keptAnswer) {
				at.answer = a
				k.mu.Lock()
				delete(k.asking, q)
				k.mu.Unlock()
				close(at.found)
			}
		}
		k.mu.Unlock()
		select {
		case <-at.found:
			if a = at.answer; a != nil && (since || a.while()) {
				return a, alone
			}
		case <-patience.C:
			return nil, alone
		case <-ctx.Done():
			return nil, alone
		}
	}
}

// keptOverhead is about what an answer costs beside its body.
const keptOverhead = 2 << 10

// newKeptAnswer copies the body, which is pooled. Its compressed form is counted before it is made, at its worst.
func (a *API) newKeptAnswer(q question, route string, res *Response) *keptAnswer {
	answer := &keptAnswer{
		payload: newPayload(bytes.Clone(res.Body)), while: res.KeepWhile, route: route,
		size:     int64(keptOverhead + 2*len(res.Body) + len(q.path) + len(q.query)),
		requests: a.metrics.requests.WithLabelValues(route, http.MethodGet, "200"), seconds: a.metrics.seconds.WithLabelValues(route),
	}
	for name, value := range res.Header {
		answer.header = append(answer.header, header{name, value})
	}
	return answer
}
