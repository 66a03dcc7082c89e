package ingest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestAnotherChainBehindTheURL: the URL of the only endpoint serves another chain for a while, whose head is higher,
// or lower than the final block. That is no deep reorg, which would end the ingester: the endpoint is counted, and
// ingestion of the first chain goes on.
func TestAnotherChainBehindTheURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		blocks int
	}{{"higher", 100}, {"lower", 3}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := lyingWorld(t)
			other, err := devchain.New(devchain.Config{Seed: 8, ChainID: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Close() })
			genesis, err := other.Client().HeaderByNumber(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range test.blocks {
				if _, err := other.Mine(t.Context(), genesis.Time+uint64(i)+1, nil); err != nil {
					t.Fatal(err)
				}
			}
			var to atomic.Pointer[httputil.ReverseProxy]
			point := func(at string) {
				u, err := url.Parse(at)
				if err != nil {
					t.Fatal(err)
				}
				to.Store(httputil.NewSingleHostReverseProxy(u))
			}
			point(w.chain.HTTP())
			node := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { to.Load().ServeHTTP(rw, r) }))
			t.Cleanup(func() { node.CloseClientConnections(); node.Close() })
			cfg, topic := w.lyingConfig(t, "moved", rpc.Endpoint{URL: node.URL, Name: "node"})
			cfg.RPC.Timeout = rpc.DefaultConfig().Timeout // the machine may be busy
			cfg.ShortPatience = 200 * time.Millisecond
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			point(other.HTTP())
			polltest.Within(t, time.Minute, func() error {
				select {
				case <-in.done:
					t.Fatalf("the ingester ended: %v", in.stop())
				default:
				}
				if n := count(t, in.reg, "node", "chain_id"); n < 3 {
					return fmt.Errorf("counted %v times", n)
				}
				return nil
			})
			point(w.chain.HTTP())
			w.step(t, 2)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
		})
	}
}
