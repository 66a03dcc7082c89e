package rpc

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

func TestSuggested(t *testing.T) {
	for text, want := range map[string]int{
		"query returned more than 10000 results. Try with this block range [0x10, 0x1f].":           16,
		"query exceeds max results 20000, retry with the range 100-199":                             100,
		"Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range": 2000,
		"eth_getLogs is limited to a 10,000 range":                                                  10_000,
		"exceed maximum block range: 5000":                                                          5000,
		"maximum [from, to] blocks distance: 2000":                                                  2000,
		"block range too large (20000), maximum allowed is 2000 blocks":                             2000,
		"eth_getLogs limited to a 5 block range on your plan":                                       5,
		"no": 0,
		"":   0,
		"Try with this block range [0x1f, 0x10].": 0,
		"range 99999999999999999999-1":            0,
	} {
		if got := suggested(text); got != want {
			t.Errorf("%q suggests %d, want %d", text, got, want)
		}
	}
}

func FuzzSuggested(f *testing.F) {
	f.Add("Try with this block range [0x10, 0x1f].")
	f.Add("up to a 2K block range")
	f.Fuzz(func(t *testing.T, text string) {
		l := newLimit(100)
		if l.stated(suggested(text)); l.now() < 1 || l.now() > 100 {
			t.Errorf("%q: %d", text, l.now())
		}
	})
}

// TestLimit: it shrinks with every refusal, stays below what was refused, and after a while tries it again.
func TestLimit(t *testing.T) {
	l := newLimit(100)
	const takes = 37
	asked := 0
	for range 500 {
		asked++
		if n := l.now(); n > takes {
			l.refused(n)
		} else {
			l.granted(n)
		}
		if asked > 20 && l.now() < takes/2 {
			t.Fatalf("%d after %d requests, where %d are taken", l.now(), asked, takes)
		}
	}
	for range 200 {
		l.granted(l.now())
	}
	if l.now() != 100 {
		t.Errorf("it never grew back: %d", l.now())
	}
}

// TestLogsAgain: an honest node refuses two queries in one request as too large. It is asked for each, and the logs of
// the first count once.
func TestLogsAgain(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	defer chain.Close()
	inBubble(t, "", func(t *testing.T) {
		c := piped(t, func(cfg *Config) { cfg.Topics, cfg.MaxRange = []common.Hash{{2}}, 1 }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := 0
			rpctest.Serve(w, r, func(m rpctest.Message) string {
				if m.Method == "eth_getLogs" {
					if n++; n > 1 {
						return `null,"error":{"code":-32003,"message":"response too large"}`
					}
				}
				return chain.Answer(m)
			})
		}))
		blocks, err := c.Blocks(t.Context(), 4, 4, 100)
		if err != nil || len(blocks) != 1 || len(blocks[0].Logs) != 1 {
			t.Errorf("%v, %v", blocks, err)
		}
		if n := testutil.CollectAndCount(c.metrics.lies); n > 0 {
			t.Errorf("%d lies are counted", n)
		}
	})
}

// TestQuotaOfAMinute: the only provider answers 60 requests a minute, and 429 to all others until the minute is over. That
// is no reason for smaller requests: a million blocks take as many minutes as their requests need.
func TestQuotaOfAMinute(t *testing.T) {
	const blocks = 1_000_000
	chain := rpctest.NewSparse(7, blocks, 100_000, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	chain.Close() // it answers without a connection
	synctest.Test(t, func(t *testing.T) {
		began, minute, used, answered := time.Now(), -1, 0, 0
		node := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if now := int(time.Since(began) / time.Minute); now != minute {
				minute, used = now, 0
			}
			if used++; used > 60 {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			answered++
			rpctest.Serve(w, r, chain.Answer)
		})
		c := piped(t, func(cfg *Config) { cfg.Proof, cfg.Parallel = ProofSparse, 1 }, node)
		for from := uint64(1); from < blocks; from += 40_000 {
			for {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				_, err := c.Sparse(ctx, from, from+39_999)
				cancel()
				if err == nil {
					break
				}
				if took := time.Since(began); took > time.Hour {
					t.Fatal(err)
				}
				<-time.After(time.Second)
			}
			if span := c.endpoints[0].limits.span.now(); span < int(c.cfg.MaxRange) {
				t.Errorf("after %s ranges of %d blocks", time.Since(began), span)
			}
		}
		if took, most := time.Since(began), time.Duration(answered/60+1)*time.Minute; took > most || answered > 200 {
			t.Errorf("%d answers in %s", answered, took)
		}
	})
}
