package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics/pause"
)

// Headers that hash and link belong together, which does not show that any other endpoint has them: an endpoint may
// make up a chain, with logs or without. The endpoints vote on which chain is the real one.
//
// Invariants, where several endpoints are configured:
//
//  1. A block becomes final, or is the topic's first, only if more endpoints have it than have another one, and at
//     least two. One endpoint alone decides only if all others showed nothing new for Config.Alone, as if they were
//     not configured. Either they were silent: in all votes of that time that another endpoint answered, they did not
//     answer, refused, or were syncing, as they report or as a head below the final block shows; an endpoint that
//     throttles counts as silent after twice that time. Or they were stalled: the same head for that time, below a
//     head that rises. Two endpoints with the same head show that the chain has halted, and an endpoint with more
//     blocks decides nothing. With two endpoints, only time distinguishes a stuck one from an honest one on a halted
//     chain while the other makes up blocks: a lie that lasts for less is never final, and a stuck endpoint delays
//     finality for no longer. The age of a head means nothing.
//  2. A known block is replaced only by one that more endpoints have; by that of a single endpoint only if the others
//     report that they have none, or did not answer for a while. It is reverted without a replacement if more
//     endpoints, and at least two, end below it for a while (Lacked) and do not come nearer: being late is no reorg.
//     Stalled endpoints (Config.Silence) are not counted among these, unless two end at the same block: then the chain
//     has halted, and blocks that only one endpoint has do not stay. An endpoint with the minority's block, or that
//     served it or a descendant while voting with the others, is counted as a liar and paused, longer each time. Where
//     the block is not final, the endpoint may have seen a reorg first or last: it is paused shortly, and counted if
//     that goes on for seconds. It is not counted if another endpoint knows the block by its hash: then it was on the
//     chain, and a reorg replaced it. One endpoint's claim blames none.
//  3. Every endpoint votes, also a paused one; only one that throttles is left out. A response that does not fit
//     another endpoint's headers costs no more than the shortest pause.
//  4. A tie decides nothing until the endpoints agree again.
//  5. A head is a claim that costs nothing. It starts a vote at most every 200 ms, and less often each time that the
//     vote changes nothing. Heads of an endpoint that lost a vote are ignored while it is paused. So are, for a while,
//     its heads above all others' after such a block was reverted or missing: shortly, and longer each time, if
//     another endpoint knows the block by its hash, as it knows a block that a reorg replaced.
//
// A vote costs an endpoint one header, or two where it lacks the block. It does not wait for other requests to the
// endpoint, nor do fetches wait for it. Below finality there is one vote for each advance, and above one for each head
// that contradicts; blocks at the tip come in without any, and are reverted if they lose. The newest is voted on every
// three seconds, or as often as a slow chain makes blocks, while no two endpoints have reported it or a descendant.

// ErrSplit: the endpoints do not agree on a block. Try again later.
var ErrSplit = errors.New("the endpoints do not agree on a block")

// voteWait is how long an endpoint may take for its vote.
const voteWait = 5 * time.Second

// ballot is a vote in progress.
type ballot struct {
	mu      sync.Mutex
	headers map[common.Hash]follow.Header
	have    map[common.Hash][]*endpoint
	lack    []*endpoint
	below   []follow.Header // heads of endpoints in lack that count
}

// Vote asks all endpoints for a block, and returns the one that most of them have. sure: one endpoint's claim is
// enough only if all others are silent. It returns ErrSplit in a tie, ErrGone if no endpoint has the block, and
// ErrSlow if none answers.
func (c *Client) Vote(ctx context.Context, number uint64, sure bool) (follow.Header, error) {
	if h, ok := c.history.find(number); ok && sure && len(c.endpoints) <= 3 {
		return h, nil
	}
	b, err := c.poll(ctx, number)
	if err == nil && b.empty() && c.throttledFor() > 0 {
		b, err = c.poll(ctx, number)
	}
	if err != nil {
		return follow.Header{}, err
	}
	return c.counted(ctx, b, number, sure)
}

// throttledFor is how long all endpoints are left alone because they throttle.
func (c *Client) throttledFor() time.Duration {
	first := time.Duration(math.MaxInt64)
	now := time.Now()
	for _, e := range c.endpoints {
		e.mu.Lock()
		first = min(first, e.throttle.Sub(now))
		e.mu.Unlock()
	}
	return max(0, first)
}

// ErrLate: most endpoints end below the block, and come nearer.
var ErrLate = errors.New("most endpoints do not have the block yet")

