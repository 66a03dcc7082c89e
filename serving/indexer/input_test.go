package indexer

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// wrongValues is every way that the spec and the decisions name for a value of a parameter to be wrong.
var wrongValues = map[string][]string{
	"lane":  {"stock", "Stock", "STOCKS", "0", "STOCK,ETH", " STOCK", "STOCK ", "ERC20", "LISTED", "null", "*"},
	"state": {"listed", "OPEN", "1", "LISTED,FUNDED", "LISTED ", "null", "*"},
	"sort":  {"NEWEST", "Newest", "price", "-cap", "cap,cost", "cap desc", "0", "null"},
	"term":  {"0", "-604800", "+604800", "604800.0", "6e5", "0x93a80", "0604800", "7d", "4294967296", "18446744073709551616", "١"},
	"limit": {"0", "-1", "+1", "201", "1000", "1.0", "1e2", "0x10", "05", "ten", "9223372036854775808", "99999999999999999999999", "٥"},
	"id": {
		"-1", "+1", "1.0", "1e3", "0x1", "01", "abc", "1%201", "%20", "%00", "null", "deal:1", "%EF%BC%91", "1,2",
		"115792089237316195423570985008687907853269984665640564039457584007913129639936", strings.Repeat("9", 79), strings.Repeat("9", 5000),
	},
	"wallet": wrongAddresses, "address": wrongAddresses, "asset": wrongAddresses, "token": wrongAddresses,
	"with":     {"Pipeline", "1", "true", "pipeline,pool", "null", "*"},
	"days":     {"0", "367", "-1", "+1", "1.0", "1e2", "0x10", "05", " 1", "week", "9223372036854775808", "٥"},
	"minBlock": {"x", "-1", "01", "1.5", "0x1", " 1", "18446744073709551616"},
	"cursor":   {"x", "null", "0", "AAAA", "=", "%20", "../..", strings.Repeat("A", 385), strings.Repeat("A", 5000), "%ff"},
}

var wrongAddresses = []string{
	"0x", "0", "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beae", "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed0",
	"5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", "0X5aaeb6053f3e94c9b9a09f33669435e7ef1beaed",
	"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaeg", " 0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed",
	"0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", // checksum
	"vitalik.eth", "null", strings.Repeat("a", 5000),
}

func TestWrongParameters(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	m.block(start+1, listed(1), listed(2), asset(token, contracts.LaneStock))
	for path, parameters := range operations(t) {
		for _, name := range parameters {
			if wrongValues[name] == nil {
				t.Fatalf("%s: nothing wrong is known of parameter %s", path, name)
			}
		}
		target := concrete(path)
		refuse := func(target, code, name string) {
			t.Helper()
			r := c.Get(t, target)
			got, message := r.Error(t)
			if r.Status != 400 || got != code || !strings.HasPrefix(message, `"`+name+`" `) {
				t.Errorf("%.200s: %d %s %q, want %s of %q", target, r.Status, got, message, code, name)
			}
		}
		for _, name := range parameters {
			code := "INVALID_INPUT"
			if name == "cursor" {
				code = "INVALID_CURSOR"
			}
			if strings.Contains(path, "{"+name+"}") {
				for _, value := range wrongValues[name] {
					refuse(strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value)), "INVALID_INPUT", name)
				}
				continue
			}
			for _, value := range append(wrongValues[name], "") {
				if !strings.Contains(value, "%") {
					value = url.QueryEscape(value)
				}
				refuse(target+"?"+name+"="+value, code, name)
			}
			refuse(target+"?"+name, code, name)                                    // no value at all
			refuse(target+"?"+name+"=%zz", "INVALID_INPUT", name)                  // broken encoding
			refuse(target+"?"+name+"=1&"+name+"=1", "INVALID_INPUT", name)         // repeated
			refuse(target+"?"+name+"=1&"+escaped(name)+"=", "INVALID_INPUT", name) // repeated under another spelling
			refuse(target+"?"+strings.ToUpper(name)+"=1", "INVALID_INPUT", strings.ToUpper(name))
			refuse(target+"?"+name+"[]=1", "INVALID_INPUT", name+"[]")
		}
		if path == "/" {
			continue // whose link may have anything added
		}
		// Of all parameters that there are, those of other endpoints are unknown here.
		for name := range wrongValues {
			if !slices.Contains(parameters, name) || strings.Contains(path, "{"+name+"}") {
				refuse(target+"?"+name+"=1", "INVALID_INPUT", name)
			}
		}
		refuse(target+"?"+url.QueryEscape("x\"\n<é>")+"=1", "INVALID_INPUT", `x\"\n<é>`)
	}
}

