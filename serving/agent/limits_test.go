package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// TestLimitsAreOfAllNodes: two nodes share 20 requests; while Redis is away each has its half, and none waits for it.
func TestLimitsAreOfAllNodes(t *testing.T) {
	server := miniredis.RunT(t)
	limits := Limits{Requests: 20, Prepares: 2, Nodes: 2, Prefix: "test"}
	away := prometheus.NewCounter(prometheus.CounterOpts{Name: "away_total", Help: "."})
	node := func() *sharedLimiter {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		return newSharedLimiter(client, limits, 4663, away, zap.NewNop())
	}
	one, two := node(), node()
	count := func(q quota, n int) (allowed int) {
		for i := range n {
			l := one
			if i%2 == 1 {
				l = two
			}
			found := l.take(t.Context(), q)
			if found.allowed {
				allowed++
			} else if found.retryAfter <= 0 || found.retryAfter > time.Minute || found.remaining != 0 {
				t.Errorf("refused with %+v", found)
			}
		}
		return allowed
	}
	if got := count(quotaRequests, 40); got != 20 {
		t.Errorf("%d of 40 requests to two nodes are allowed", got)
	}
	if got := count(quotaPrepares, 10); got != 2 {
		t.Errorf("%d of 10 preparations are allowed", got)
	}
	if n := testutil.ToFloat64(away); n != 0 {
		t.Errorf("%v requests were not counted by all", n)
	}
	server.Close()
	began := time.Now()
	if got := count(quotaRequests, 100); got != 20 {
		t.Errorf("%d requests are allowed by two halves", got)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("without Redis 100 requests took %s", took)
	}
	if n := testutil.ToFloat64(away); n != 100 {
		t.Errorf("%v of 100 requests were counted by the node alone", n)
	}
}

func TestLimitsFaults(t *testing.T) {
	l := Limits{}
	if err := l.Validate(); err == nil || fmt.Sprint(err) != "requests a minute: 0 is not positive\npreparations a minute: 0 is not positive\nnodes that share the limits: 0 is not positive" {
		t.Errorf("faults: %v", err)
	}
}
