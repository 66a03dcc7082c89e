package indexer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// rows is the deals of the listings, in order.
const rows = `[...document.querySelectorAll(".listings tbody tr")].map(r => r.dataset.key).join(" ")`

func TestPageFollowsTheMarket(t *testing.T) {
	ctx := apitest.Browser(t)
	m := newMarket(t)
	everything(m)
	_, url := live(t, m)

	apitest.Drive(t, ctx, "listings", chromedp.Navigate(url), apitest.Until(rows+` === "2"`), apitest.Until(`document.getElementById("live").dataset.state === "live"`))
	m.block(start+251, listed(3))
	apitest.Drive(t, ctx, "a new listing", apitest.Until(rows+` === "3 2"`), apitest.Until(`document.getElementById("live-block").textContent === "5"`))
	m.block(start+252, bid(3, 7, 900, start+9999, terms1))
	apitest.Drive(t, ctx, "a bid", apitest.Until(`document.querySelector('[data-key="3"] [data-label="Best bid"]').textContent === "<0.01 ×1"`))
	m.land(2, start+251, listed(4)) // the blocks of deal 3 are reverted
	apitest.Drive(t, ctx, "a reorg", apitest.Until(rows+` === "4 2"`))
	m.block(start+253, &contracts.DealCancelled{DealID: u(4), Borrower: borrower, At: start + 253})
	apitest.Drive(t, ctx, "a cancelled deal leaves", apitest.Until(rows+` === "2"`))

	// By keyboard: to the listing, into the deal, out again.
	apitest.Drive(t, ctx, "into the deal", chromedp.Evaluate(`document.querySelector(".listings a").focus()`, nil), chromedp.KeyEvent("\r"),
		apitest.Until(`location.hash === "#/deal/2" && document.querySelector(".deal h2")?.textContent.includes("#2")`),
		apitest.Until(`document.querySelector(".deal table")?.textContent.includes("best")`))
	apitest.Drive(t, ctx, "out again", chromedp.KeyEvent("\x1b"), apitest.Until(`location.hash === "#/" && document.activeElement.getAttribute("href") === "#/deal/2"`))
	apitest.Drive(t, ctx, "to a wallet", chromedp.KeyEvent("/"), apitest.Until(`document.activeElement.id === "query"`), chromedp.Evaluate(`document.getElementById("query").value = ""`, nil), // the driver types the key that was taken
		chromedp.KeyEvent(borrowerText), chromedp.KeyEvent("\r"), apitest.Until(`location.hash.startsWith("#/wallet/")`))
	apitest.Drive(t, ctx, "the wallet",
		apitest.Until(`document.querySelector(".wallet h1") && document.querySelectorAll(".wallet section").length >= 5`),
		apitest.Until(`document.querySelector(".tiles").textContent.includes("Claimable")`))
	apitest.Drive(t, ctx, "a funded deal has its drips", chromedp.Evaluate(`location.hash = "#/deal/1"`, nil),
		apitest.Until(`document.querySelectorAll(".deal .drips li .curve").length === 2 && document.querySelectorAll(".timeline li").length === 4`))
	apitest.Drive(t, ctx, "its transactions are on the explorer, and can be copied",
		apitest.Until(`document.querySelectorAll('.timeline a[href^="https://explorer.example/tx/0x"][rel="noreferrer"]').length >= 2`),
		apitest.Until(`document.querySelectorAll(".timeline .copy").length >= 2`))
	apitest.Drive(t, ctx, "pool", chromedp.Evaluate(`location.hash = "#/pool"`, nil),
		apitest.Until(`document.querySelector(".pool .chart svg") && document.querySelector(".pool .budgets") && document.querySelector("main").textContent.includes("Epoch 1")`))
	apitest.Drive(t, ctx, "pipeline", chromedp.Evaluate(`location.hash = "#/pipeline"`, nil),
		apitest.Until(`document.querySelectorAll(".partitions tbody tr").length === 4 && document.querySelector(".partitions tbody").textContent.includes("here")`))
}

