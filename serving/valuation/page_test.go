package valuation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// TestPageShowsAssetsAndRange: an asset that is chosen has its price line and, of a meme token, its facts; the pool has
// the suggested range, drawn over its liquidity.
func TestPageShowsAssetsAndRange(t *testing.T) {
	ctx := apitest.Browser(t)
	w := newWorld(t)
	by := w.deployer()
	eligible, _ := w.listMeme(by, by.address)
	page := w.page()
	var facts factsBody
	w.get("/assets/"+w.dep.TKN.Hex()+"/facts", &facts)
	choose := func(token string) chromedp.Action {
		return chromedp.Evaluate(`{ const s = document.querySelector('select[name="asset"]'); s.value = "`+token+`"; s.dispatchEvent(new Event("change")); }`, nil)
	}
	if facts.Holders == nil || *facts.Holders == 0 || facts.Eligible {
		t.Fatalf("%+v", facts)
	}
	const side = `document.querySelector(".side")`
	apitest.Drive(t, ctx, "a meme token", chromedp.Navigate(page+"/#/"), chromedp.WaitReady(`select[name="asset"] option:nth-child(2)`, chromedp.ByQuery),
		choose(lower(w.dep.TKN)), apitest.Until(side+`.querySelector('[aria-label="Price"] .chart svg') !== null`),
		apitest.Until(side+`.querySelector("[data-eligible=false]") !== null && `+side+`.textContent.includes(`+strconv.Quote(facts.ListingNote)+`)`),
		apitest.Until(`[...`+side+`.querySelectorAll("dt")].find(d => d.textContent === "Can be sold again").nextSibling.textContent === "yes"`),
		apitest.Until(`[...`+side+`.querySelectorAll("dt")].find(d => d.textContent === "Holders").nextSibling.textContent === "`+strconv.FormatUint(*facts.Holders, 10)+`"`))
	w.get("/assets/"+eligible.Hex()+"/facts", &facts)
	apitest.Drive(t, ctx, "an eligible one", choose(lower(eligible)),
		apitest.Until(side+`.querySelector("[data-eligible=true]") !== null && `+side+`.textContent.includes(`+strconv.Quote(facts.ListingNote)+`)`),
		apitest.Until(`![...`+side+`.querySelectorAll("dd")].some(d => d.textContent === "unknown")`))
	var stock string
	for token, a := range w.state().assets {
		if strings.HasPrefix(a.Symbol, "ACME") {
			stock = lower(token)
		}
	}
	apitest.Drive(t, ctx, "a stock has no facts", choose(stock), apitest.Until(side+`.querySelector("h2")?.textContent === "ACME"`),
		apitest.Until(side+`.querySelector('[aria-label="Price"] .chart svg') !== null && `+side+`.querySelector('[aria-label="Facts"]') === null`))

	var suggested rangeBody
	w.get("/range/suggest?term=604800&pool="+w.dep.PoolID.Hex(), &suggested)
	r := suggested.Recommended
	apitest.Drive(t, ctx, "the pool's range", chromedp.Evaluate(`location.hash = "#/pool"`, nil),
		apitest.Until(fmt.Sprintf(`document.querySelector(".pool .worth b")?.textContent === "%d to %d"`, r.TickLower, r.TickUpper)),
		// The range is a third of what is drawn, in the middle.
		apitest.Until(`(() => { const b = document.querySelector(".pool .worth .band"); return b !== null && Math.abs(b.getAttribute("x") - 200) < 1 && Math.abs(b.getAttribute("width") - 200) < 1; })()`),
		chromedp.Navigate("about:blank"))
}

// TestDistribution: the segments of a pool are its liquidity, tick for tick, and those at the price are the pool's own.
func TestDistribution(t *testing.T) {
	w := newWorld(t)
	for _, p := range w.state().pools {
		var b distributionBody
		w.get("/pools/"+p.ID.Hex()+"/liquidity", &b)
		here := slices.IndexFunc(b.Segments, func(s segmentBody) bool { return s.TickLower <= p.Tick && p.Tick < s.TickUpper })
		if here < 0 || b.Segments[here].Liquidity != p.Liquidity.Dec() || b.Tick != p.Tick {
			t.Errorf("pool %s at %d with %s: %+v", p.ID, p.Tick, &p.Liquidity, b)
		}
		if got, want := len(b.Segments), len(p.Ticks)-1; got != want {
			t.Errorf("pool %s has %d segments between %d ticks", p.ID, got, want+1)
		}
		for i := 1; i < len(b.Segments); i++ {
			if b.Segments[i].TickLower != b.Segments[i-1].TickUpper {
				t.Errorf("pool %s: a gap before %+v", p.ID, b.Segments[i])
			}
		}
	}
	var many []ammv4.Tick
	for i := range int32(1000) {
		many = append(many, ammv4.Tick{Index: i * 10})
	}
	if some := distribution(uint256.Int{}, many, 5005); len(some) != maxSegments || some[0].TickLower != 5000-1280 {
		t.Errorf("%d segments, from %d on", len(some), some[0].TickLower)
	}
	if none := distribution(uint256.Int{}, nil, 0); len(none) != 0 {
		t.Errorf("segments without a tick: %v", none)
	}
}

// TestPricesOfAnAsset: the last price is that of the pool, those before it are of the ends of hours, one by one.
func TestPricesOfAnAsset(t *testing.T) {
	w := newWorld(t)
	w.mine(1800)
	w.mine(3600)
	st := w.state()
	for _, p := range st.pools {
		token, ok := p.other(w.dep.USDG)
		if !ok {
			continue
		}
		var b pricesBody
		w.get("/assets/"+token.Hex()+"/prices", &b)
		root, err := ammv4.SqrtPriceAtTick(p.Tick)
		if err != nil {
			t.Fatal(err)
		}
		q, err := st.reference(token)
		if err != nil {
			t.Fatal(err)
		}
		want := priceAt(root)
		if token == p.Currency1 {
			if root, err = ammv4.SqrtPriceAtTick(-p.Tick); err != nil {
				t.Fatal(err)
			}
			want = priceAt(root)
		}
		if last := b.Prices[len(b.Prices)-1]; last.At != st.at.Timestamp || last.PriceUSDG != q.text(want) || len(b.Prices) < 2 {
			t.Errorf("%s: %+v, want %s at %d", token, b.Prices, q.text(want), st.at.Timestamp)
		}
		for i := 1; i < len(b.Prices); i++ {
			last := i == len(b.Prices)-1
			if gap := b.Prices[i].At - b.Prices[i-1].At; b.Prices[i-1].At%hour != 0 || !last && gap != hour || last && (gap == 0 || gap > hour) {
				t.Errorf("%s: %d s after the price at %d", token, gap, b.Prices[i-1].At)
			}
		}
	}
}
