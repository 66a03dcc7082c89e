package indexer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
	"go.uber.org/goleak"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
	"github.com/lienstream/lienstream/topics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// same compares JSON texts, whatever their spacing and the order of their fields.
func same(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %v in %s", what, err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: what is wanted is no JSON: %v", what, err)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestDealThroughItsLife(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	const now = start + 100
	m.block(now,
		listed(7, func(e *contracts.DealListed) { e.ListingExpiry = start + 500 }), // tx 1
		bid(7, 1, 1050, now+100, terms2),
		bid(7, 2, 900, now, terms1), // expires with this block
		bid(7, 3, 950, now+1, terms1),
		bid(7, 4, 1000, now+100, terms1),
		bid(7, 5, 1000, now+100, terms1), // as high, but later
		bid(7, 6, 1090, now+100, terms1), // withdrawn
		&contracts.BidWithdrawn{DealID: u(7), BidID: u(6), Lender: lender, Price: u(1090), At: now},
	)
	bidJSON := func(id, price, expiry uint64, state string, terms common.Hash) string {
		return fmt.Sprintf(`{"id":"%d","dealId":"7","lender":"0xde1d000000000000000000000000000000000002","price":"%d","expiry":%d,
			"state":%q,"placedAt":%d,"termsHash":%q,"tx":%q}`, id, price, expiry, state, start+id, terms, txOf(id+1))
	}
	const fixed = `"id":"7","borrower":"0xb0b0000000000000000000000000000000000001","kind":"ERC20",
		"token":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed","amountOrTokenId":"5000","cap":"1100","term":604800,
		"listingExpiry":1700000500,"minPrice":"1000","feeBps":50,
		"termsHash":"0x0000000000000000000000000000000000000000000000000000000000000001","lane":"STOCK","listedAt":1700000007`
	best := bidJSON(4, 1000, now+100, "OPEN", terms1)
	listedDeal := `{` + fixed + `,"lender":null,"price":null,"fee":null,"fundedAt":null,"expiry":null,"graceEnd":null,"state":"LISTED",
		"txs":{"listed":"` + txOf(1).Hex() + `","funded":null,"settled":null},"openBidCount":3,"bestBid":` + best + `}`
	bids := `[` + strings.Join([]string{
		bidJSON(1, 1050, now+100, "OPEN", terms2), bidJSON(2, 900, now, "OPEN", terms1), bidJSON(3, 950, now+1, "OPEN", terms1), best,
		bidJSON(5, 1000, now+100, "OPEN", terms1), bidJSON(6, 1090, now+100, "WITHDRAWN", terms1),
	}, ",") + `]`
	same(t, "listed", c.Get(t, "/deals/7").Body, `{"deal":`+listedDeal+`,"bids":`+bids+`,"reward":null}`)
	same(t, "its bids", c.Get(t, "/deals/7/bids").Body, `{"bids":`+bids+`,"nextCursor":null}`)
	type page struct {
		Bids       []json.RawMessage
		NextCursor string
	}
	var first, rest page
	c.Get(t, "/deals/7/bids?limit=1").Decode(t, &first)
	c.Get(t, "/deals/7/bids?cursor="+first.NextCursor).Decode(t, &rest)
	both, err := json.Marshal(append(first.Bids, rest.Bids...))
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Bids) != 1 || rest.NextCursor != "" {
		t.Errorf("%d bids on a page of one; after the rest %q", len(first.Bids), rest.NextCursor)
	}
	same(t, "its bids in two pages", both, bids)
	if r := c.Get(t, "/deals/8/bids"); r.Status != 404 || r.Header.Get("x-indexed-block") == "" {
		t.Errorf("bids of no deal: %d %s", r.Status, r.Body)
	}
	same(t, "in /listings", c.Get(t, "/listings").Body, `{"items":[`+listedDeal+`],"nextCursor":null}`)
	same(t, "in /deals", c.Get(t, "/deals").Body, `{"items":[`+listedDeal+`],"nextCursor":null}`)

	// One second on, bid 3 is expired; all of it is true as of the block, whatever the time here is.
	m.block(now + 1)
	if got := string(c.Get(t, "/listings").Body); !strings.Contains(got, `"openBidCount":2,`) {
		t.Errorf("a second later: %s", got)
	}
	// The listing expires: no longer in /listings, still in /deals, still LISTED.
	m.block(start + 500)
	if got := string(c.Get(t, "/listings").Body); !strings.Contains(got, `"id":"7"`) {
		t.Errorf("in its last second the listing is gone: %s", got)
	}
	m.block(start + 501)
	same(t, "expired", c.Get(t, "/listings").Body, `{"items":[],"nextCursor":null}`)
	if got := string(c.Get(t, "/deals?state=LISTED").Body); !strings.Contains(got, `"openBidCount":0,"bestBid":null`) {
		t.Errorf("expired: %s", got)
	}

	m.block(start+502, funded(7)) // tx 9
	m.block(start+503, &contracts.DealReclaimed{DealID: u(7), Borrower: borrower, Lender: lender, Repaid: u(1100), At: start + 503})
	same(t, "reclaimed", c.Get(t, "/deals?wallet=0xDE1D000000000000000000000000000000000002").Body, `{"items":[{`+fixed+`,
		"lender":"0xde1d000000000000000000000000000000000002","price":"1000","fee":"5","fundedAt":1700000050,"expiry":1700604850,
		"graceEnd":1700608450,"state":"RECLAIMED","txs":{"listed":"`+txOf(1).Hex()+`","funded":"`+txOf(9).Hex()+`","settled":"`+txOf(10).Hex()+`"},
		"openBidCount":0,"bestBid":null}],"nextCursor":null}`)
}

