package rpc

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// Announcement is the newest head that an endpoint reported, by subscription or when polled. It is a claim: a block
// may come twice, or never.
type Announcement struct {
	follow.Header
	By  int // the endpoint
	At  time.Time
	New bool // by subscription, and Announced has not returned it before
}

// announced is what an endpoint reported of its head.
type announced struct {
	newest     follow.Header
	at         time.Time
	last       topics.BlockRef // its last head; newest may have been forgotten
	stale      bool            // when last polled, it was far below what is verified
	since      time.Time       // when it first reported that head
	lowerSince time.Time       // since when another endpoint's head is higher; zero: none is
	unread     bool            // newest came by subscription, and Announced has not returned it
	hint       bool            // a reason to poll the head

	ignored time.Time // until then its heads do not count: it lost a vote
	excused strikes   // announced blocks were missing, but a reorg replaced them or the endpoint was throttling
	doubts  strikes   // announced blocks were missing otherwise
	// claims: until then heads above all other endpoints' do not count, because announced blocks were missing.
	claims time.Time
	// lackedUntil: until then neither do they while all others' are below lackedAt, a height that most lacked.
	lackedUntil time.Time
	lackedAt    uint64
}

// Heads signals that Announced has something new.
func (c *Client) Heads() <-chan struct{} { return c.heads }

// Announced returns the heads of Newest; New is true once for each head. hint: the head should be polled.
func (c *Client) Announced() (all []Announcement, hint bool) {
	for _, e := range c.endpoints {
		e.mu.Lock()
		hint, e.announced.hint = hint || e.announced.hint, false
		e.mu.Unlock()
	}
	return c.newest(true), hint
}

// Newest returns the newest head of each endpoint whose heads count.
func (c *Client) Newest() []Announcement { return c.newest(false) }

func (c *Client) newest(read bool) (all []Announcement) {
	now := time.Now()
	for i, e := range c.endpoints {
		top := c.reach(e)
		e.mu.Lock()
		a := &e.announced
		if a.newest.Hash != (common.Hash{}) && a.counts(a.newest.Number, top, now) {
			all = append(all, Announcement{a.newest, i, a.at, a.unread})
			a.unread = a.unread && !read
		}
		e.mu.Unlock()
	}
	return all
}

