package hotcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// ledger is a plain model of the listings, and what they were at every block of every fork.
type ledger struct {
	deals  map[uint64]*query.DealWithBids
	past   map[common.Hash]map[uint64]*query.DealWithBids
	nextID uint64
	bids   uint64
	edits  byte
}

func newLedger() *ledger {
	return &ledger{
		deals: map[uint64]*query.DealWithBids{}, past: map[common.Hash]map[uint64]*query.DealWithBids{}, nextID: 1,
	}
}

func clone(all map[uint64]*query.DealWithBids) map[uint64]*query.DealWithBids {
	out := make(map[uint64]*query.DealWithBids, len(all))
	for id, d := range all {
		out[id] = &query.DealWithBids{Deal: d.Deal, Bids: slices.Clone(d.Bids)}
	}
	return out
}

func (l *ledger) end(at topics.BlockRef) { l.past[at.Hash] = clone(l.deals) }

func (l *ledger) rewind(head topics.BlockRef) { l.deals = clone(l.past[head.Hash]) }

// event draws what happens to a deal, or nil.
func (l *ledger) event(t *rapid.T, at topics.BlockRef) contracts.Event {
	expiry := uint64(0)
	if rapid.Bool().Draw(t, "expires") {
		expiry = at.Timestamp + rapid.SampledFrom([]uint64{1, 2, 3, 4, 3000, 10 * 86_400}).Draw(t, "expiry")
	}
	limit, price := rapid.Uint64Range(2, 5).Draw(t, "cap"), rapid.Uint64Range(1, 2).Draw(t, "price")
	what := rapid.IntRange(0, 8).Draw(t, "what")
	if what <= 2 || l.nextID == 1 {
		e := listing(l.nextID)
		e.Lane = contracts.Lane(rapid.IntRange(0, 1).Draw(t, "lane"))
		e.Token = address(byte(rapid.IntRange(0, 1).Draw(t, "token")))
		e.Term = rapid.SampledFrom([]uint32{7, 21}).Draw(t, "term")
		e.Cap, e.MinPrice, e.ListingExpiry, e.ListedAt = word(limit), word(price), expiry, at.Timestamp
		l.deals[l.nextID] = &query.DealWithBids{Deal: topics.Deal{
			ID: e.DealID, Borrower: e.Borrower, Lane: e.Lane, Token: e.Token, AmountOrTokenID: e.AmountOrTokenID, Term: e.Term,
			Cap: e.Cap, MinPrice: e.MinPrice, FeeBps: e.FeeBps, ListingExpiry: expiry, ListedAt: e.ListedAt,
			TermsHash: e.TermsHash, TxListed: at.Hash,
		}}
		l.nextID++
		return e
	}
	d := l.deals[rapid.Uint64Range(1, l.nextID-1).Draw(t, "deal")]
	if d == nil || d.Deal.State != contracts.DealListedState {
		return nil
	}
	switch what {
	case 3:
		d.Deal.State = contracts.DealFundedState
		return &contracts.DealFunded{DealID: d.Deal.ID, Lender: address(9)}
	case 4:
		d.Deal.State = contracts.DealCancelledState
		return &contracts.DealCancelled{DealID: d.Deal.ID}
	case 5:
		l.edits++
		d.Deal.Cap, d.Deal.MinPrice, d.Deal.ListingExpiry = word(limit), word(price), expiry
		d.Deal.TermsHash = common.Hash{2, l.edits}
		return &contracts.DealTermsUpdated{
			DealID: d.Deal.ID, Cap: d.Deal.Cap, MinPrice: d.Deal.MinPrice, Term: d.Deal.Term,
			ListingExpiry: expiry, TermsHash: d.Deal.TermsHash,
		}
	case 6:
		if len(d.Bids) == 0 {
			return nil
		}
		b := d.Bids[0]
		d.Bids = d.Bids[1:]
		d.Deal.OpenBids--
		return &contracts.BidWithdrawn{DealID: d.Deal.ID, BidID: b.ID}
	default:
		l.bids++
		b := topics.Bid{
			ID: word(l.bids), DealID: d.Deal.ID, Lender: address(8), Price: word(price), Expiry: at.Timestamp + rapid.SampledFrom([]uint64{1, 3, 3000}).Draw(t, "bid expiry"),
			PlacedAt: at.Timestamp, TermsHash: d.Deal.TermsHash, Tx: at.Hash,
		}
		d.Bids = append(d.Bids, b)
		d.Deal.OpenBids++
		return &contracts.BidPlaced{
			DealID: b.DealID, BidID: b.ID, Lender: b.Lender, Price: b.Price, Expiry: b.Expiry,
			PlacedAt: b.PlacedAt, TermsHash: b.TermsHash,
		}
	}
}

