package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
)

// Of walks over the pages of a list.
const (
	walksEvery  = 3  // blocks
	pagesOfWalk = 12 // at the most
)

// list is a list that clients read page by page, and what one node says of all of it.
type list struct {
	path  string                // with its filters and sort
	field string                // of a page: its items
	whole string                // a question of the oracle whose answer has all items in that field, in order
	wants func(*item) bool      // the filters, which whole lacks; nil: all
	order func(*item) []big.Int // ascending: where an item is; nil: where that item is now
	last  int                   // the newest so many items are one page; 0: there are pages
}

// item is what filters and orders go by.
type item struct {
	ID, Cap, MinPrice       string
	Token, Lane, State      string
	Term                    uint32
	ListedAt, ListingExpiry uint64

	Asset, Account, Kind, Amount string
	TokenID                      string `json:"tokenId"`
	N                            *int
	Tx                           string

	text string // all of it
}

// is names an item among those of its list.
func (i *item) is(o *item) bool {
	same := func(a, b string) bool { return a == b }
	switch {
	case i.ID != "":
		return same(i.ID, o.ID)
	case i.TokenID != "":
		return same(i.TokenID, o.TokenID)
	case i.N != nil:
		return o.N != nil && *i.N == *o.N
	case i.Asset != "":
		return same(i.Asset, o.Asset) && same(i.Account, o.Account) && same(i.Kind, o.Kind) && (i.Kind != "NFT" || same(i.Amount, o.Amount))
	case i.Token != "":
		return same(i.Token, o.Token)
	}
	return i.text == o.text // a burn never changes
}

// itemsOf are the items of a field of an answer, and whether there are more on another page.
func itemsOf(body, field string) (items []item, more bool, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		return nil, false, err
	}
	var texts []json.RawMessage
	if err := json.Unmarshal(fields[field], &texts); err != nil {
		return nil, false, fmt.Errorf("%s: %w", field, err)
	}
	items = make([]item, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal(text, &items[i]); err != nil {
			return nil, false, err
		}
		items[i].text = string(text)
	}
	next := string(fields["nextCursor"])
	return items, next != "" && next != "null" || string(fields["truncated"]) == "true", nil
}

func number(text string) (n big.Int) {
	n.SetString(text, 10)
	return n
}

func negative(n big.Int) (minus big.Int) {
	minus.Neg(&n)
	return minus
}

// newestFirst is by ID, descending.
func newestFirst(i *item) []big.Int { return []big.Int{negative(number(i.ID))} }

// ordersOfListings are as the description of /listings says.
var ordersOfListings = map[string]func(*item) []big.Int{
	"newest": func(i *item) []big.Int {
		return append([]big.Int{negative(*new(big.Int).SetUint64(i.ListedAt))}, newestFirst(i)...)
	},
	"expiry": func(i *item) []big.Int {
		return append([]big.Int{*new(big.Int).SetUint64(cmp.Or(i.ListingExpiry, math.MaxUint64))}, newestFirst(i)...)
	},
	"cap": func(i *item) []big.Int { return append([]big.Int{negative(number(i.Cap))}, newestFirst(i)...) },
	"cost": func(i *item) []big.Int {
		most, least, cost := number(i.Cap), number(i.MinPrice), new(big.Int)
		cost.Mul(cost.Sub(&most, &least), big.NewInt(10000))
		return append([]big.Int{*cost.Quo(cost, &least)}, newestFirst(i)...)
	},
}

func order(a, b []big.Int) int {
	return slices.CompareFunc(a, b, func(a, b big.Int) int { return a.Cmp(&b) })
}

// listings are those with a lane, a term, an asset, or some of them, in a sort.
func (e *entities) listings(rng *rand.Rand) *list {
	sort := sortsOfListings[rng.IntN(len(sortsOfListings))]
	path, lane, token, term := "/listings?sort="+sort, "", "", uint32(0)
	if rng.IntN(2) == 0 {
		lane = contracts.LaneNames[rng.IntN(len(contracts.LaneNames))]
		path += "&lane=" + lane
	}
	if rng.IntN(2) == 0 {
		term = []uint32{contracts.ShortTerm, contracts.LongTerm}[rng.IntN(2)]
		path += fmt.Sprint("&term=", term)
	}
	if rng.IntN(6) == 0 {
		token = e.tokens[rng.IntN(len(e.tokens))]
		path += "&asset=" + token
	}
	return &list{path: path, field: "items", whole: "/listings?limit=200&sort=" + sort, order: ordersOfListings[sort], wants: func(i *item) bool {
		return (lane == "" || i.Lane == lane) && (term == 0 || i.Term == term) && (token == "" || i.Token == token)
	}}
}

