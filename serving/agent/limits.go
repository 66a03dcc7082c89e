package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// Limits are capacity limits over all callers and all nodes.
//
// Invariant: no minute, whenever it begins, has more requests than its limit. GCRA allows as many at once as its burst,
// and more at its rate while they wait; so what may come at once is taken off the rate (pace). Where Redis goes or
// comes back, a minute may have what both the nodes' shares and the shared limit allow.
type Limits struct {
	Requests int // per minute, of any kind
	Prepares int // per minute, of prepared transactions
	Nodes    int // that share the limits while Redis is unavailable or not configured

	Prefix string // of the keys in Redis, the same on all nodes of a chain
}

// DefaultLimits returns the defaults.
func DefaultLimits() Limits {
	return Limits{Requests: 300, Prepares: 30, Nodes: 1, Prefix: topics.DefaultPrefix}
}

// Validate returns all errors.
func (l *Limits) Validate() error {
	var faults []error
	for _, n := range []struct {
		name string
		n    int
	}{{"agent-requests", l.Requests}, {"agent-prepares", l.Prepares}, {"agent-nodes", l.Nodes}} {
		if n.n <= 0 {
			faults = append(faults, fmt.Errorf("%s: %d is not positive", n.name, n.n))
		}
	}
	if most := min(l.Requests, l.Prepares); most > 0 && l.Nodes > most { // each has one at least
		faults = append(faults, fmt.Errorf("agent-nodes: %d are more than the %d requests or preparations a minute", l.Nodes, most))
	}
	return errors.Join(faults...)
}

// burstShare is the part of a limit that may come at once, as a divisor: enough for an agent to begin, and four fifths
// of the limit remain for requests at an even rate.
const burstShare = 5

// pace splits a limit of a minute into what may come at once and what follows in a minute.
func pace(perMinute int) (burst, rate int) {
	burst = max(1, perMinute/burstShare)
	return burst, perMinute - burst + 1 // the one that ends a full minute is of the next
}

// quota is the name of a limit.
type quota string

const (
	quotaRequests quota = "api"
	quotaPrepares quota = "prepare"
)

// standing is the state of a quota for a request.
type standing struct {
	allowed    bool
	remaining  int
	reset      time.Duration // until the quota is full again
	retryAfter time.Duration // if the request is refused
}

// limiter counts requests.
type limiter interface {
	take(ctx context.Context, q quota) standing
}

// localLimiter is this node's share of the limits.
type localLimiter struct {
	quotas map[quota]*rate.Limiter
	now    func() time.Time
}

func newLocalLimiter(l Limits) *localLimiter {
	share := func(perMinute int) *rate.Limiter {
		burst, follow := pace(max(1, perMinute/l.Nodes))
		return rate.NewLimiter(rate.Limit(float64(follow)/60), burst)
	}
	return &localLimiter{map[quota]*rate.Limiter{quotaRequests: share(l.Requests), quotaPrepares: share(l.Prepares)}, time.Now}
}

func (l *localLimiter) take(_ context.Context, q quota) standing {
	bucket, now := l.quotas[q], l.now()
	allowed := bucket.AllowN(now, 1)
	tokens := bucket.TokensAt(now)
	seconds := func(tokens float64) time.Duration {
		return time.Duration(max(0, tokens) / float64(bucket.Limit()) * float64(time.Second))
	}
	return standing{
		allowed: allowed, remaining: int(math.Max(0, tokens)),
		reset: seconds(float64(bucket.Burst()) - tokens), retryAfter: seconds(1 - tokens),
	}
}

// sharedLimiter counts over all nodes, by GCRA in Redis. If Redis is unavailable, the node's own share applies.
type sharedLimiter struct {
	gcra   *redis_rate.Limiter
	prefix string
	limits map[quota]redis_rate.Limit
	local  *localLimiter
	away   prometheus.Counter
	log    *zap.Logger

	timeout time.Duration // of Redis

	mu   sync.Mutex
	rest time.Time // Redis is not used until then
}

const (
	limiterTimeout = 100 * time.Millisecond
	limiterRest    = time.Second
)

func newSharedLimiter(client redis.UniversalClient, l Limits, chainID uint64, away prometheus.Counter, log *zap.Logger) *sharedLimiter {
	share := func(perMinute int) redis_rate.Limit {
		burst, follow := pace(perMinute)
		return redis_rate.Limit{Rate: follow, Burst: burst, Period: time.Minute}
	}
	return &sharedLimiter{
		gcra: redis_rate.NewLimiter(client), prefix: fmt.Sprintf("%s.%d.agent.", l.Prefix, chainID),
		limits: map[quota]redis_rate.Limit{quotaRequests: share(l.Requests), quotaPrepares: share(l.Prepares)},
		local:  newLocalLimiter(l), away: away, log: log, timeout: limiterTimeout,
	}
}

func (l *sharedLimiter) take(ctx context.Context, q quota) standing {
	l.mu.Lock()
	resting := time.Now().Before(l.rest)
	l.mu.Unlock()
	if !resting {
		asking, cancel := context.WithTimeout(ctx, l.timeout)
		defer cancel()
		found, err := l.gcra.Allow(asking, l.prefix+string(q), l.limits[q])
		if err == nil {
			return standing{
				allowed: found.Allowed > 0, remaining: found.Remaining, reset: max(0, found.ResetAfter), retryAfter: max(0, found.RetryAfter),
			}
		}
		if ctx.Err() == nil {
			l.log.Warn("shared limits are unavailable, limiting this node alone", zap.Error(err))
			l.mu.Lock()
			l.rest = time.Now().Add(limiterRest)
			l.mu.Unlock()
		}
	}
	l.away.Inc()
	return l.local.take(ctx, q)
}

// admit enforces the limits on all requests, including health checks and documents.
func (a *Agent) admit(ctx context.Context, route *httpapi.Route, h http.Header) error {
	quotas := []quota{quotaRequests}
	if ctx.Value(countedKey{}) != nil {
		quotas = nil // the MCP call that contains it was counted
	}
	if route.Path == prepareRoute {
		quotas = append(quotas, quotaPrepares)
	}
	h["Ratelimit-Policy"] = []string{a.policy}
	var left []string
	for _, q := range quotas {
		found := a.limiter.take(ctx, q)
		left = append(left, fmt.Sprintf(`"%s";r=%d;t=%d`, q, found.remaining, int(math.Ceil(found.reset.Seconds()))))
		h["Ratelimit"] = []string{strings.Join(left, ", ")}
		if !found.allowed {
			return &httpapi.Error{Code: httpapi.RateLimited, Message: "the limit shared by all callers is reached", RetryAfter: found.retryAfter}
		}
	}
	return nil
}

// policy is the value of RateLimit-Policy. What may come at once is a parameter of our own.
func (l *Limits) policy() string {
	of := func(q quota, perMinute int) string {
		burst, _ := pace(perMinute)
		return fmt.Sprintf(`"%s";q=%d;w=60;burst=%d`, q, perMinute, burst)
	}
	return of(quotaRequests, l.Requests) + ", " + of(quotaPrepares, l.Prepares)
}
