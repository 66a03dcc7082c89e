package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics/pause"
)

// allowance is a time limit that does not count waits for Endpoint.Rate: that limit is ours, and says nothing about
// the endpoint.
type allowance struct {
	outer *allowance

	mu     sync.Mutex
	timer  *time.Timer
	end    time.Time
	waited time.Time // the limit already covers waits until then
}

type allowing struct{}

// allow limits the time of what is done with a context. The limit may move, so the context has no deadline.
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

// prolong extends the limit by a wait that begins now. Waits at the same time count once.
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

// waitForRate waits until the endpoint's rate allows this many calls.
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

// ErrSlow: fetching the blocks took longer than usual. Ask for the head again.
var ErrSlow = errors.New("fetching the blocks timed out")

// InTime calls fetch for blocks at the tip that one endpoint announced, with one limit for all of its requests: slow
// responses would add up and delay the blocks of other endpoints. The limit doubles with each late fetch before. When
// it expires, InTime votes, which counts an endpoint that made the blocks up, and returns ErrSlow; ErrGone as well if
// no other endpoint announced a block that high.
func (c *Client) InTime(ctx context.Context, by int, from, to uint64, late int, fetch func(context.Context) error) error {
	claimant := c.endpoints[by]
	others := c.reach(claimant)
	if others == 0 {
		return fetch(ctx) // no other endpoint has a head
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
	_, _ = c.Vote(voting, to, false) // it counts an endpoint that made the blocks up
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case to > max(others, c.reach(claimant)):
		return fmt.Errorf("blocks %d-%d: %w: %w", from, to, ErrSlow, ErrGone)
	}
	return fmt.Errorf("blocks %d-%d: %w", from, to, ErrSlow)
}

// maxLate bounds how often the limit doubles.
const maxLate = 5