func TestTermsEditedAfterTheBids(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	m.block(start+1, listed(1), bid(1, 1, 900, start+99, terms1), bid(1, 2, 800, start+99, terms2))
	for _, want := range []struct{ id, count string }{{"1", "1"}, {"2", "1"}} {
		if got := string(c.Get(t, "/deals").Body); !strings.Contains(got, `"openBidCount":`+want.count+`,"bestBid":{"id":"`+want.id+`"`) {
			t.Errorf("bid %s should be the best of %s: %s", want.id, want.count, got)
		}
		m.block(start+2, &contracts.DealTermsUpdated{DealID: u(1), Cap: u(1100), MinPrice: u(1000), Term: week, TermsHash: terms2})
	}
}

func TestAssets(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	plain := common.HexToAddress("0x01")
	now, paused := uint64(start+10), true
	effective := now + 5
	m.block(now,
		asset(token, contracts.LaneStock),
		&topics.Probe{Token: token, UIMultiplier: uint256.NewInt(1), NewUIMultiplier: uint256.NewInt(2), EffectiveAt: &effective, Paused: &paused},
		&contracts.OpenRawChanged{Token: token, OpenRaw: u(77)},
		asset(plain, contracts.LaneMeme),
	)
	common := func(token, lane, open string) string {
		return `{"token":"` + token + `","symbol":"NVDA","name":"NVIDIA \"tokenised\" <stock>","decimals":18,"lane":"` + lane + `","allowed":true,
			"minAmount":"1","maxDealRaw":"1000","maxOpenRaw":"10000","openRaw":"` + open + `",`
	}
	plainJSON := common("0x0000000000000000000000000000000000000001", "MEME", "0") +
		`"uiMultiplier":null,"pendingMultiplier":null,"effectiveAt":null,"paused":null}`
	stock := common("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", "STOCK", "77")
	tail := `,"effectiveAt":` + strconv.FormatUint(effective, 10) + `,"paused":true}`

	same(t, "announced", c.Get(t, "/assets").Body,
		`{"assets":[`+plainJSON+`,`+stock+`"uiMultiplier":"1","pendingMultiplier":"2"`+tail+`],"nextCursor":null}`)
	m.block(effective - 1)
	same(t, "a second before", c.Get(t, "/assets?lane=STOCK").Body,
		`{"assets":[`+stock+`"uiMultiplier":"1","pendingMultiplier":"2"`+tail+`],"nextCursor":null}`)
	m.block(effective)
	same(t, "in force", c.Get(t, "/assets?lane=STOCK").Body,
		`{"assets":[`+stock+`"uiMultiplier":"2","pendingMultiplier":null`+tail+`],"nextCursor":null}`)
	same(t, "by lane", c.Get(t, "/assets?lane=MEME").Body, `{"assets":[`+plainJSON+`],"nextCursor":null}`)
	same(t, "none", c.Get(t, "/assets?lane=ETH").Body, `{"assets":[],"nextCursor":null}`)
}

