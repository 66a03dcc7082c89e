package query_test

import (
	"bytes"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// market is a model of the deals: what the pages are judged by.
type market struct {
	deals map[uint64]*topics.Deal
	next  uint64
}

// step draws a few events of a block and applies them to the model.
func (m *market) step(t *rapid.T, at topics.BlockRef) (events []contracts.Event) {
	for range rapid.IntRange(0, 6).Draw(t, "events") {
		if e := m.event(t, at); e != nil {
			events = append(events, e)
		}
	}
	return events
}

func (m *market) event(t *rapid.T, at topics.BlockRef) contracts.Event {
	expiry := uint64(0)
	if rapid.Bool().Draw(t, "expires") {
		expiry = at.Timestamp + rapid.Uint64Range(1, 6).Draw(t, "expiry")
	}
	limit := rapid.Uint64Range(2, 5).Draw(t, "cap")
	price := rapid.Uint64Range(1, 2).Draw(t, "price")
	what := rapid.IntRange(0, 5).Draw(t, "what")
	if what <= 2 || m.next == 1 {
		e := listing(m.next)
		e.Lane = contracts.Lane(rapid.IntRange(0, 1).Draw(t, "lane"))
		e.Token = address(byte(rapid.IntRange(0, 1).Draw(t, "token")))
		e.Term = rapid.SampledFrom([]uint32{7, 21}).Draw(t, "term")
		e.Borrower = address(byte(rapid.IntRange(0, 1).Draw(t, "borrower")))
		e.Cap, e.MinPrice, e.ListingExpiry, e.ListedAt = word(limit), word(price), expiry, at.Timestamp
		m.deals[m.next] = &topics.Deal{
			ID: e.DealID, Borrower: e.Borrower, Lane: e.Lane, Token: e.Token, Term: e.Term, Cap: e.Cap, MinPrice: e.MinPrice,
			ListingExpiry: expiry, ListedAt: e.ListedAt,
		}
		m.next++
		return e
	}
	id := rapid.Uint64Range(1, m.next-1).Draw(t, "deal")
	d := m.deals[id]
	if d.State != contracts.DealListedState {
		return nil
	}
	switch what {
	case 3:
		d.State = contracts.DealFundedState
		d.Funding = &topics.Funding{Lender: address(byte(rapid.IntRange(0, 2).Draw(t, "lender")))}
		return &contracts.DealFunded{DealID: d.ID, Lender: d.Funding.Lender}
	case 4:
		d.State = contracts.DealCancelledState
		return &contracts.DealCancelled{DealID: d.ID}
	default:
		d.Cap, d.MinPrice, d.ListingExpiry = word(limit), word(price), expiry
		return &contracts.DealTermsUpdated{DealID: d.ID, Cap: d.Cap, MinPrice: d.MinPrice, Term: d.Term, ListingExpiry: expiry}
	}
}

// where finds the deals that a list holds at a block, and the position of each.
func (m *market) where(position func(*topics.Deal) []byte) map[uint64][]byte {
	found := map[uint64][]byte{}
	for id, d := range m.deals {
		if p := position(d); p != nil {
			found[id] = p
		}
	}
	return found
}

func maybe[T any](t *rapid.T, g *rapid.Generator[T], label string) *T {
	if !rapid.Bool().Draw(t, "by "+label) {
		return nil
	}
	v := g.Draw(t, label)
	return &v
}

var (
	lanes     = rapid.SampledFrom([]contracts.Lane{0, 1})
	terms     = rapid.SampledFrom([]uint32{7, 21})
	addresses = rapid.SampledFrom([]common.Address{address(0), address(1)})
	states    = rapid.SampledFrom([]contracts.DealState{0, 1, 4})
)

// list is a way to read one of the lists, and what belongs to it.
type list struct {
	read     func(r query.Reader, after []byte, limit int) (query.Answer[query.Page[query.DealWithBids]], error)
	position func(d *topics.Deal, now uint64) []byte // nil: the deal is not in the list
}

func drawList(t *rapid.T) list {
	if rapid.Bool().Draw(t, "listings") {
		q := query.ListingsQuery{
			Sort: query.Sort(rapid.IntRange(0, 3).Draw(t, "sort")),
			Lane: maybe(t, lanes, "lane"), Term: maybe(t, terms, "term"), Asset: maybe(t, addresses, "asset"),
		}
		return list{
			read: func(r query.Reader, after []byte, limit int) (query.Answer[query.Page[query.DealWithBids]], error) {
				q.After, q.Limit = after, limit
				return r.Listings(t.Context(), q)
			},
			position: func(d *topics.Deal, now uint64) []byte {
				if d.State != contracts.DealListedState || d.ListingExpiry != 0 && d.ListingExpiry < now ||
					q.Lane != nil && d.Lane != *q.Lane || q.Term != nil && d.Term != *q.Term || q.Asset != nil && d.Token != *q.Asset {
					return nil
				}
				return deals.ListingKey(q.Sort, d)
			},
		}
	}
	q := query.DealsQuery{Wallet: maybe(t, addresses, "wallet"), State: maybe(t, states, "state")}
	return list{
		read: func(r query.Reader, after []byte, limit int) (query.Answer[query.Page[query.DealWithBids]], error) {
			q.After, q.Limit = after, limit
			return r.Deals(t.Context(), q)
		},
		position: func(d *topics.Deal, _ uint64) []byte {
			if q.State != nil && d.State != *q.State ||
				q.Wallet != nil && d.Borrower != *q.Wallet && (d.Funding == nil || d.Funding.Lender != *q.Wallet) {
				return nil
			}
			return deals.Key(&d.ID)
		},
	}
}

// Whatever lands between pages: a deal that is in the list throughout, and at one position, is returned
// exactly once; every page is in order and holds nothing else than the list; and a remote node gives the
// same pages as a local one.
func TestPagesReturnWhatStaysExactlyOnce(t *testing.T) {
	const partitions = 3
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		var cleanups cleanup
		defer cleanups.run()
		n := newNode(&cleanups, topics.RoleOwner, 1, span(partitions)...)
		here := localRouter(&cleanups, n, partitions)
		server := httptest.NewServer(serveMarket(ctx, n))
		cleanups.Cleanup(server.Close)
		there := remoteRouter(&cleanups, partitions, map[string]*holder{"a": {server: server, node: n}})

		m := &market{deals: map[uint64]*topics.Deal{}, next: 1}
		at := block(0)
		land := func() {
			at = block(at.Number + 1)
			n.land(&cleanups, partitions, at, m.step(t, at)...)
		}
		for range rapid.IntRange(1, 8).Draw(t, "blocks before") {
			land()
		}

		for range 6 {
			walk(t, m, drawList(t), here, there, &at, land)
		}
	})
}