// escaped spells a name in percent-encoding.
func escaped(name string) string {
	var b strings.Builder
	for i := range len(name) {
		fmt.Fprintf(&b, "%%%02x", name[i])
	}
	return b.String()
}

func TestCursorsOfOtherLists(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	everything(m)
	other := common.HexToAddress("0x70c0000000000000000000000000000000000007")
	block := []any{
		asset(other, contracts.LaneStock), listed(3), listed(4), funded(2),
		&contracts.EpochOpened{N: 2, StartsAt: start + week, EndsAt: start + 2*week},
	}
	for id := range uint64(2) {
		block = append(block, listed(5+id, func(e *contracts.DealListed) { e.Token = other }), funded(5+id))
	}
	for id, owner := range map[uint64]common.Address{10: borrower, 11: lender, 12: lender} {
		block = append(block,
			&contracts.LiquidityModified{PoolID: m.dep.PoolID, Sender: m.dep.PositionManager, TickLower: -600, TickUpper: 600, LiquidityDelta: u(1), Salt: common.Hash{31: byte(id)}},
			&contracts.PositionTransferred{To: owner, TokenID: u(id)},
			&contracts.PositionStaked{PoolID: m.dep.PoolID, TokenID: u(id + 10), Owner: owner, TickLower: -600, TickUpper: 600, Liquidity: u(1), InRange: true, At: start + 251})
	}
	m.block(start+251, block...)
	// A list, and the same with one filter or sort changed: no cursor of one is good for another.
	lists := []string{
		"/listings?sort=newest", "/listings?sort=cap", "/listings?sort=cost&lane=STOCK", "/listings?lane=STOCK", "/listings?term=604800",
		"/listings?asset=0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", "/deals?", "/deals?state=LISTED",
		"/deals?wallet=0xb0b0000000000000000000000000000000000001", "/assets?", "/assets?lane=STOCK",
		"/positions/" + borrowerText + "?", "/positions/" + lenderText + "?",
		"/wallet/" + borrowerText + "/positions?", "/wallet/" + lenderText + "/positions?",
		"/assets/0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed/deals?", "/assets/0x70c0000000000000000000000000000000000007/deals?", "/epochs?",
	}
	cursors := make([]string, len(lists))
	for i, list := range lists {
		var p struct{ NextCursor string }
		c.Get(t, list+"&limit=1").Decode(t, &p)
		if p.NextCursor == "" {
			t.Fatalf("%s has one page", list)
		}
		cursors[i] = p.NextCursor
	}
	for i, list := range lists {
		for j, cursor := range cursors {
			r := c.Get(t, list+"&cursor="+cursor)
			if i == j {
				if r.Status != 200 {
					t.Errorf("%s with its own cursor: %d", list, r.Status)
				}
				continue
			}
			if code, _ := r.Error(t); r.Status != 400 || code != "INVALID_CURSOR" {
				t.Errorf("%s with the cursor of %s: %d %s", list, lists[j], r.Status, code)
			}
		}
		for at := range len(cursors[i]) {
			tampered := []byte(cursors[i])
			tampered[at] = "AB"[min(1, strings.Count(string(tampered[at]), "A"))]
			if r := c.Get(t, list+"&cursor="+string(tampered)); r.Status != 400 {
				t.Errorf("%s with byte %d of its cursor changed: %d", list, at, r.Status)
			}
		}
	}
}