// page is what a page at a block must be. Bids of former terms stay in the model, and out of the page.
func (l *ledger) page(at topics.BlockRef, q query.ListingsQuery) query.Page[query.DealWithBids] {
	type item struct {
		key []byte
		query.DealWithBids
	}
	var all []item
	for _, d := range l.past[at.Hash] {
		if d.Deal.State != contracts.DealListedState ||
			d.Deal.ListingExpiry != 0 && d.Deal.ListingExpiry < at.Timestamp ||
			q.Lane != nil && *q.Lane != d.Deal.Lane || q.Term != nil && *q.Term != d.Deal.Term ||
			q.Asset != nil && *q.Asset != d.Deal.Token {
			continue
		}
		it := item{deals.ListingKey(q.Sort, &d.Deal), query.DealWithBids{Deal: d.Deal}}
		best, count := rules.BestBid(&d.Deal, d.Bids, at.Timestamp)
		it.Acceptable = query.Acceptable{Count: uint64(count), Best: best}
		if bytes.Compare(it.key, q.After) > 0 {
			all = append(all, it)
		}
	}
	slices.SortFunc(all, func(a, b item) int { return bytes.Compare(a.key, b.key) })
	p := query.Page[query.DealWithBids]{Items: []query.DealWithBids{}}
	for i, it := range all {
		if i == q.Limit {
			p.Next = all[i-1].key
			break
		}
		p.Items = append(p.Items, it.DealWithBids)
	}
	return p
}

// ask draws a query, possibly of a page further on.
func (l *ledger) ask(t *rapid.T) query.ListingsQuery {
	q := query.ListingsQuery{
		Sort:  query.Sort(rapid.IntRange(0, int(deals.Sorts)-1).Draw(t, "sort")),
		Limit: rapid.IntRange(1, 5).Draw(t, "limit"),
	}
	if rapid.Bool().Draw(t, "by lane") {
		lane := contracts.Lane(rapid.IntRange(0, 1).Draw(t, "lane"))
		q.Lane = &lane
	}
	if rapid.Bool().Draw(t, "by term") {
		term := rapid.SampledFrom([]uint32{7, 21}).Draw(t, "term")
		q.Term = &term
	}
	if rapid.Bool().Draw(t, "by asset") {
		token := address(byte(rapid.IntRange(0, 1).Draw(t, "token")))
		q.Asset = &token
	}
	if rapid.Bool().Draw(t, "further") {
		if d := l.deals[rapid.Uint64Range(1, max(1, l.nextID-1)).Draw(t, "after")]; d != nil {
			q.After = deals.ListingKey(q.Sort, &d.Deal)
		}
	}
	return q
}

var runs atomic.Int64