// aList is a list that a client reads: half of the times it is of listings.
func (e *entities) aList(rng *rand.Rand) *list {
	if rng.IntN(2) == 0 {
		return e.listings(rng)
	}
	deal, wallet, token := e.deals[rng.IntN(len(e.deals))], e.wallets[rng.IntN(len(e.wallets))], e.tokens[rng.IntN(len(e.tokens))]
	state := contracts.DealStateNames[rng.IntN(len(contracts.DealStateNames))]
	inState := func(i *item) bool { return i.State == state }
	days := 1 + rng.IntN(20)
	all := []*list{
		{path: "/deals?", field: "items", whole: "/deals?limit=200", order: newestFirst},
		{path: "/deals?state=" + state, field: "items", whole: "/deals?limit=200", order: newestFirst, wants: inState},
		{path: "/deals?wallet=" + wallet, field: "items", whole: "/deals?limit=200&wallet=" + wallet, order: newestFirst},
		{path: "/deals?state=" + state + "&wallet=" + wallet, field: "items", whole: "/deals?limit=200&wallet=" + wallet, order: newestFirst, wants: inState},
		{path: "/deals/" + deal + "/bids?", field: "bids", whole: "/deals/" + deal + "/bids?limit=100"},
		{path: "/deals/" + deal + "/drips?", field: "drips", whole: "/deals/" + deal + "/drips?limit=100"},
		{path: "/assets?", field: "assets", whole: "/assets?limit=200"},
		{path: "/assets/" + token + "/deals?", field: "items", whole: "/assets/" + token + "/deals?limit=100"},
		{path: "/portfolio/" + wallet + "/bids?", field: "bids", whole: "/portfolio/" + wallet, order: newestFirst},
		{path: "/portfolio/" + wallet + "/balances?", field: "balances", whole: "/portfolio/" + wallet},
		{path: "/rewards/" + wallet + "/drips?", field: "drips", whole: "/rewards/" + wallet, order: newestFirst},
		{path: "/positions/" + wallet + "?", field: "positions", whole: "/positions/" + wallet},
		{path: "/wallet/" + wallet + "/positions?", field: "positions", whole: "/wallet/" + wallet + "/positions"},
		{path: "/burns?", field: "burns", whole: "/burns?limit=200"},
		{path: "/epochs?", field: "epochs", whole: "/epochs?limit=100"},
		{path: fmt.Sprint("/stats/history?days=", days), field: "days", whole: "/stats/history", last: days},
	}
	return all[rng.IntN(len(all))]
}

// walks has a client read a list page by page while a block comes, each page through any serving node.
func (r *run) walks(ctx context.Context, wg *sync.WaitGroup, servings []string, rng *rand.Rand) {
	if rng.IntN(walksEvery) > 0 {
		return
	}
	own := rand.New(rand.NewPCG(rng.Uint64(), 0))
	wg.Go(func() { r.walk(ctx, servings, r.oracle.aList(own), own) })
}

// walk is one of them. Half of the pages are as of the block of the page before, or of a later one. What is refused is not asked
// again.
func (r *run) walk(ctx context.Context, servings []string, l *list, rng *rand.Rand) {
	limit := []int{1, 2, 3, 5, 9, 25}[rng.IntN(6)]
	path := strings.TrimSuffix(l.path, "?")
	if l.last == 0 {
		path = withParam(path, fmt.Sprint("limit=", limit))
	}
	var seen *item // the last item so far
	var newest uint64
	for range pagesOfWalk {
		host := servings[rng.IntN(len(servings))]
		a, ok := r.answer(ctx, host, path, newest*uint64(rng.IntN(2)), true)
		if !ok || a.status == http.StatusNotFound {
			return
		}
		if a.status != http.StatusOK {
			r.found("other status: "+endpointOf(path), "GET %s of %s at block %s: %d: %.300s", path, host, a.number, a.status, a.body)
			return
		}
		items, more, err := itemsOf(a.body, l.field)
		if err != nil {
			r.found("other answer: "+endpointOf(path), "GET %s of %s: %v: %.300s", path, host, err, a.body)
			return
		}
		r.judgePage(host, path, a, l, items, more, seen, limit)
		if len(items) > 0 {
			seen = &items[len(items)-1]
		}
		if b := r.chain.rec.blocks[common.HexToHash(a.hash)]; b != nil {
			newest = b.header.Number.Uint64()
		}
		if path, err = nextPage(path, a.body); err != nil || path == "" {
			return
		}
	}
}

// judgePage judges a page: it is what follows the last item of those before, as one node says as of the page's block.
func (r *run) judgePage(host, path string, a reply, l *list, items []item, more bool, seen *item, limit int) {
	want, known := r.oracle.answers[a.hash][l.whole]
	if !known || want.status != http.StatusOK {
		return
	}
	whole, beyond, err := itemsOf(want.body, l.field)
	if err != nil {
		r.found("other answer: "+endpointOf(path), "the oracle's %s: %v", l.whole, err)
		return
	}
	if l.last > 0 {
		whole, limit = whole[max(0, len(whole)-l.last):], l.last
	}
	if l.wants != nil {
		whole = slices.DeleteFunc(whole, func(i item) bool { return !l.wants(&i) })
	}
	if l.order != nil {
		slices.SortFunc(whole, func(a, b item) int { return order(l.order(&a), l.order(&b)) })
	}
	if seen != nil {
		at := slices.IndexFunc(whole, func(i item) bool { return i.is(seen) })
		switch {
		case l.order != nil:
			whole = slices.DeleteFunc(whole, func(i item) bool { return order(l.order(&i), l.order(seen)) <= 0 })
		case at < 0:
			return // it is gone, and where it was is not known
		default:
			whole = whole[at+1:]
		}
	}
	if beyond && len(whole) <= limit {
		return
	}
	r.rmu.Lock()
	r.result.pages++
	r.rmu.Unlock()
	if page := whole[:min(limit, len(whole))]; !slices.EqualFunc(items, page, func(a, b item) bool { return a.text == b.text }) || more != (len(page) < len(whole)) {
		r.found("other page: "+endpointOf(path), "GET %s of %s at block %s: %s, more %t; want %s, more %t", path, host, a.number, texts(items), more, texts(page), len(page) < len(whole))
	}
}

// texts are the beginnings of items.
func texts(items []item) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d items", len(items))
	for i := range items {
		fmt.Fprintf(&b, " %.60s", items[i].text)
	}
	return b.String()
}