func TestEveryResponseNamesItsBlock(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	m.block(start+1, listed(1))
	for _, target := range []string{
		"/", "/listings", "/deals", "/deals/1", "/deals/2", "/assets", "/health/indexer", "/openapi.json", "/openapi.yaml",
		"/nowhere", "/deals/x", "/listings?limit=0",
	} {
		h := c.Get(t, target).Header
		if h.Get("x-indexed-block") != "2" || h.Get("x-indexed-block-hash") != m.at.Hash.Hex() || h.Get("x-chain-id") != "4663" || h.Get("etag") == "" {
			t.Errorf("%s: %v", target, h)
		}
	}
	// A later block without a change: the same tag, and the block that the caller's copy is now true as of.
	tag := c.Get(t, "/listings").Header.Get("etag")
	m.block(start + 2)
	if r := c.Get(t, "/listings", "If-None-Match", tag); r.Status != 304 || r.Header.Get("x-indexed-block") != "3" {
		t.Errorf("unchanged: %d %v", r.Status, r.Header)
	}
	m.block(start+3, listed(2))
	if r := c.Get(t, "/listings", "If-None-Match", tag); r.Status != 200 {
		t.Errorf("changed: %d", r.Status)
	}
}

func TestNobodyCanAnswer(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	m.set(func(m *market) { m.gone = true })
	for _, target := range []string{"/listings", "/deals", "/deals/1", "/assets", "/health/indexer"} {
		r := c.Get(t, target)
		if code, _ := r.Error(t); r.Status != 503 || code != "UPSTREAM_UNAVAILABLE" || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", target, r.Status, code)
		}
	}
	for target, status := range map[string]int{"/": 200, "/openapi.json": 200, "/listings?limit=0": 400, "/nowhere": 404} {
		if r := c.Get(t, target); r.Status != status || r.Header.Get("x-indexed-block") != "" {
			t.Errorf("%s: %d %v", target, r.Status, r.Header)
		}
	}
}

func TestHealth(t *testing.T) {
	m := newMarket(t)
	x := m.indexer()
	c := apitest.NewClient(t, x, description)
	for _, f := range []struct {
		name   string
		change func(m *market)
		cfg    func(c *Config)
		ok     bool
		lag    uint64
	}{
		{"fresh", func(*market) {}, nil, true, 0},
		{"at the limit", func(m *market) { m.latest = m.at.Number + 300 }, nil, true, 300},
		{"behind", func(m *market) { m.latest = m.at.Number + 301 }, nil, false, 301},
		{"sighting behind the index", func(m *market) { m.latest = 0 }, nil, true, 0},
		{"not seen for long", func(m *market) { m.observed = time.Now().Add(-31 * time.Second) }, nil, false, 0},
		{"old block", func(*market) {}, func(c *Config) { c.MaxBlockAge = time.Minute }, false, 0},
	} {
		m.set(func(m *market) { m.latest, m.observed = m.at.Number, time.Now(); f.change(m) })
		x.cfg = testConfig()
		if f.cfg != nil {
			f.cfg(&x.cfg)
		}
		r := c.Get(t, "/health/indexer")
		if (r.Status == 200) != f.ok || (r.Header.Get("Retry-After") == "") != f.ok {
			t.Errorf("%s: %d %v", f.name, r.Status, r.Header)
		}
		same(t, f.name, r.Body, fmt.Sprintf(`{"ok":%v,"chainId":4663,"latestBlock":%d,"indexedBlock":1,"lagBlocks":%d}`, f.ok, 1+f.lag, f.lag))
		if r := c.Get(t, "/listings"); r.Status != 200 {
			t.Errorf("%s: answers stop with %d", f.name, r.Status)
		}
	}
}

type dealPage struct {
	Items      []struct{ ID string }
	NextCursor *string
}

func ids(t testing.TB, r *apitest.Response) string {
	t.Helper()
	var p dealPage
	r.Decode(t, &p)
	all := make([]string, len(p.Items))
	for i := range p.Items {
		all[i] = p.Items[i].ID
	}
	return strings.Join(all, " ")
}

