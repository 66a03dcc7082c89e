package httpapi

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// unsent counts the bytes of responses that clients have not taken yet: they stay in memory until the write timeout,
// and as many as there are requests in flight and streams would be more than a machine has.
type unsent struct {
	limit   int64
	all     atomic.Int64
	refused prometheus.Counter
}

// uncounted is what no client is refused for: the kernel takes as much without anybody reading it.
const uncounted = 16 << 10

// takeAnswer counts a decided response, or turns it into an error.
func (u *unsent) takeAnswer(x *exchange, err error) (size int, _ error) {
	if x.cached != nil {
		size = len(x.cached.plain)
	} else if err == nil {
		size = len(x.res.Body)
	}
	if over := u.take(x.client, size); over != nil {
		x.cached = nil
		return 0, over
	}
	return size, err
}

// take counts what is to be sent to a client, which must then be given back. What is larger than the limit may be sent alone.
func (u *unsent) take(from *client, bytes int) error {
	if bytes <= uncounted {
		return nil
	}
	if !within(&u.all, int64(bytes), u.limit) {
		u.refused.Inc()
		return &Error{Code: UpstreamUnavailable, Message: "too many answers wait to be read, ask again shortly", RetryAfter: time.Second}
	}
	if err := u.takeShared(from, bytes); err != nil {
		u.all.Add(-int64(bytes))
		return err
	}
	return nil
}

// takeShared is take of what is in memory once, whoever has not read it.
func (u *unsent) takeShared(from *client, bytes int) error {
	if bytes <= uncounted {
		return nil
	}
	for of := from; of != nil; of = of.network.Load() {
		if within(&of.unsent, int64(bytes), of.limits.MaxUnsentBytes) {
			continue
		}
		for taken := from; taken != of; taken = taken.network.Load() {
			taken.unsent.Add(-int64(bytes))
		}
		u.refused.Inc()
		return &Error{Code: RateLimited, Message: fmt.Sprintf("at most %d bytes of answers that you have not read", of.limits.MaxUnsentBytes), RetryAfter: time.Second}
	}
	return nil
}

// within adds n unless there is something and the sum is above the limit.
func within(sum *atomic.Int64, n, limit int64) bool {
	for {
		had := sum.Load()
		if had > 0 && had+n > limit {
			return false
		}
		if sum.CompareAndSwap(had, had+n) {
			return true
		}
	}
}

func (u *unsent) give(from *client, bytes int) {
	if bytes > uncounted {
		u.all.Add(-int64(bytes))
		u.giveShared(from, bytes)
	}
}

func (u *unsent) giveShared(from *client, bytes int) {
	for of := from; of != nil && bytes > uncounted; of = of.network.Load() {
		of.unsent.Add(-int64(bytes))
	}
}