// The page draws what was locked and funded on each day from the first on, and adds a day when it begins.
func TestPageDrawsTheDays(t *testing.T) {
	const (
		day  = 86_400
		noon = start/day*day + day/2
	)
	ctx := apitest.Browser(t)
	m := newMarket(t)
	ofUSDG := func(millions uint64) func(*contracts.DealListed) {
		return func(e *contracts.DealListed) { e.Token, e.AmountOrTokenID = m.dep.USDG, u(millions*1_000_000) }
	}
	m.block(noon-2*day, listed(1, ofUSDG(30)), listed(2, ofUSDG(12)))
	m.block(noon, &contracts.DealCancelled{DealID: u(2), Borrower: borrower, At: noon})
	_, url := live(t, m)

	says := func(chart int, words string) chromedp.Action {
		return apitest.Until(fmt.Sprintf(`document.querySelectorAll(".history .plot")[%d]?.getAttribute("aria-label").endsWith(%q)`, chart, words))
	}
	apitest.Drive(t, ctx, "three days", chromedp.EmulateViewport(1400, 900), chromedp.Navigate(url), says(0, "from 42 to 30, between 30 and 42"), says(1, "from 0 to 0, between 0 and 0"),
		apitest.Until(`document.querySelector(".history .line").getAttribute("d").split("L").length === 3`),
		apitest.Until(`(() => { // a column's name stands over what it names
			const of = (cell) => getComputedStyle(document.querySelector(".listings " + cell));
			return of("th:first-child").paddingLeft === of("td:first-child").paddingLeft && of("th:last-child").paddingRight === of("td:last-child").paddingRight;
		})()`))
	m.block(noon+day, listed(3, ofUSDG(1)))
	apitest.Drive(t, ctx, "a fourth", says(0, "from 42 to 31, between 30 and 42"),
		apitest.Until(`document.querySelector(".history .line").getAttribute("d").split("L").length === 4`),
		chromedp.Evaluate(`document.querySelector(".history .plot").focus()`, nil), chromedp.KeyEvent(kb.ArrowLeft),
		apitest.Until(`document.querySelector(".history .readout").textContent.startsWith("30 ")`))
	apitest.Drive(t, ctx, "a deal hides nothing of them", chromedp.Evaluate(`location.hash = "#/deal/1"`, nil),
		apitest.Until(`document.querySelector(".deal") && document.querySelector(".history").getBoundingClientRect().height > 0`))
}

// TestPageSaysWhatItLeavesOut: where an answer is truncated, the page says so, and where all of it is.
func TestPageSaysWhatItLeavesOut(t *testing.T) {
	ctx := apitest.Browser(t)
	m := newMarket(t)
	everything(m)
	var events []any
	for n := range uint64(query.MaxPortfolio + 1) {
		events = append(events, listed(100+n))
	}
	for n := range uint64(query.MaxBids + 1) {
		events = append(events, bid(100, 100+n, 900, start+9999, terms1))
	}
	for n := range uint64(21) {
		events = append(events, &contracts.Burned{Caller: lender, USDGSpent: u(10), TKNBought: u(20), STKNBurned: u(1 + n), At: start + 251})
	}
	m.block(start+251, events...)
	_, url := live(t, m)
	says := func(n int, path string) chromedp.Action {
		return apitest.Until(fmt.Sprintf(`[...document.querySelectorAll(".more")].some((p) => p.textContent.startsWith(%q) && p.querySelector('a[href=%q]'))`,
			fmt.Sprintf("%s are shown; ", strings.Replace(fmt.Sprint(n), "1000", "1,000", 1)), path))
	}
	apitest.Drive(t, ctx, "a wallet's deals", chromedp.Navigate(url+"/#/wallet/"+borrowerText), says(query.MaxPortfolio, "/deals?wallet="+strings.ToLower(borrowerText)))
	apitest.Drive(t, ctx, "a wallet's bids", chromedp.Evaluate(fmt.Sprintf("location.hash = %q", "#/wallet/"+lender.Hex()), nil), says(100, "/portfolio/"+strings.ToLower(lender.Hex())+"/bids"))
	apitest.Drive(t, ctx, "a deal's bids", chromedp.Evaluate(`location.hash = "#/deal/100"`, nil), says(query.MaxBids, "/deals/100/bids"))
	apitest.Drive(t, ctx, "burns", chromedp.Evaluate(`location.hash = "#/pool"`, nil), says(20, "/burns"))
	apitest.Drive(t, ctx, "what is whole says nothing", chromedp.Evaluate(`location.hash = "#/deal/2"`, nil),
		apitest.Until(`document.querySelector(".deal h2")?.textContent.includes("#2") && document.querySelector(".deal table") && !document.querySelector(".deal .more")`))
}

