package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics/pause"
)

// allowance is how long something may take, beside what it waits for because of Endpoint.Rate: that is our own wish, and says
// nothing of who is asked.
type allowance struct {
	outer *allowance

	mu     sync.Mutex
	timer  *time.Timer
	end    time.Time
	waited time.Time // until then it is prolonged already
}

type allowing struct{}

// allow bounds what is done with a context. Its deadline may be put off, so it has none to be asked for.
func allow(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	outer, _ := ctx.Value(allowing{}).(*allowance)
	bounded, cancel := context.WithCancel(ctx)
	a := &allowance{outer: outer, end: time.Now().Add(d)}
	a.timer = time.AfterFunc(d, cancel)
	return context.WithValue(bounded, allowing{}, a), func() {
		a.timer.Stop()
		cancel()
	}
}

// prolong puts the end off by a time that somebody waits from now on. Who waits beside each other waits once.
func (a *allowance) prolong(d time.Duration) {
	for ; a != nil; a = a.outer {
		a.mu.Lock()
		now := time.Now()
		until := now.Add(d)
		if more := until.Sub(latest(a.waited, now)); more > 0 && a.timer.Stop() {
			a.waited, a.end = until, a.end.Add(more)
			a.timer.Reset(a.end.Sub(now))
		}
		a.mu.Unlock()
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// waitForRate waits until the endpoint's rate allows so many more calls.
func (e *endpoint) waitForRate(ctx context.Context, calls int) error {
	now := time.Now()
	r := e.limiter.ReserveN(now, calls)
	d := r.DelayFrom(now)
	if d == 0 {
		return nil
	}
	var err error
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(now.Add(d)) {
		err = context.DeadlineExceeded
	} else {
		a, _ := ctx.Value(allowing{}).(*allowance)
		a.prolong(d)
		err = pause.For(ctx, d)
	}
	if err != nil {
		r.Cancel()
		return fmt.Errorf("wait for the rate limit: %w", err)
	}
	return nil
}

// ErrSlow: the blocks did not come in the time that they usually take. Ask for the head again.
var ErrSlow = errors.New("the blocks do not come in time")

// InTime calls fetch, for blocks at the tip that an endpoint has told of, and bounds all of its requests together: answers that are
// each a little late would add up, and while they come, what the other endpoints have waits. The time doubles with each fetch that was
// late before. When it is over, it returns ErrSlow, which is ErrGone too where nobody else has told of as high a block, and has who
// made the blocks up counted.
func (c *Client) InTime(ctx context.Context, by int, from, to uint64, late int, fetch func(context.Context) error) error {
	teller := c.endpoints[by]
	others := c.reach(teller)
	if others == 0 {
		return fetch(ctx) // they say nothing
	}
	requests := 1 + (to-from)/uint64(c.cfg.ReceiptsBatch) + 1 // headers and receipts
	bounded, cancel := allow(ctx, (claimWait+time.Duration(requests)*c.patience())<<min(late, maxLate))
	defer cancel()
	err := fetch(bounded)
	if err == nil || bounded.Err() == nil || ctx.Err() != nil {
		return err
	}
	voting, end := context.WithTimeout(ctx, c.patience())
	defer end()
	_, _ = c.Vote(voting, to, false) // for who is counted
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case to > max(others, c.reach(teller)):
		return fmt.Errorf("blocks %d-%d: %w: %w", from, to, ErrSlow, ErrGone)
	}
	return fmt.Errorf("blocks %d-%d: %w", from, to, ErrSlow)
}

// maxLate bounds how often the time doubles.
const maxLate = 5
