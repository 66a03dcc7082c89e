package indexer

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
)

// No answer is older than what was known when it was asked for, whatever lands and is reverted meanwhile, whether
// or not it was repeated; and what names one block says one thing.
func TestNoAnswerIsOlderThanWhatIsKnown(t *testing.T) {
	m := newMarket(t)
	router := m.router()
	reg := prometheus.NewRegistry()
	x, err := New(testConfig(), router, zap.NewNop(), reg)
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(20) {
		m.block(start+id+1, listed(id+1))
	}
	const readers, blocks = 4, 150
	paths := []string{"/listings", "/deals/1", "/deals/7", "/pool", "/stats", "/deals?limit=3", "/portfolio/" + strings.ToLower(borrower.Hex())}
	type seen struct{ path, known, at, tag string }
	var (
		order = map[string]int{m.at.Hash.Hex(): 0} // of blocks, those that were reverted among them
		all   [readers][]seen
		wg    sync.WaitGroup
		begun = make(chan struct{})
		done  = make(chan struct{})
	)
	for i := range readers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for {
				select {
				case begun <- struct{}{}:
				case <-done:
					return
				}
				for range 20 {
					known, err := router.Lowest()
					if err != nil {
						t.Error(err)
						return
					}
					path := paths[random.IntN(len(paths))]
					w := httptest.NewRecorder()
					x.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
					switch h := w.Header(); w.Code {
					case http.StatusOK:
						all[i] = append(all[i], seen{path, known.At.Hash.Hex(), h.Get("X-Indexed-Block-Hash"), h.Get("Etag")})
					case http.StatusServiceUnavailable: // a block landed between two views, and no past is kept here
					default:
						t.Errorf("%s: %d %s", path, w.Code, w.Body)
					}
				}
			}
		})
	}
	for n := range blocks {
		<-begun
		revert := 0
		if n%5 == 4 {
			revert = 1 + n%3
		}
		m.land(revert, start+100+uint64(n), &contracts.DealTermsUpdated{
			DealID: u(uint64(n%20 + 1)), Cap: u(uint64(2000 + n)), MinPrice: u(1000), Term: week, TermsHash: terms1,
		})
		order[m.at.Hash.Hex()] = n + 1
	}
	close(done)
	wg.Wait()
	answers, tags := 0, map[string]string{}
	for _, part := range all {
		for _, s := range part {
			answers++
			known, ok := order[s.known]
			at, ok2 := order[s.at]
			if !ok || !ok2 || at < known {
				t.Fatalf("%s: an answer as of block %d of the sequence when %d was known", s.path, at, known)
			}
			if tag := tags[s.path+s.at]; tag != "" && tag != s.tag {
				t.Fatalf("%s: two answers as of one block", s.path)
			}
			tags[s.path+s.at] = s.tag
		}
	}
	if answers < blocks || repeated(t, reg) == 0 {
		t.Errorf("%d answers, %v of them repeated", answers, repeated(t, reg))
	}
}

// While nothing moves each cacheKey is read once, in whatever form it is asked for. A block without a change is
// read anew, for the answer names it.
func TestOneReadForABlock(t *testing.T) {
	m := newMarket(t)
	reg := prometheus.NewRegistry()
	x, err := New(testConfig(), m.router(), zap.NewNop(), reg)
	if err != nil {
		t.Fatal(err)
	}
	m.block(start+1, listed(1), asset(token, contracts.LaneStock))
	wallet := strings.ToLower(borrower.Hex())
	paths := []string{
		"/listings", "/listings?sort=cost", "/deals", "/deals/1", "/assets", "/assets/" + strings.ToLower(token.Hex()) + "/deals", "/pool", "/epochs",
		"/stats", "/stats/history", "/portfolio/" + wallet, "/rewards/" + wallet, "/positions/" + wallet, "/wallet/" + wallet + "/positions",
	}
	want := 0.0
	for range 3 {
		for _, path := range paths {
			for _, encoding := range []string{"", "gzip", ""} {
				w := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
				r.Header.Set("Accept-Encoding", encoding)
				r.RemoteAddr = "127.0.0.1:1" // has no limits
				x.ServeHTTP(w, r)
				if at := w.Header().Get("X-Indexed-Block-Hash"); w.Code != http.StatusOK || at != m.at.Hash.Hex() {
					t.Fatalf("%s: %d as of %s, want %s", path, w.Code, at, m.at.Hash)
				}
			}
			if want += 2; repeated(t, reg) != want {
				t.Fatalf("%s: %v answers were repeated, want %v", path, repeated(t, reg), want)
			}
		}
		m.block(m.at.Timestamp + 1)
	}
}

func repeated(t *testing.T, reg prometheus.Gatherer) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "lienstream_httpapi_cache_hits_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("nothing counts what is served from the cache")
	return 0
}