// Counts reports whether a polled head still counts: its endpoint may have lost a vote meanwhile.
func (c *Client) Counts(head Announcement) bool {
	e := c.endpoints[head.By]
	top := c.reach(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.announced.counts(head.Number, top, time.Now())
}

// announce takes a head of an endpoint's subscription. A head of a doubted endpoint is only a hint to poll, and so is
// one that does not match its hash.
func (c *Client) announce(e *endpoint, h follow.Header) {
	if e.doubted() || h.Hash == (common.Hash{}) {
		e.mu.Lock()
		e.announced.hint = true
		e.mu.Unlock()
	} else {
		e.recordHead(h, true)
		if top := c.reach(e); top > 0 && above(h.Number, top) <= maxJump && !e.isAhead(h.Number) {
			e.has(h.Number)
		}
	}
	select {
	case c.heads <- struct{}{}:
	default:
	}
}

// asking is a request for an endpoint's head.
type asking struct {
	cancel context.CancelFunc
	done   chan struct{}
	head   follow.Header
	err    error
	left   bool // a caller stopped waiting for it
}

// latest fetches the head and waits until ctx ends. A response soon after that, while poll lasts, counts as if it came
// by subscription: a faster endpoint that is stuck must not be the only source. One request runs at a time.
func (e *endpoint) latest(poll, ctx context.Context) (follow.Header, error) {
	e.mu.Lock()
	a := e.asking
	if a == nil {
		a = &asking{done: make(chan struct{})}
		e.asking = a
		poll, a.cancel = context.WithCancel(poll)
		go e.ask(poll, a)
	}
	e.mu.Unlock()
	select {
	case <-a.done:
		return a.head, a.err
	case <-ctx.Done():
		e.mu.Lock()
		defer e.mu.Unlock()
		if !a.left {
			a.left = true
			time.AfterFunc(claimWait, a.cancel)
		}
		return follow.Header{}, ctx.Err()
	}
}

func (e *endpoint) ask(ctx context.Context, a *asking) {
	defer close(a.done)
	defer a.cancel()
	a.head, a.err = e.header(ctx, `"latest"`)
	e.mu.Lock()
	left := a.left
	e.asking = nil
	e.mu.Unlock()
	if left && a.err == nil {
		e.client.announce(e, a.head)
	}
}

// recordHead records a head that the endpoint reported, by subscription or when polled.
func (e *endpoint) recordHead(h follow.Header, bySubscription bool) {
	e.remember(h)
	e.mu.Lock()
	now := time.Now()
	if e.announced.last.Hash != h.Hash {
		e.announced.last, e.announced.since, e.announced.lowerSince = h.BlockRef, now, time.Time{}
	}
	e.announced.newest, e.announced.at, e.announced.unread = h, now, bySubscription
	e.mu.Unlock()
	e.client.recordLower(now)
}

// recordLower records which endpoints' heads are below the highest.
func (c *Client) recordLower(now time.Time) {
	top := uint64(0)
	for _, e := range c.endpoints {
		e.mu.Lock()
		top = max(top, e.announced.newest.Number)
		e.mu.Unlock()
	}
	for _, e := range c.endpoints {
		e.mu.Lock()
		switch a := &e.announced; {
		case a.newest.Number >= top:
			a.lowerSince = time.Time{}
		case a.lowerSince.IsZero():
			a.lowerSince = now
		}
		e.mu.Unlock()
	}
}

// stalled reports whether the endpoint's head has not changed for this long while another endpoint's was higher and
// rose: such a head does not say where the chain ends. On a halted chain a made-up block is above the others at once,
// so it does not count as rising. Two endpoints with the same head show that the chain ends there.
func (e *endpoint) stalled(limit time.Duration) bool {
	now := time.Now()
	rises := now.Add(-limit)
	e.mu.Lock()
	head, since, led := e.announced.newest, e.announced.since, e.announced.lowerSince
	e.mu.Unlock()
	if since.After(rises) || led.IsZero() || led.After(rises) {
		return false
	}
	above := false
	for _, o := range e.client.endpoints {
		if o == e {
			continue
		}
		o.mu.Lock()
		a := &o.announced
		same := a.newest.Hash == head.Hash && now.Sub(a.at) < reachFor
		above = above || a.newest.Number > head.Number && a.since.After(rises)
		o.mu.Unlock()
		if same {
			return false
		}
	}
	return above
}

// reachFor is how long a reported head bounds those of other endpoints.
const reachFor = 10 * time.Second

// reach is the highest head that any endpoint but one reported lately, without those that are stalled. 0: none did.
func (c *Client) reach(but *endpoint) (top uint64) {
	for _, e := range c.endpoints {
		if e == but || e.stalled(c.cfg.Silence) {
			continue
		}
		e.mu.Lock()
		if time.Since(e.announced.at) < reachFor {
			top = max(top, e.announced.newest.Number)
		}
		e.mu.Unlock()
	}
	return top
}

// HeadOfTwo is the highest head that two endpoints reached, or what a single configured endpoint claims. Where several
// are configured and only one takes part, it is the confirmed head (confirmedPart). Endpoints that do not answer, or
// are far below what is verified, take no part; those not asked yet do.
func (c *Client) HeadOfTwo() uint64 {
	var all []uint64
	now := time.Now()
	for _, e := range c.endpoints {
		e.mu.Lock()
		a := &e.announced
		silent := now.Sub(a.at) >= reachFor && (e.failures > 0 || now.Before(e.slowUntil[turnHead]))
		if !silent && !a.stale {
			all = append(all, a.last.Number)
		}
		e.mu.Unlock()
	}
	switch {
	case c.only():
		return math.MaxUint64 // whatever it claims
	case len(all) < 2:
		return c.highest.Load()
	}
	two, _ := byTwo(all)
	return two
}

// byTwo returns the highest number that two of them reach; if there is only one number, it returns that as one.
func byTwo(all []uint64) (two, one uint64) {
	slices.Sort(all)
	switch n := len(all); n {
	case 0:
		return 0, 0
	case 1:
		return 0, all[0]
	default:
		return all[n-2], 0
	}
}

// counts reports whether a head of the endpoint counts.
func (a *announced) counts(number, top uint64, now time.Time) bool {
	return now.After(a.ignored) && !a.ahead(number, top, now)
}

// ahead reports whether a head does not count because it is above all other endpoints'.
func (a *announced) ahead(number, top uint64, now time.Time) bool {
	return top > 0 && number > top && (now.Before(a.claims) || now.Before(a.lackedUntil) && top < a.lackedAt)
}

// isAhead is ahead for a polled head.
func (e *endpoint) isAhead(number uint64) bool {
	top := e.client.reach(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.announced.ahead(number, top, time.Now())
}

// above is the difference of two numbers, at least 0. Claimed numbers are not added to: the sum could overflow.
func above(number, other uint64) uint64 { return number - min(number, other) }