// TestPageAsksLessOftenWhileNothingChanges: a wallet, and a deal with a reward; and at once when the stream tells of it. The page's clock
// is the test's.
func TestPageAsksLessOftenWhileNothingChanges(t *testing.T) {
	ctx := apitest.Browser(t)
	m := newMarket(t)
	everything(m)
	_, url := live(t, m)
	for view, of := range map[string]struct{ asks, ready string }{
		"#/wallet/" + borrowerText: {"/portfolio/", ".wallet .tiles"},
		"#/deal/1":                 {"/deals/1", ".deal .drips"},
	} {
		asked := func() (n int) {
			t.Helper()
			apitest.Drive(t, ctx, "requests", chromedp.Evaluate(fmt.Sprintf(`performance.getEntriesByType("resource").filter((e) => new URL(e.name).pathname.startsWith(%q)).length`, of.asks), &n))
			return n
		}
		apitest.Drive(t, ctx, view, chromedp.Navigate(url+"/"+view), chromedp.Reload(), apitest.Until(fmt.Sprintf(`document.querySelector(%q)`, of.ready)),
			chromedp.Evaluate(`window.clock = Date.now(); Date.now = () => window.clock`, nil))
		before := asked()
		for range 30 {
			step(ctx, t, m)
		}
		if n := asked() - before; n < 1 || n > 8 {
			t.Errorf("%s: asked %d times in 63 s in which nothing changed", view, n)
		}
	}
	apitest.Drive(t, ctx, "the wallet", chromedp.Navigate(url+"/#/wallet/"+borrowerText), chromedp.Reload(), apitest.Until(`document.querySelector(".wallet .tiles")`),
		chromedp.Evaluate(`window.clock = Date.now(); Date.now = () => window.clock`, nil))
	step(ctx, t, m, &contracts.DealCancelled{DealID: u(2), Borrower: borrower, At: m.at.Timestamp + 1})
	step(ctx, t, m)
	apitest.Drive(t, ctx, "a deal of its own ends", apitest.Until(`[...document.querySelectorAll(".wallet .state")].some((s) => s.dataset.state === "CANCELLED")`))
}

// step mines a block, and waits until the page shows it, two seconds of its clock later.
func step(ctx context.Context, t *testing.T, m *market, events ...any) {
	t.Helper()
	m.block(m.at.Timestamp+1, events...)
	apitest.Drive(t, ctx, "a block", chromedp.Evaluate(`window.clock += 2100`, nil), apitest.Until(fmt.Sprintf(`document.getElementById("live-block").title === %q`, m.at.Hash.Hex())))
}

// TestPageFits: no view is wider than a phone, and in the dark the page is dark.
func TestPageFits(t *testing.T) {
	ctx := apitest.Browser(t)
	m := newMarket(t)
	everything(m)
	_, url := live(t, m)
	apitest.Drive(t, ctx, "phone", chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	for hash, ready := range map[string]string{
		"#/": ".listings tbody tr", "#/deal/1": ".deal .drips", "#/wallet/" + borrowerText: ".wallet section", "#/pool": ".pool .budgets", "#/pipeline": ".partitions tbody tr",
	} {
		var wide int
		var paper string
		apitest.Drive(t, ctx, hash, chromedp.Navigate(url+"/"+hash), chromedp.Reload(), chromedp.WaitReady(ready, chromedp.ByQuery),
			chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide),
			chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &paper))
		if wide > 360 || strings.HasPrefix(paper, "rgb(2") {
			var beyond string
			apitest.Drive(t, ctx, hash, chromedp.Evaluate(`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 361).map(e => e.tagName + "." + e.getAttribute("class")).slice(0, 9).join(" ")`, &beyond))
			t.Errorf("%s: %d pixels wide for %s, on %s", hash, wide, beyond, paper)
		}
	}
}