func TestSortsAndFilters(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	other := common.HexToAddress("0xaa")
	m.block(start+10,
		listed(1, func(e *contracts.DealListed) { e.Cap, e.ListingExpiry = u(1500), start+900 }),
		listed(2, func(e *contracts.DealListed) { e.Cap, e.Lane, e.ListedAt = u(1100), contracts.LaneMeme, start+1 }),
		listed(3, func(e *contracts.DealListed) { e.Cap, e.Term, e.ListingExpiry = u(1500), 3*week, start+800 }),
		listed(4, func(e *contracts.DealListed) { e.Cap, e.MinPrice, e.Token = u(9000), u(8999), other }),
		listed(5, func(e *contracts.DealListed) { e.ListingExpiry = start + 9 }), // expired
		listed(6), funded(6), // no longer listed
	)
	for target, want := range map[string]string{
		"/listings":                       "4 3 2 1", // 1 and 2 were listed in the same second
		"/listings?sort=newest":           "4 3 2 1",
		"/listings?sort=expiry":           "3 1 4 2", // open-ended last
		"/listings?sort=cap":              "4 3 1 2",
		"/listings?sort=cost":             "4 2 3 1",
		"/listings?lane=MEME":             "2",
		"/listings?lane=STOCK&sort=cap":   "4 3 1",
		"/listings?term=1814400":          "3",
		"/listings?term=604800&sort=cost": "4 2 1",
		"/listings?term=1":                "",
		"/listings?asset=" + other.Hex():  "4",
		"/listings?asset=" + strings.ToLower(other.Hex()) + "&lane=MEME": "",
		"/deals":              "6 5 4 3 2 1",
		"/deals?state=LISTED": "5 4 3 2 1",
		"/deals?state=FUNDED": "6",
		"/deals?wallet=" + strings.ToLower(lender.Hex()):                           "6",
		"/deals?state=LISTED&wallet=" + strings.ToLower(borrower.Hex()):            "5 4 3 2 1",
		"/deals?state=CLAIMED&wallet=0x" + strings.ToUpper(borrower.Hex()[2:]):     "",
		"/deals?wallet=0x0000000000000000000000000000000000000000&state=CANCELLED": "",
	} {
		if got := ids(t, c.Get(t, target)); got != want {
			t.Errorf("%s: deals %s, want %s", target, got, want)
		}
	}
}

// TestPagesAreStable walks through lists while deals come and go between the pages: what stayed is
// returned exactly once, and in order.
func TestPagesAreStable(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newMarket(t)
	c := m.serve()
	lanes := []string{"STOCK", "ETH", "MEME"}
	next, live := uint64(1), map[string]string{} // ID → lane
	list := func() contracts.Event {
		lane := rng.IntN(len(lanes))
		live[strconv.FormatUint(next, 10)] = lanes[lane]
		next++
		return listed(next-1, func(e *contracts.DealListed) {
			e.Lane, e.Cap, e.ListedAt = contracts.Lane(lane), u(1000+rng.Uint64N(5)), start+rng.Uint64N(5)
			e.ListingExpiry = []uint64{0, 1 << 39, 1<<39 + 1}[rng.IntN(3)]
		})
	}
	cancel := func() contracts.Event {
		id := slices.Sorted(maps.Keys(live))[rng.IntN(len(live))]
		delete(live, id)
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return &contracts.DealCancelled{DealID: u(n), Borrower: borrower}
	}
	for range 100 {
		m.block(start, list())
	}
	for range 40 {
		lane := lanes[rng.IntN(len(lanes))]
		target := fmt.Sprintf("%s&limit=%d", []string{
			"/listings?sort=newest&lane=" + lane, "/listings?sort=expiry&lane=" + lane, "/listings?sort=cap&lane=" + lane,
			"/listings?sort=cost&lane=" + lane, "/deals?state=LISTED", "/listings?sort=cap",
		}[rng.IntN(6)], 1+rng.IntN(12))
		stayed := maps.Clone(live)
		if strings.Contains(target, "lane=") {
			maps.DeleteFunc(stayed, func(_, l string) bool { return l != lane })
		}
		seen := map[string]int{}
		for cursor := ""; ; {
			var p dealPage
			c.Get(t, target+cursor).Decode(t, &p)
			for _, item := range p.Items {
				seen[item.ID]++
			}
			if p.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + *p.NextCursor
			for range rng.IntN(3) {
				m.block(start, list(), cancel())
				maps.DeleteFunc(stayed, func(id, _ string) bool { return live[id] == "" })
			}
		}
		for id := range stayed {
			if seen[id] != 1 {
				t.Errorf("%s: deal %s stayed and was returned %d times", target, id, seen[id])
			}
		}
		for id, n := range seen {
			if n > 1 {
				t.Errorf("%s: deal %s was returned %d times", target, id, n)
			}
		}
	}
}