// generator derives requests from the description, over a market with something in it.
func generator(t testing.TB, m *market, c *apitest.Client) *apitest.Generator {
	t.Helper()
	everything(m)
	m.block(start+251, listed(3), listed(4))
	values := map[string][]string{
		"id": {"1", "2", "3", "4"}, "wallet": {borrower.Hex(), lender.Hex()}, "address": {borrower.Hex()}, "asset": {token.Hex()}, "token": {token.Hex()}, "term": {"604800"}, "limit": {"1", "200"}, "minBlock": {"0", "1"},
	}
	for _, list := range []string{"/listings?limit=1", "/deals?limit=1", "/listings?limit=1&sort=cap"} {
		var p struct{ NextCursor string }
		c.Get(t, list).Decode(t, &p)
		values["cursor"] = append(values["cursor"], p.NextCursor)
	}
	return &apitest.Generator{Document: c.Document, Values: values, MaxBody: 16 << 10}
}

// try sends a request: the client fails whatever is not described; here a 500, which is described, and a
// request that the description refuses and the service does not.
func try(t *testing.T, c *apitest.Client, r apitest.Request) int {
	t.Helper()
	answer := c.Do(t, r.Request)
	if answer.Status == http.StatusInternalServerError {
		t.Fatalf("%s %s: %s", r.Method, r.URL, answer.Body)
	}
	adds := r.URL.Path == "/" && answer.Status < http.StatusBadRequest // a page's link may have anything added
	if r.Wrong && answer.Status != http.StatusBadRequest && !adds {
		t.Fatalf("%s %s is wrong by the description and was answered %d: %s", r.Method, r.URL, answer.Status, answer.Body)
	}
	return answer.Status
}

func TestRequestsFromTheDescription(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := newMarket(t)
	c := m.serve()
	g := generator(t, m, c)
	rng := rand.New(rand.NewPCG(seed, 0))
	met := make(map[int]int)
	missing := func() (statuses []int) {
		for _, status := range []int{200, 204, 304, 400, 404, 405, 413} {
			if met[status] == 0 {
				statuses = append(statuses, status)
			}
		}
		return statuses
	}
	for sent := 0; sent < 3000 || len(missing()) > 0; sent++ {
		if sent == 100_000 {
			t.Fatalf("no request was answered %v, of %v", missing(), met)
		}
		met[try(t, c, g.Next(rng, "extra"))]++
	}
}

func FuzzRequests(f *testing.F) {
	m := newMarket(f)
	c := m.serve()
	g := generator(f, m, c)
	for seed, extra := range []string{"", "0", "NEWEST", "%00", "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", "a&b", "\xff", "é"} {
		f.Add(uint64(seed), extra)
	}
	f.Fuzz(func(t *testing.T, seed uint64, extra string) {
		try(t, c, g.Next(rand.New(rand.NewPCG(seed, 1)), extra))
	})
}

// BenchmarkListings is a page of 50 without a connection: what the service costs beside net/http.
func BenchmarkListings(b *testing.B) {
	m := newMarket(b)
	for id := range uint64(200) {
		m.block(start+id, listed(id+1), bid(id+1, id+1, 900, start+9999, terms1))
	}
	x := m.indexer()
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/listings", http.NoBody)
	b.ReportAllocs()
	for b.Loop() {
		w := &sink{header: make(http.Header, 16)}
		x.ServeHTTP(w, r)
		b.SetBytes(int64(w.n))
	}
}

type sink struct {
	header http.Header
	n      int
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(int)     {}
func (s *sink) Write(p []byte) (int, error) {
	s.n += len(p)
	return io.Discard.Write(p)
}