// Lacked asks all endpoints for a block at the tip that only one has reported. If at least two, and more than have it,
// end below it, their heads are returned, highest first, and the endpoints that have it are not followed above the
// others for a while; but ErrLate if they end above `were`, the height of their heads before. Otherwise it is Vote.
func (c *Client) Lacked(ctx context.Context, number, were uint64) (below []follow.Header, most follow.Header, err error) {
	b, err := c.poll(ctx, number)
	if err != nil {
		return nil, most, err
	}
	have := 0
	for _, by := range b.have {
		have += len(by)
	}
	if len(b.below) < 2 || len(b.below) <= have {
		most, err = c.counted(ctx, b, number, false)
		return nil, most, err
	}
	slices.SortFunc(b.below, func(x, y follow.Header) int { return cmp.Compare(y.Number, x.Number) })
	if top := b.below[0].Number; top > were {
		return nil, most, fmt.Errorf("block %d: other endpoints are at %d, and were at %d: %w", number, top, were, ErrLate)
	}
	for _, by := range b.have {
		for _, e := range by {
			e.lackedByOthers(number)
		}
	}
	return b.below, most, nil
}

// lackedByOthers records that most endpoints end below a block that this one has.
func (e *endpoint) lackedByOthers(number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.announced.lackedUntil, e.announced.lackedAt = time.Now().Add(forkMemory), number
}

// empty reports whether no endpoint has answered.
func (b *ballot) empty() bool { return len(b.have)+len(b.lack) == 0 }

// poll asks all endpoints for a block. If all throttle it waits for the first that may be asked.
func (c *Client) poll(ctx context.Context, number uint64) (*ballot, error) {
	if err := pause.For(ctx, min(c.throttledFor(), voteWait)); err != nil {
		return nil, err
	}
	began := time.Now()
	asking, cancel := context.WithCancel(context.WithValue(ctx, voting{}, true))
	defer cancel()
	b := &ballot{headers: map[common.Hash]follow.Header{}, have: map[common.Hash][]*endpoint{}}
	var mute []*endpoint
	alone := c.Alone() != ""
	var g sync.WaitGroup
	for _, e := range c.endpoints {
		if e.throttled() {
			b.mu.Lock()
			mute = append(mute, e)
			b.mu.Unlock()
			continue
		}
		g.Go(func() {
			limit := voteWait
			if alone && !e.counts() {
				limit = c.patience() // a backfill must not wait for it in each vote
			}
			within, stop := context.WithTimeout(asking, limit)
			defer stop()
			h, head, err := e.vote(within, number)
			b.mu.Lock()
			defer b.mu.Unlock()
			switch {
			case err == nil:
				b.headers[h.Hash] = h
				b.have[h.Hash] = append(b.have[h.Hash], e)
				if 2*len(b.have[h.Hash]) > len(c.endpoints) {
					cancel() // the others cannot change the outcome
				}
			case errors.Is(err, errNoBlock):
				b.lack = append(b.lack, e)
				if head != nil && head.Number < number && !e.stalled(c.cfg.Silence) {
					b.below = append(b.below, *head)
				}
			default:
				if !errors.Is(within.Err(), context.Canceled) {
					mute = append(mute, e)
				}
				if within.Err() == nil {
					e.failed(err)
				}
			}
		})
	}
	g.Wait()
	for _, e := range mute {
		e.missed(began, !b.empty())
	}
	return b, ctx.Err()
}

// counted is the outcome of a vote.
func (c *Client) counted(ctx context.Context, b *ballot, number uint64, sure bool) (follow.Header, error) {
	switch {
	case b.empty():
		return follow.Header{}, fmt.Errorf("vote on block %d: no endpoint answers: %w", number, ErrSlow)
	case len(b.have) == 0:
		return follow.Header{}, fmt.Errorf("vote on block %d: %w", number, ErrGone)
	}
	order := slices.SortedFunc(maps.Keys(b.have), func(x, y common.Hash) int { return cmp.Compare(len(b.have[y]), len(b.have[x])) })
	most := order[0]
	n, next := len(b.have[most]), 0
	if len(order) > 1 {
		next = len(b.have[order[1]])
	}
	switch {
	case n == next:
		for _, by := range b.have {
			for _, e := range by {
				c.metrics.lies.WithLabelValues(e.name, "disagreement").Inc()
			}
		}
		return follow.Header{}, fmt.Errorf("block %d: %w: %s", number, ErrSplit, b)
	case sure && n < 2 && (next > 0 || !c.decides(b.have[most][0])):
		return follow.Header{}, fmt.Errorf("block %d: %w: %s; one alone decides if the others show nothing new for %s (0s: never)", number, ErrSplit, b, c.cfg.Alone)
	case n < 2 && !c.quiet(c.cfg.Hasty(), append(b.lack, b.have[most]...)...):
		return follow.Header{}, fmt.Errorf("block %d: %w: %s; the others do not answer", number, ErrSplit, b)
	}
	c.contradicted(ctx, b, b.headers[most], sure)
	return b.headers[most], nil
}

