package rpc

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestHistoryBesideAMute: a history that nothing verifies is fetched in 200 ranges beside an endpoint that answers
// everything but eth_getLogs. It is asked now and then, so that what it alone has is found once it answers.
func TestHistoryBesideAMute(t *testing.T) {
	registry, named := common.Address{1}, common.Hash{2}
	chain := rpctest.NewSparse(7, 20_000, 100, types.Log{Address: registry, Topics: []common.Hash{named}})
	chain.Close()
	inBubble(t, "", func(t *testing.T) {
		var asked atomic.Int64
		var answers atomic.Bool
		silent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := new(bytes.Buffer)
			_, _ = body.ReadFrom(r.Body)
			if strings.Contains(body.String(), "eth_getLogs") {
				if asked.Add(1); !answers.Load() {
					<-r.Context().Done()
					return
				}
			}
			rpctest.Serve(w, httptest.NewRequest(http.MethodPost, "/", body), chain.Answer)
		})
		well := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-time.After(20 * time.Millisecond)
			rpctest.Serve(w, r, chain.Answer)
		})
		c := piped(t, func(cfg *Config) { cfg.MaxRange = 100 }, well, silent)
		read := func() {
			n := 0
			t.Helper()
			err := c.reported(t.Context(), onlyOf(registry, named, &c.noBloom), 1, 20_000, func(logs []reported, _ uint64) (bool, error) {
				n += len(logs)
				return true, nil
			})
			if err != nil || n == 0 {
				t.Fatalf("%d logs, %v", n, err)
			}
		}
		began := time.Now()
		read()
		if took := time.Since(began); took > 45*time.Second {
			t.Errorf("200 ranges took %s: each waits for the one that does not answer", took.Round(time.Second))
		}
		if n := asked.Swap(0); n < 4 {
			t.Errorf("asked %d times: what it alone has would not be found", n)
		}
		answers.Store(true)
		read()
		if n := asked.Load(); n < 180 {
			t.Errorf("once it answers it is asked for %d of 200 ranges", n)
		}
	})
}