// TestPagesEqualModel: whatever is listed, edited, bid on, funded, cancelled and reverted, however far each
// partition has come, and however far time leaps and is taken back, a page from Redis is that of the model
// at the block that the page names; and where all partitions are at one block it is no miss.
func TestPagesEqualModel(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		var hits, torn, leaps int
		rapid.Check(t, func(rt *rapid.T) {
			const partitions = 3
			cfg := testConfig(url, partitions)
			cfg.Prefix = fmt.Sprintf("run%d", runs.Add(1)) // an empty Redis, as far as it can see
			cfg.MaxLag = time.Hour
			cfg.ChunkRows = rapid.IntRange(1, 6).Draw(rt, "chunk")
			cfg.MaxPending = rapid.IntRange(1, 12).Draw(rt, "max pending")
			w, r := newTestWriter(t, cfg, nil), newPatientReader(t, cfg)
			n, closeNode := newNode(t, partitions, 1)
			defer closeNode()
			defer func() { _, _ = w.client.Close(), r.client.Close() }()
			w.source = n
			l, chain, fork := newLedger(), []topics.BlockRef{block(1, 0)}, uint64(0)
			l.end(chain[0])
			n.observe(w)

			check := func(mustHit bool) {
				q := l.ask(rt)
				got, err := r.Listings(context.Background(), q, n.lowest())
				if err != nil {
					var miss Miss
					if !errors.As(err, &miss) || mustHit || miss == MissError || miss == MissCorrupt {
						rt.Fatalf("%+v at %+v: %v", q, n.lowest().At, err)
					}
					if miss == MissTorn {
						torn++
					}
					return
				}
				hits++
				if diff := cmp.Diff(l.page(got.At, q), got.Value); diff != "" {
					rt.Fatalf("%+v at block %d %s:\n%s", q, got.At.Number, got.At.Hash, diff)
				}
			}
			for range rapid.IntRange(1, 25).Draw(rt, "steps") {
				switch rapid.IntRange(0, 10).Draw(rt, "step") {
				case 0, 1, 2: // a block
					at := block(chain[len(chain)-1].Number+rapid.Uint64Range(1, 2).Draw(rt, "gap"), fork)
					at.Timestamp = chain[len(chain)-1].Timestamp + rapid.SampledFrom([]uint64{0, 0, 1, 2, 3000, 21 * 86_400}).Draw(rt, "time")
					var events []contracts.Event
					for range rapid.IntRange(0, 6).Draw(rt, "events") {
						if e := l.event(rt, at); e != nil {
							events = append(events, e)
						}
					}
					l.end(at)
					n.land(at, events...)
					chain = append(chain, at)
				case 3: // a reorg
					fork++
					for range rapid.IntRange(1, 3).Draw(rt, "depth") {
						if top := len(chain) - 1; top > 0 {
							n.revert(chain[top], chain[top-1])
							chain = chain[:top]
						}
					}
					l.rewind(chain[len(chain)-1])
				case 4, 5, 6: // a partition goes on
					n.advance(t, rapid.Int32Range(0, partitions-1).Draw(rt, "partition"), rapid.IntRange(1, 3).Draw(rt, "commit"))
				case 7: // what is pending is written
					if err := w.flush(context.Background()); err != nil {
						rt.Fatal(err)
					}
					check(false)
				case 8: // Redis loses everything, or the writer looks for what expired
					if rapid.Bool().Draw(rt, "flush") {
						flushKeys(rt, w)
					} else if err := w.sweep(context.Background()); err != nil {
						rt.Fatal(err)
					}
				case 9:
					check(false)
				case 10: // time leaps, what expired is swept out, and the leap is taken back
					top := chain[len(chain)-1]
					at := block(top.Number+1, fork)
					at.Timestamp = top.Timestamp + 21*86_400
					l.end(at)
					n.land(at)
					n.settle(t)
					if err := errors.Join(w.flush(context.Background()), w.sweep(context.Background()), w.flush(context.Background())); err != nil {
						rt.Fatal(err)
					}
					n.revert(at, top)
					fork++
				}
			}
			n.settle(t)
			for range 3 { // a write finds a loss, the next one mends it
				for _, s := range w.states {
					s.at = time.Time{} // a beat is due
				}
				if err := w.flush(context.Background()); err != nil {
					rt.Fatal(err)
				}
			}
			for range 6 {
				check(true)
			}
			leaps += int(testutil.ToFloat64(w.metrics.rebuilds.WithLabelValues("time")))
			noLeak(rt, w, chain[len(chain)-1], l)
		})
		t.Logf("%d hits, %d torn reads, time was taken back far %d times", hits, torn, leaps)
	})
}

// flushKeys loses all keys of one run, and no other's.
func flushKeys(t *rapid.T, w *Writer) {
	ctx := context.Background()
	keys, err := w.client.Keys(ctx, fmt.Sprintf("{%s:*", w.cfg.Prefix)).Result()
	if err == nil && len(keys) > 0 {
		err = w.client.Del(ctx, keys...).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// noLeak: Redis holds the listed deals and nothing else; those that expired long ago, also as of a time that was
// taken back since, it may hold.
func noLeak(t *rapid.T, w *Writer, at topics.BlockRef, l *ledger) {
	ctx := context.Background()
	held := map[string]bool{}
	for p := range w.cfg.Partitions {
		keys, err := w.client.HKeys(ctx, fmt.Sprint(w.keys.rows, p)).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			held[key] = true
		}
	}
	rows := len(held)
	before := w.pending.expiredBefore(at.Timestamp)
	for _, p := range w.pending.partitions {
		before = max(before, min(at.Timestamp, w.pending.expiredBefore(p.leftOut)))
	}
	for id, d := range l.past[at.Hash] {
		key := string(deals.Key(&d.Deal.ID))
		listed := d.Deal.State == contracts.DealListedState
		if listed && !held[key] && !rules.ListingExpired(d.Deal.ListingExpiry, before) {
			t.Fatalf("listing %d is not in redis", id)
		}
		if listed {
			delete(held, key)
		}
	}
	if len(held) > 0 {
		t.Fatalf("redis holds %d rows of what is not listed", len(held))
	}
	members := 0
	orders, err := w.client.Keys(ctx, fmt.Sprintf("{%s:*order:*", w.cfg.Prefix)).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range orders {
		n, err := w.client.ZCard(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		members += int(n)
	}
	if sets := 3; members != rows*int(deals.Sorts)*sets {
		t.Fatalf("redis holds %d members of %d rows", members, rows)
	}
}
