package httpapi

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// unsent counts the bytes of responses that clients have not taken yet: they stay in memory until the write timeout,
// and those of all requests in flight and streams together could exceed a machine's memory.
type unsent struct {
	limit   int64
	all     atomic.Int64
	refused prometheus.Counter
}

// uncounted is the size of a response that is never refused: the kernel buffers as much.
const uncounted = 16 << 10

// takeAnswer counts a decided response, or turns it into an error. A cached one is given back as such, another one by
// its size.
func (u *unsent) takeAnswer(x *exchange, err error) (size int, _ error) {
	if x.cached != nil {
		if over := u.takeCached(x.client, x.cached); over != nil {
			x.cached = nil
			return 0, over
		}
		return 0, nil
	}
	if err == nil {
		size = len(x.res.Body)
	}
	if over := u.take(x.client, size); over != nil {
		return 0, over
	}
	return size, err
}

// takeCached is take of a cached response, which is in memory once for all to whom it is sent.
func (u *unsent) takeCached(from *client, res *cachedResponse) error {
	size := len(res.plain)
	if size <= uncounted {
		return nil
	}
	if err := u.takeShared(from, size); err != nil {
		return err
	}
	res.sending.Lock()
	defer res.sending.Unlock()
	if res.readers == 0 && !within(&u.all, int64(size), u.limit) {
		u.giveShared(from, size)
		return u.full()
	}
	res.readers++
	return nil
}

func (u *unsent) giveCached(from *client, res *cachedResponse) {
	size := len(res.plain)
	if size <= uncounted {
		return
	}
	u.giveShared(from, size)
	res.sending.Lock()
	defer res.sending.Unlock()
	if res.readers--; res.readers == 0 {
		u.all.Add(-int64(size))
	}
}

func (u *unsent) full() error {
	u.refused.Inc()
	return &Error{Code: UpstreamUnavailable, Message: "too many answers wait to be read, ask again shortly", RetryAfter: time.Second}
}

// take counts what is to be sent to a client, which must then be given back. What is larger than the limit may be sent
// alone.
func (u *unsent) take(from *client, bytes int) error {
	if bytes <= uncounted {
		return nil
	}
	if !within(&u.all, int64(bytes), u.limit) {
		return u.full()
	}
	if err := u.takeShared(from, bytes); err != nil {
		u.all.Add(-int64(bytes))
		return err
	}
	return nil
}

// takeShared is take for bytes that are in memory once for all clients.
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