// String lists which endpoint has which block.
func (b *ballot) String() string {
	var all []string
	names := func(by []*endpoint) string {
		var s []string
		for _, e := range by {
			s = append(s, e.name)
		}
		slices.Sort(s)
		return strings.Join(s, ", ")
	}
	for hash, by := range b.have {
		all = append(all, fmt.Sprintf("%s: %s", names(by), hash.TerminalString()))
	}
	if len(b.lack) > 0 {
		all = append(all, names(b.lack)+": none")
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// Final tells the client which block is final. An endpoint with a head below it is syncing, whether it reports so or
// not.
func (c *Client) Final(number uint64) { c.final.Store(number) }

// vote fetches a block that is voted on. If the endpoint lacks it, head is its head, if that counts.
func (e *endpoint) vote(ctx context.Context, number uint64) (h follow.Header, head *follow.Header, err error) {
	h, err = e.byNumber(ctx, number)
	switch {
	case err == nil:
		e.recordBlock(&h, true)
	case errors.Is(err, errNoBlock):
		e.missed(time.Now(), true)
		latest, failed := e.header(ctx, `"latest"`)
		if failed != nil {
			break
		}
		e.recordHead(latest, false)
		if latest.Number < e.client.final.Load() || e.syncing(ctx) {
			break
		}
		head = &latest
		e.recordBlock(head, true)
	}
	return h, head, err
}

// recordBlock records a block that an endpoint served in a vote, or as its head. A head ends its silence if it is
// higher than any before and not below what is final.
func (e *endpoint) recordBlock(h *follow.Header, voted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if voted || h.Number > e.highest && h.Number >= e.client.final.Load() {
		e.silentSince, e.missedAt, e.silence = time.Time{}, time.Time{}, 0
	}
	e.highest = max(e.highest, h.Number)
}

// maxSilence is how much silence one vote adds at most: the last vote may be hours ago.
const maxSilence = 10 * time.Second

// missed records a vote in which the endpoint showed nothing new. others: another one answered. If none does, the
// fault may be ours.
func (e *endpoint) missed(since time.Time, others bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if e.silentSince.IsZero() {
		e.silentSince, e.missedAt = since, since
	}
	if others {
		e.silence += min(now.Sub(e.missedAt), maxSilence)
	}
	e.missedAt = now
}

// syncing reports whether the endpoint reports that it is syncing.
func (e *endpoint) syncing(ctx context.Context) (is bool) {
	err := e.do(ctx, []call{{method: "eth_syncing", params: []byte("[]"), result: func(s *scanner) error {
		is = s.peek() == '{'
		return s.skip()
	}}})
	return is && err == nil
}

// decides reports whether an endpoint, or several, decide alone what is final: no other one showed anything new for
// Config.Alone.
func (c *Client) decides(alone ...*endpoint) bool {
	return !slices.ContainsFunc(c.endpoints, func(e *endpoint) bool { return !slices.Contains(alone, e) && e.counts() })
}

// counts reports whether the endpoint takes part in deciding what is final.
func (e *endpoint) counts() bool {
	limit := e.client.cfg.Alone
	return limit == 0 || !e.quiet(limit) && !e.stalled(limit)
}

// Alone names the endpoint that alone decides what is final, and the others. It is empty if there is none, or only one
// endpoint is configured.
func (c *Client) Alone() string {
	var counts, not []string
	for _, e := range c.endpoints {
		if e.counts() {
			counts = append(counts, e.name)
		} else {
			not = append(not, e.name)
		}
	}
	if len(counts) != 1 || len(not) == 0 {
		return ""
	}
	return fmt.Sprintf("%s alone decides what is final: nothing new from %s for %s", counts[0], strings.Join(not, ", "), c.cfg.Alone)
}

// quiet reports whether all endpoints except `but` have been silent for this long.
func (c *Client) quiet(limit time.Duration, but ...*endpoint) bool {
	return !slices.ContainsFunc(c.endpoints, func(e *endpoint) bool { return !slices.Contains(but, e) && !e.quiet(limit) })
}

// quiet reports whether the endpoint has been silent for this long.
func (e *endpoint) quiet(limit time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.throttle.After(e.silentSince) {
		limit *= 2
	}
	return !e.silentSince.IsZero() && e.silence+min(time.Since(e.missedAt), maxSilence) >= limit
}

// voting marks the context of a vote.
type voting struct{}

func isVote(ctx context.Context) bool { return ctx.Value(voting{}) != nil }

// throttled reports whether the endpoint throttles requests now.
func (e *endpoint) throttled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.throttle)
}
