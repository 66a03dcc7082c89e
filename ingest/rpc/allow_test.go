package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

// dense is a chain with a log in each block.
func dense(t *testing.T, blocks int) *rpctest.Sparse {
	t.Helper()
	chain := rpctest.NewSparse(7, blocks, 1, types.Log{Address: common.Address{1}, Topics: []common.Hash{{9}}, Data: make([]byte, 32)})
	t.Cleanup(chain.Close)
	return chain
}

// lateBy answers by so much later.
func lateBy(d *atomic.Int64, node http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		select {
		case <-time.After(time.Duration(d.Load())):
			node.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

// heads has each endpoint tell of its head.
func heads(t *testing.T, c *Client) {
	t.Helper()
	for _, e := range c.endpoints {
		h, err := e.header(t.Context(), `"latest"`)
		if err != nil {
			t.Fatal(err)
		}
		e.recordHead(h, false)
	}
}

// TestDrippedClaim: an endpoint announces a head above all others', and answers each request for the blocks below just
// before its limit. All requests together have one limit, and the endpoint is not followed above the others.
func TestDrippedClaim(t *testing.T) {
	chain := dense(t, 300)
	inBubble(t, "", func(t *testing.T) {
		var delay atomic.Int64
		c := piped(t, func(*Config) {}, lateBy(&delay, reaching(chain, 264, 0)), reaching(chain, 200, 0), reaching(chain, 200, 0))
		heads(t, c)
		delay.Store(int64(claimWait - 50*time.Millisecond))
		began := time.Now()
		err := c.InTime(t.Context(), 0, 201, 264, 0, func(ctx context.Context) error {
			_, err := c.Blocks(ctx, 201, 264, 0)
			return err
		})
		if took := time.Since(began); !errors.Is(err, ErrGone) || took > 3*claimWait {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// TestAllAreSlow: two endpoints have the blocks and answer slowly. They are late at first, which is no lie; then they
// get the time that they need.
func TestAllAreSlow(t *testing.T) {
	chain := dense(t, 300)
	inBubble(t, "", func(t *testing.T) {
		var delay atomic.Int64
		c := piped(t, func(*Config) {}, lateBy(&delay, reaching(chain, 264, 0)), lateBy(&delay, reaching(chain, 264, 0)))
		heads(t, c)
		delay.Store(int64(3 * time.Second))
		for late := 0; ; late++ {
			heads(t, c)
			err := c.InTime(t.Context(), 0, 201, 264, late, func(ctx context.Context) error {
				_, err := c.Blocks(ctx, 201, 264, 0)
				return err
			})
			if err == nil {
				break
			}
			if !errors.Is(err, ErrSlow) || errors.Is(err, ErrGone) || late > 3 {
				t.Fatalf("attempt %d: %v", late, err)
			}
		}
	})
}

// TestASecondEndpointAddsSpeed: each endpoint is asked for so much at once, so a range comes in nearly half the time from two.
func TestASecondEndpointAddsSpeed(t *testing.T) {
	_, chain := chains(t, 1, 5000)
	var delay atomic.Int64
	delay.Store(int64(50 * time.Millisecond))
	var took [2]time.Duration
	for i := range took {
		inBubble(t, fmt.Sprint(i+1, " endpoints"), func(t *testing.T) {
			c := piped(t, func(cfg *Config) { cfg.Parallel = 2 }, []http.Handler{lateBy(&delay, chain), lateBy(&delay, chain)}[:i+1]...)
			heads(t, c)
			began := time.Now()
			if _, err := c.Headers(t.Context(), 1, 4000, common.Hash{}); err != nil {
				t.Fatal(err)
			}
			took[i] = time.Since(began)
		})
	}
	if took[1] > took[0]*2/3 {
		t.Errorf("one endpoint took %s, two %s", took[0], took[1])
	}
}

// TestOurRateIsNoDelay: only one endpoint has announced a block, and requests wait for the configured rate. That does
// not count as a delay of the endpoint.
func TestOurRateIsNoDelay(t *testing.T) {
	_, chain := chains(t, 1, 1000)
	inBubble(t, "", func(t *testing.T) {
		c := piped(t, func(cfg *Config) { cfg.Endpoints[0].Rate = 0.2 }, reaching(chain, 202, 0), reaching(chain, 200, 0))
		heads(t, c)
		e := c.endpoints[0]
		e.limiter.AllowN(time.Now(), int(e.limiter.Tokens())) // as after many other requests
		began := time.Now()
		err := c.InTime(t.Context(), 0, 201, 202, 0, func(ctx context.Context) error {
			_, err := c.Blocks(ctx, 201, 202, 0)
			return err
		})
		if took := time.Since(began); err != nil || took < 2*claimWait {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// TestSeconded: a block with which a token joins comes from one endpoint alone, or two have it, or all others are
// silent.
func TestSeconded(t *testing.T) {
	other, chain := chains(t, 300, 300)
	var hour atomic.Int64
	hour.Store(int64(time.Hour))
	silent := lateBy(&hour, chain)
	for _, test := range []struct {
		name   string
		nodes  []http.Handler
		known  bool
		want   error
		atMost time.Duration
	}{
		{"all have it", []http.Handler{hashed{chain}, hashed{chain}, hashed{chain}}, false, nil, 0},
		{"two have it, and one is silent", []http.Handler{silent, hashed{chain}, hashed{chain}}, false, nil, 0},
		{"two lack it", []http.Handler{hashed{chain}, hashed{other}, hashed{other}}, false, ErrGone, 2 * claimWait},
		{"two have lacked it for long", []http.Handler{hashed{chain}, hashed{other}, hashed{other}}, true, ErrGone, 2 * claimWait},
		{"one has lacked it for long", []http.Handler{hashed{chain}, hashed{other}}, true, nil, 0},
		{"the other is silent", []http.Handler{hashed{chain}, silent}, false, nil, 6 * time.Second},
		{"nobody has it", []http.Handler{hashed{other}, hashed{other}}, true, ErrGone, 2 * claimWait},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			c := piped(t, func(*Config) {}, test.nodes...)
			began := time.Now()
			err := c.Seconded(t.Context(), topics.BlockRef{Number: 200, Hash: chain.Hash(200)}, test.known)
			if took := time.Since(began); !errors.Is(err, test.want) || took > test.atMost {
				t.Errorf("after %s: %v", took, err)
			}
		})
	}
}

// hashed is a node that answers by hash, too.
type hashed struct{ *rpctest.Sparse }

func (n hashed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rpctest.Serve(w, r, func(m rpctest.Message) string {
		if m.Method == "eth_getBlockByHash" {
			var hash common.Hash
			_ = json.Unmarshal(m.Params[0], &hash)
			for number := range n.Head() {
				if n.Hash(number) == hash {
					m.Method, m.Params[0] = "eth_getBlockByNumber", json.RawMessage(fmt.Sprintf(`"0x%x"`, number))
				}
			}
		}
		return n.Answer(m)
	})
}