// walk reads a list to its end, while a block lands after each page.
func walk(t *rapid.T, m *market, l list, here, there query.Reader, head *topics.BlockRef, land func()) {
	limit := rapid.IntRange(1, 7).Draw(t, "limit")
	positionNow := func(d *topics.Deal) []byte { return l.position(d, head.Timestamp) }
	stayed := m.where(positionNow)
	returned := map[uint64]int{}
	var after []byte
	for {
		a, err := l.read(here, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		for h, err := there.Head(t.Context()); err != nil || h.Indexed != *head; h, err = there.Head(t.Context()) {
			runtime.Gosched() // it is told of a block a moment later
		}
		remote, err := l.read(there, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, remote); diff != "" {
			t.Fatalf("local and remote pages differ (-local +remote):\n%s", diff)
		}
		if a.At != *head {
			t.Fatalf("answer as of %v, want %v", a.At, *head)
		}
		if len(a.Value.Items) > limit {
			t.Fatalf("%d items on a page of %d", len(a.Value.Items), limit)
		}
		last := after
		for _, d := range a.Value.Items {
			id := d.Deal.ID.Uint64()
			returned[id]++
			p := positionNow(m.deals[id])
			if p == nil {
				t.Fatalf("deal %d is not in the list", id)
			}
			if bytes.Compare(last, p) >= 0 {
				t.Fatalf("deal %d is not behind the one before it", id)
			}
			last = p
		}
		if a.Value.Next == nil {
			break
		}
		if !bytes.Equal(a.Value.Next, last) {
			t.Fatalf("next is %x, want the last item's position %x", a.Value.Next, last)
		}
		after = a.Value.Next

		land()
		still := m.where(positionNow)
		for id, p := range stayed {
			if !bytes.Equal(still[id], p) {
				delete(stayed, id)
			}
		}
	}
	for id := range stayed {
		if returned[id] != 1 {
			t.Errorf("deal %d stayed in the list and was returned %d times", id, returned[id])
		}
	}
}
