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

// That headers hash and link shows that they belong together, and not that anybody else has them: an endpoint may make up
// a chain, with logs or without. Which chain is the endpoints' is put to the vote.
//
// Invariants, where several endpoints are configured:
//
//  1. A block becomes final, or is the topic's first, only if more endpoints have it than have another one, and at least
//     two of them: one alone only if all others have said nothing new for Config.Alone, as if they were not configured. They
//     were silent: in all votes of that time that another one answered they did not, refused, or were syncing, as they say
//     themselves, or as heads below what is final show; who asked for fewer requests is silent after twice that time. Or they stood: their head is
//     the same for that time, and below a head that rises. Two that end at one block say that the chain stands, and whoever
//     has more decides nothing, for however long. Of two endpoints, nothing but the time tells one that is stuck from an honest
//     one of a chain that stands while the other makes up blocks: a lie that lasts for less is never final, and a stuck
//     endpoint holds up what is final for no longer. How old a head is says nothing.
//  2. A known block is replaced only by one that more endpoints have, and by one endpoint's only if the others say that
//     they have none, or did not answer for a while. It is taken back without another one if more endpoints, and at least
//     two, end below it for a while (Lacked), and do not come nearer: who is late is no reorg. Of these an endpoint is not one
//     whose head has been the same for Config.Silence, and below another one's that rises for as long, unless another one ends
//     at the same block: two that do say that the chain stands, and what one alone has above does not stay.
//     Who has the one that fewer have, or has told of it or of what follows from it while it votes with the others, is
//     counted as a liar and rests, longer each time. Where the block is not final, it may have seen a reorg first or last:
//     it rests shortly, and is counted if it goes on for seconds. Not so if one of the others knows the block by its hash:
//     then it was on the chain, and a reorg replaced it. One endpoint's word blames nobody.
//  3. Everybody has a vote, also who rests; only who asked for fewer requests is left alone. A response that does not fit
//     another endpoint's headers costs no more than the shortest rest.
//  4. Where as many have one block as another, nobody can know: nothing is decided until they agree again.
//  5. A head is a claim that costs nothing. It starts no vote more often than every 200 ms, and longer apart each time that
//     the vote changes nothing; those of an endpoint that lost one are ignored while it rests, and so are those above all
//     others' of an endpoint whose last such block was taken back, or was missing. These shortly, and longer each time, where another
//     endpoint knows the block by its hash, as it does what a reorg replaced.
//
// A vote costs an endpoint one header, or two where it lacks the block, and waits for no other request to it, nor does any
// fetch wait for it. Below finality that is one vote for each advance, and above one for each head that contradicts; blocks
// at the tip come in without any, and are reverted if they lose. The newest is put to the vote every three
// seconds, or as often as a slow chain makes blocks, while no two endpoints have told of it, or of what follows from it.

// ErrSplit: it is not known which block is the endpoints'. Try again later.
var ErrSplit = errors.New("the endpoints do not agree on a block")

// voteWait is how long an endpoint may take for its vote.
const voteWait = 5 * time.Second

// ballot is a vote in progress.
type ballot struct {
	mu      sync.Mutex
	headers map[common.Hash]follow.Header
	have    map[common.Hash][]*endpoint
	lack    []*endpoint
	below   []follow.Header // heads of those, who have a say
}

// Vote asks all endpoints for a block, and returns the one that most of them have. sure: one endpoint's word is enough
// only if all others are silent. It returns ErrSplit if none is that block, ErrGone if nobody has one, and ErrSlow if nobody answers.
func (c *Client) Vote(ctx context.Context, number uint64, sure bool) (follow.Header, error) {
	if h, ok := c.history.find(number); ok && sure && len(c.endpoints) <= 3 {
		return h, nil
	}
	b, err := c.poll(ctx, number)
	if err == nil && b.empty() && c.untilAsked() > 0 {
		b, err = c.poll(ctx, number)
	}
	if err != nil {
		return follow.Header{}, err
	}
	return c.counted(ctx, b, number, sure)
}

// untilAsked is how long all endpoints are left alone, which have asked for fewer requests.
func (c *Client) untilAsked() time.Duration {
	first := time.Duration(math.MaxInt64)
	now := time.Now()
	for _, e := range c.endpoints {
		e.mu.Lock()
		first = min(first, e.throttle.Sub(now))
		e.mu.Unlock()
	}
	return max(0, first)
}

// ErrLate: most endpoints end below the block, and come nearer: they are late.
var ErrLate = errors.New("most endpoints do not have the block yet")

// Lacked asks all endpoints for a block at the tip that only one has told of. If at least two, and more than have one, end
// below it, their heads are returned, highest first, and who has one is not followed beyond the others for a while; but ErrLate
// if they end above the height where they were. Otherwise it is Vote.
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
		return nil, most, fmt.Errorf("block %d, they are at %d, and were at %d: %w", number, top, were, ErrLate)
	}
	for _, by := range b.have {
		for _, e := range by {
			e.alone(number)
		}
	}
	return b.below, most, nil
}

// alone records that most endpoints end below a block that this one has.
func (e *endpoint) alone(number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.announced.lonely, e.announced.lonelyAt = time.Now().Add(forkMemory), number
}