func TestListenAndDrain(t *testing.T) {
	m := newMarket(t)
	x := m.indexer()
	if x.Ready(t.Context()) == nil {
		t.Error("ready before it listens")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+x.Addr()+"/listings", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != `{"items":[],"nextCursor":null}` {
		t.Errorf("%s, %v", body, err)
	}
	_ = resp.Body.Close()
	client.CloseIdleConnections()
	m.set(func(m *market) { m.latest += 1000 })
	if x.Ready(t.Context()) == nil {
		t.Error("ready though far behind")
	}
	m.set(func(m *market) { m.latest, m.observed = m.latest-1000, time.Now().Add(-time.Hour) })
	if err := x.Ready(t.Context()); err != nil {
		t.Errorf("while it serves, the head seen an hour ago: %v", err)
	}
	m.set(func(m *market) { m.latest += 1000 })
	if err := x.Ready(t.Context()); err != nil {
		t.Errorf("withdrawn, as all other nodes would be: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestConfigFaultsAreAllNamed(t *testing.T) {
	err := (&Config{MaxBlockAge: -1}).Validate()
	for _, want := range []string{"chain-id", "max-head-age", "indexed block", "read timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no fault of %q in: %v", want, err)
		}
	}
}

// TestBeforeTheFirstBlock: nothing is known yet, which is not the same as nothing being there.
func TestBeforeTheFirstBlock(t *testing.T) {
	m := unstarted(t, deployed)
	c := m.serve()
	var paths []string
	for path := range operations(t) {
		switch path {
		case "/", "/docs", "/openapi.json", "/openapi.yaml", "/pipeline", "/health/indexer", "/stream": // which waits
		default:
			paths = append(paths, concrete(path))
		}
	}
	for _, path := range paths {
		r := c.Get(t, path)
		if code, _ := r.Error(t); r.Status != 503 || code != "STALE_INDEXER" || r.Header.Get("Retry-After") != "1" || r.Header.Get("X-Indexed-Block") != "" {
			t.Errorf("%s: %d %s %v", path, r.Status, code, r.Header)
		}
	}
	if r := c.Get(t, "/health/indexer"); r.Status != 503 {
		t.Errorf("/health/indexer: %d %s", r.Status, r.Body)
	}
	m.block(start)
	for _, path := range paths {
		if r := c.Get(t, path); r.Status == 503 {
			t.Errorf("%s after a block: %s", path, r.Body)
		}
	}
}

// TestMinBlock: an answer is as of the block that the caller has seen, or it says that it is not there yet.
func TestMinBlock(t *testing.T) {
	m := newMarket(t)
	m.block(start, listed(1))
	c := m.serve()
	next := m.at.Number + 1
	path := fmt.Sprintf("/deals/1?minBlock=%d", next)
	for _, target := range []string{path, fmt.Sprintf("/listings?minBlock=%d", next), fmt.Sprintf("/stats?minBlock=%d", next)} {
		r := c.Get(t, target)
		if code, _ := r.Error(t); r.Status != 503 || code != "STALE_INDEXER" || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s before its block: %d %s", target, r.Status, r.Body)
		}
	}
	if r := c.Get(t, fmt.Sprintf("/deals/1?minBlock=%d", next-1)); r.Status != 200 {
		t.Errorf("at the block: %d %s", r.Status, r.Body)
	}
	m.block(start + 1)
	if r := c.Get(t, path); r.Status != 200 || r.Header.Get("X-Indexed-Block") != fmt.Sprint(next) {
		t.Errorf("after the block: %d %v", r.Status, r.Header)
	}
}
