package agent

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// TestLimitsAreOfAllNodes: two nodes share what may come at once of 100 requests; while Redis is away each has
// its half, and none waits for it.
func TestLimitsAreOfAllNodes(t *testing.T) {
	server := miniredis.RunT(t)
	limits := Limits{Requests: 100, Prepares: 10, Nodes: 2, Prefix: "test"}
	away := prometheus.NewCounter(prometheus.CounterOpts{Name: "away_total", Help: "."})
	node := func() *sharedLimiter {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		l := newSharedLimiter(client, limits, 4663, away, zap.NewNop())
		l.timeout = time.Minute // a machine under load is not a Redis that is away
		return l
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

// TestEveryRouteIsLimited: nothing that is answered goes by the limits, not even what the last request was about.
func TestEveryRouteIsLimited(t *testing.T) {
	w, _, fund := listed(t)
	for _, route := range w.agent.routes() {
		target := strings.NewReplacer("{dealId}", "1", "{wallet}", lower(w.actors[0]), "{file}", "x").Replace(route.Path)
		w.Client = apitest.NewClient(t, w.service(func(cfg *Config, _ *Parts) { cfg.Limits = Limits{Requests: 1, Prepares: 1, Nodes: 1} }), description)
		ask := func() *apitest.Response {
			if route.Path == mcpRoute {
				return w.message(oneCall)
			}
			if route.Method == http.MethodPost {
				return w.post(fund)
			}
			return w.Get(t, target)
		}
		if res := ask(); res.Status == http.StatusTooManyRequests {
			t.Errorf("%s: the first is refused", target)
		}
		w.isError("RATE_LIMITED", ask())
	}
}

// TestNoMinuteHasMore: whoever asks as often as he can gets the limit in his first minute, and in no minute more,
// whenever it begins; nor does it starve who goes on.
func TestNoMinuteHasMore(t *testing.T) {
	limits := Limits{Requests: 300, Prepares: 30, Nodes: 1, Prefix: "test"}
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	local := newLocalLimiter(limits)
	shared := newSharedLimiter(client, limits, 4663, prometheus.NewCounter(prometheus.CounterOpts{Name: "away_total", Help: "."}), zap.NewNop())
	shared.timeout = time.Minute // on a busy machine it is not away: a node alone has a share beside what is taken
	began := time.Unix(2_000_000_000, 0)
	for name, c := range map[string]struct {
		limiter limiter
		at      func(time.Time)
	}{
		"shared": {shared, server.SetTime},
		"local":  {local, func(now time.Time) { local.now = func() time.Time { return now } }},
	} {
		t.Run(name, func(t *testing.T) {
			for q, most := range map[quota]int{quotaRequests: 300, quotaPrepares: 30} {
				var taken []time.Time
				for now := began; now.Before(began.Add(4 * time.Minute)); now = now.Add(40 * time.Millisecond) {
					c.at(now)
					for c.limiter.take(t.Context(), q).allowed {
						taken = append(taken, now)
					}
				}
				for from, first := range taken {
					end := from
					for end < len(taken) && taken[end].Sub(first) < time.Minute {
						end++
					}
					if n := end - from; n > most {
						t.Fatalf("%s: the minute from %s on has %d", q, first.Sub(began), n)
					} else if from == 0 && n != most {
						t.Errorf("%s: the first minute has %d of %d", q, n, most)
					}
				}
				if least := 4 * most * (burstShare - 1) / burstShare; len(taken) < least {
					t.Errorf("%s: four minutes have %d, want at least %d", q, len(taken), least)
				}
			}
		})
	}
}

func TestLimitsFaults(t *testing.T) {
	l := Limits{}
	if err := l.Validate(); err == nil || fmt.Sprint(err) != "agent-requests: 0 is not positive\nagent-prepares: 0 is not positive\nagent-nodes: 0 is not positive" {
		t.Errorf("faults: %v", err)
	}
	l = DefaultLimits()
	if l.Nodes = l.Prepares; l.Validate() != nil {
		t.Errorf("%d nodes share %d preparations: %v", l.Nodes, l.Prepares, l.Validate())
	}
	l.Nodes++
	if err := l.Validate(); err == nil || !strings.Contains(err.Error(), "31 are more than the 30") {
		t.Errorf("%d nodes share %d preparations: %v", l.Nodes, l.Prepares, err)
	}
}