// empty reports whether nobody has answered.
func (b *ballot) empty() bool { return len(b.have)+len(b.lack) == 0 }

// poll asks all endpoints for a block. Where all have asked for fewer requests it waits for the first that may be asked.
func (c *Client) poll(ctx context.Context, number uint64) (*ballot, error) {
	if err := pause.For(ctx, min(c.untilAsked(), voteWait)); err != nil {
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
				limit = c.patience() // or a backfill would wait for it in each vote
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
					cancel() // whatever the others say
				}
			case errors.Is(err, errNoBlock):
				b.lack = append(b.lack, e)
				if head != nil && head.Number < number && !e.stands(c.cfg.Silence) {
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
		return follow.Header{}, fmt.Errorf("vote on block %d: nobody answers: %w", number, ErrSlow)
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
		return follow.Header{}, fmt.Errorf("block %d: %w: %s; one alone decides once the others have said nothing new for %s, if ever", number, ErrSplit, b, c.cfg.Alone)
	case n < 2 && !c.quiet(c.cfg.Hasty(), append(b.lack, b.have[most]...)...):
		return follow.Header{}, fmt.Errorf("block %d: %w: %s, and the others do not answer", number, ErrSplit, b)
	}
	c.contradicted(ctx, b, b.headers[most], sure)
	return b.headers[most], nil
}

// String says who has which block.
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

// Final tells the client which block is final. A head below it is nothing new of the chain: its endpoint syncs, whether it
// says so or not.
func (c *Client) Final(number uint64) { c.final.Store(number) }

// vote fetches a block that is put to the vote. Who lacks it is heard too; head is its head if it has a say.
func (e *endpoint) vote(ctx context.Context, number uint64) (h follow.Header, head *follow.Header, err error) {
	h, err = e.byNumber(ctx, number)
	switch {
	case err == nil:
		e.hear(&h, true)
	case errors.Is(err, errNoBlock):
		e.missed(time.Now(), true)
		latest, failed := e.header(ctx, `"latest"`)
		if failed != nil {
			break
		}
		e.says(latest, false)
		if latest.Number < e.client.final.Load() || e.syncing(ctx) {
			break
		}
		head = &latest
		e.hear(head, true)
	}
	return h, head, err
}

// hear records a block that an endpoint has shown: in a vote, or as its head, which counts if it is higher than any before and
// than what is final.
func (e *endpoint) hear(h *follow.Header, voted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if voted || h.Number > e.highest && h.Number >= e.client.final.Load() {
		e.unheard, e.missedAt, e.silence = time.Time{}, time.Time{}, 0
	}
	e.highest = max(e.highest, h.Number)
}

// maxSilence is how much silence one vote shows at most: there may be none for hours.
const maxSilence = 10 * time.Second

// missed records a vote in which the endpoint said nothing new. others: another one answered. Where nobody does, the fault may be ours.
func (e *endpoint) missed(since time.Time, others bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if e.unheard.IsZero() {
		e.unheard, e.missedAt = since, since
	}
	if others {
		e.silence += min(now.Sub(e.missedAt), maxSilence)
	}
	e.missedAt = now
}

// syncing reports whether the endpoint says of itself that it is syncing.
func (e *endpoint) syncing(ctx context.Context) (is bool) {
	err := e.do(ctx, []call{{method: "eth_syncing", params: []byte("[]"), result: func(s *scanner) error {
		is = s.peek() == '{'
		return s.skip()
	}}})
	return is && err == nil
}

// decides reports whether an endpoint alone says what is final: none of another node has said anything new for Config.Alone.
func (c *Client) decides(alone *endpoint) bool {
	return !slices.ContainsFunc(c.endpoints, func(e *endpoint) bool { return !e.isOf(alone) && e.counts() })
}

// counts reports whether the endpoint has a say in what is final.
func (e *endpoint) counts() bool {
	limit := e.client.cfg.Alone
	return limit == 0 || !e.quiet(limit) && !e.stands(limit)
}

// Alone says who alone decides what is final, beside whom; empty: nobody does, or there is one endpoint only.
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
	return fmt.Sprintf("what %s says is final without another endpoint: nothing new of %s for %s", counts[0], strings.Join(not, ", "), c.cfg.Alone)
}

// quiet reports whether all endpoints but some have been silent for so long.
func (c *Client) quiet(limit time.Duration, but ...*endpoint) bool {
	return !slices.ContainsFunc(c.endpoints, func(e *endpoint) bool { return !slices.Contains(but, e) && !e.quiet(limit) })
}

// quiet reports whether the endpoint has been silent for so long.
func (e *endpoint) quiet(limit time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.throttle.After(e.unheard) {
		limit *= 2
	}
	return !e.unheard.IsZero() && e.silence+min(time.Since(e.missedAt), maxSilence) >= limit
}

// voting marks the context of a vote.
type voting struct{}

func isVote(ctx context.Context) bool { return ctx.Value(voting{}) != nil }

// throttled reports whether the endpoint has asked for fewer requests.
func (e *endpoint) throttled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.throttle)
}
