package indexer

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// statsCounted counts how often the whole market is read.
type statsCounted struct {
	query.Reader
	n atomic.Int64
}

func (r *statsCounted) Stats(ctx context.Context) (query.Answer[query.Stats], error) {
	r.n.Add(1)
	return r.Reader.Stats(ctx)
}

// Everybody's own minBlock is the same question, as long as the answer that is kept is as of that block or a later one.
func TestMinBlockIsTheSameQuestion(t *testing.T) {
	m := newMarket(t)
	everything(m)
	m.block(start + 300)
	x := m.indexer()
	r := &statsCounted{Reader: x.reader}
	x.reader = r
	ask := func(minBlock string, want int) *httptest.ResponseRecorder {
		t.Helper()
		w := httptest.NewRecorder()
		x.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/stats?minBlock="+minBlock, http.NoBody))
		if w.Code != want {
			t.Fatalf("minBlock=%s: %d %s", minBlock, w.Code, w.Body)
		}
		return w
	}
	at, err := strconv.ParseUint(ask("0", http.StatusOK).Header().Get("X-Indexed-Block"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range at + 1 {
		ask(fmt.Sprint(i), http.StatusOK)
	}
	if n := r.n.Load(); n != 1 {
		t.Errorf("the whole market was read %d times for one answer", n)
	}
	ask(fmt.Sprint(at+1), http.StatusServiceUnavailable)
	ask("01", http.StatusBadRequest)
}

// outdated is the market where no answer stays current.
type outdated struct{ query.Reader }

func (outdated) Current(topics.BlockRef, []int32) bool { return false }

// Who asks for a block that does not come holds up nobody who asks the same without it.
func TestMinBlockHoldsUpNobodyElse(t *testing.T) {
	m := newMarket(t)
	everything(m)
	synctest.Test(t, func(t *testing.T) {
		x := m.indexer()
		x.reader = outdated{x.reader}
		ask := func(target string) int {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
			r.RemoteAddr = "127.0.0.1:1" // has no limits
			x.ServeHTTP(w, r)
			return w.Code
		}
		ask("/listings")
		go func() {
			if code := ask(fmt.Sprint("/listings?minBlock=", m.at.Number+1)); code != http.StatusServiceUnavailable {
				t.Errorf("a block that does not come: %d", code)
			}
		}()
		synctest.Wait()
		began := time.Now()
		if code := ask("/listings"); code != http.StatusOK || time.Since(began) > 0 {
			t.Errorf("behind who waits for a block: %d after %v", code, time.Since(began))
		}
	})
}

// A program that reads the stream itself, in a browser, may say where it was.
func TestStreamsAreResumedFromOtherOrigins(t *testing.T) {
	x := newMarket(t).indexer()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodOptions, "/stream", http.NoBody)
	r.Header.Set("Origin", "https://app.example")
	r.Header.Set("Access-Control-Request-Method", http.MethodGet)
	r.Header.Set("Access-Control-Request-Headers", "last-event-id")
	w := httptest.NewRecorder()
	x.ServeHTTP(w, r)
	if allowed := w.Header().Get("Access-Control-Allow-Headers"); !strings.Contains(allowed, "Last-Event-ID") {
		t.Errorf("allowed are %q", allowed)
	}
}
