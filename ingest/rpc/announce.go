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

// Announcement is the newest head that an endpoint told of, by its subscription or when it was polled. It is a claim: a
// block may come twice, or never.
type Announcement struct {
	follow.Header
	By  int // the endpoint
	At  time.Time
	New bool // by subscription, and Announced has not returned it before
}

// announced is what an endpoint tells of its head.
type announced struct {
	newest   follow.Header
	at       time.Time
	last     topics.BlockRef // what it told of last; newest may be forgotten
	stale    bool            // as it was last polled, it was far below what is verified
	since    time.Time       // of the first time that it told of that
	led      time.Time       // since when another endpoint's head is above it; zero: none is
	unread   bool            // newest came by subscription, and nobody has read it
	hint     bool            // something came that only a poll can tell
	ignored  time.Time       // until then its heads do not count: it lost a vote
	vain     strikes         // what it told of was missing while it had asked for fewer requests, or was replaced
	doubts   strikes         // it was missing otherwise
	claims   time.Time       // until then those above all others' do not count: what it told of was missing
	lonely   time.Time       // nor until then while all others' are below a height: others had none of that height
	lonelyAt uint64          // the height
}

// Heads says that Announced has something new.
func (c *Client) Heads() <-chan struct{} { return c.heads }

// Announced returns what Newest does, each new head once. hint: the head is to be polled.
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

// Counts reports whether a head that was polled still counts: a vote may have been over meanwhile.
func (c *Client) Counts(head Announcement) bool {
	e := c.endpoints[head.By]
	top := c.reach(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.announced.counts(head.Number, top, time.Now())
}

// announce takes a head of an endpoint's subscription. That of a doubted endpoint is a hint to poll, and so is one that
// does not match its hash.
func (c *Client) announce(e *endpoint, h follow.Header) {
	if e.doubted() || h.Hash == (common.Hash{}) {
		e.mu.Lock()
		e.announced.hint = true
		e.mu.Unlock()
	} else {
		e.says(h, true)
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
	left   bool // somebody does not wait for it any more
}

// latest fetches the head. It waits no longer than ctx, but what comes soon after that, while poll lasts, counts like a subscription's:
// what another endpoint says, which is faster and stands, must not be all that is heard. One request runs at a time.
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

// says records a head that the endpoint told of, by subscription or as it was asked.
func (e *endpoint) says(h follow.Header, bySubscription bool) {
	e.tells(h)
	e.mu.Lock()
	now := time.Now()
	if e.announced.last.Hash != h.Hash {
		e.announced.last, e.announced.since, e.announced.led = h.BlockRef, now, time.Time{}
	}
	e.announced.newest, e.announced.at, e.announced.unread = h, now, bySubscription
	e.mu.Unlock()
	e.client.lead(now)
}

// lead records whose heads are below another one's.
func (c *Client) lead(now time.Time) {
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
			a.led = time.Time{}
		case a.led.IsZero():
			a.led = now
		}
		e.mu.Unlock()
	}
}

// stands reports whether the endpoint's head is the same for so long, and below another one's for as long, which rises: it says
// nothing of where the chain ends. On a chain that stands, one that makes up a block is above the others at once; and if two
// end at one block, that is where the chain ends.
func (e *endpoint) stands(limit time.Duration) bool {
	now := time.Now()
	rises := now.Add(-limit)
	e.mu.Lock()
	head, since, led := e.announced.newest, e.announced.since, e.announced.led
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

// reachFor is how long what an endpoint said of its head bounds those of another.
const reachFor = 10 * time.Second

// reach is the highest head that any endpoint but one told of lately, of those that do not stand. 0: none did.
func (c *Client) reach(but *endpoint) (top uint64) {
	for _, e := range c.endpoints {
		if e == but || e.stands(c.cfg.Silence) {
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

// HeadOfTwo is the highest head that two endpoints told of, or the word of the only endpoint. Where several are configured and no other
// has a say, it is what was confirmed (shown): a head far above what is verified by the headers that lead there, and of the last maxJump blocks
// none. Who told of no head lately as it was asked, or stands far below what is verified, has no say; who was not asked yet has.
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
		return math.MaxUint64 // whatever it told of
	case len(all) < 2:
		return c.highest.Load()
	}
	two, _ := byTwo(all)
	return two
}

// byTwo returns the highest number that two of them reach, or, where there is a single one, that.
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

// ahead reports whether a head does not count because it is above all others'.
func (a *announced) ahead(number, top uint64, now time.Time) bool {
	return top > 0 && number > top && (now.Before(a.claims) || now.Before(a.lonely) && top < a.lonelyAt)
}

// isAhead is ahead of a head that was polled.
func (e *endpoint) isAhead(number uint64) bool {
	top := e.client.reach(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.announced.ahead(number, top, time.Now())
}

// above is by how much a number is above another one. What anybody claims is not added to: the sum may begin again at 0.
func above(number, other uint64) uint64 { return number - min(number, other) }
