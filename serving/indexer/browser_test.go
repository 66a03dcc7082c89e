package indexer

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/lienstream/lienstream/contracts"
)

// browser opens the page in headless Chromium. Whatever the page complains of, an error of a script or
// something that its policy refuses, fails the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no chromium here")
	}
	allocator, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))...)
	t.Cleanup(stop)
	ctx, leave := chromedp.NewContext(allocator)
	t.Cleanup(leave)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	var mu sync.Mutex
	var complaints []string
	complain := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		complaints = append(complaints, text)
	}
	chromedp.ListenTarget(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			complain(ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.LevelError && ev.Entry.Source != log.SourceNetwork {
				complain(ev.Entry.Text)
			}
		}
	})
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range complaints {
			t.Error("the page complains:", c)
		}
	})
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// until waits for a condition, in JavaScript.
func until(condition string) chromedp.Action {
	return chromedp.Poll(condition, nil, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(30*time.Second))
}

func do(t *testing.T, ctx context.Context, what string, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText`, &text))
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
}

// rows is the deals of the listings, in order.
const rows = `[...document.querySelectorAll(".listings tbody tr")].map(r => r.dataset.key).join(" ")`

func TestPageFollowsTheMarket(t *testing.T) {
	ctx := browser(t)
	m := newMarket(t)
	everything(m)
	_, url := live(t, m)

	do(t, ctx, "listings", chromedp.Navigate(url), until(rows+` === "2"`), until(`document.getElementById("live").dataset.state === "live"`))
	m.block(start+251, listed(3))
	do(t, ctx, "a new listing", until(rows+` === "3 2"`), until(`document.getElementById("live-block").textContent === "5"`))
	m.block(start+252, bid(3, 7, 900, start+9999, terms1))
	do(t, ctx, "a bid", until(`document.querySelector('[data-key="3"] [data-label="Best bid"]').textContent === "<0.01 ×1"`))
	m.land(2, start+251, listed(4)) // the blocks of deal 3 are reverted
	do(t, ctx, "a reorg", until(rows+` === "4 2"`))
	m.block(start+253, &contracts.DealCancelled{DealID: u(4), Borrower: borrower, At: start + 253})
	do(t, ctx, "a cancelled deal leaves", until(rows+` === "2"`))

	// By keyboard: to the listing, into the deal, out again.
	do(t, ctx, "into the deal", chromedp.Evaluate(`document.querySelector(".listings a").focus()`, nil), chromedp.KeyEvent("\r"),
		until(`location.hash === "#/deal/2" && document.querySelector(".deal h2")?.textContent.includes("#2")`),
		until(`document.querySelector(".deal table")?.textContent.includes("best")`))
	do(t, ctx, "out again", chromedp.KeyEvent("\x1b"), until(`location.hash === "#/" && document.activeElement.getAttribute("href") === "#/deal/2"`))
	do(t, ctx, "to a wallet", chromedp.KeyEvent("/"), until(`document.activeElement.id === "query"`), chromedp.Evaluate(`document.getElementById("query").value = ""`, nil), // the driver types the key that was taken
		chromedp.KeyEvent(borrowerText), chromedp.KeyEvent("\r"), until(`location.hash.startsWith("#/wallet/")`))
	do(t, ctx, "the wallet",
		until(`document.querySelector(".wallet h1") && document.querySelectorAll(".wallet section").length >= 5`),
		until(`document.querySelector(".tiles").textContent.includes("Claimable")`))
	do(t, ctx, "a funded deal has its drips", chromedp.Evaluate(`location.hash = "#/deal/1"`, nil),
		until(`document.querySelectorAll(".deal .drips li .curve").length === 2 && document.querySelectorAll(".timeline li").length === 4`))
	do(t, ctx, "its transactions are on the explorer, and can be copied",
		until(`document.querySelectorAll('.timeline a[href^="https://explorer.example/tx/0x"][rel="noreferrer"]').length >= 2`),
		until(`document.querySelectorAll(".timeline .copy").length >= 2`))
	do(t, ctx, "pool", chromedp.Evaluate(`location.hash = "#/pool"`, nil),
		until(`document.querySelector(".pool .chart svg") && document.querySelector(".pool .budgets") && document.querySelector("main").textContent.includes("Epoch 1")`))
	do(t, ctx, "pipeline", chromedp.Evaluate(`location.hash = "#/pipeline"`, nil),
		until(`document.querySelectorAll(".partitions tbody tr").length === 4 && document.querySelector(".partitions tbody").textContent.includes("here")`))
}

// TestPageFits: no view is wider than a phone, and in the dark the page is dark.
func TestPageFits(t *testing.T) {
	ctx := browser(t)
	m := newMarket(t)
	everything(m)
	_, url := live(t, m)
	do(t, ctx, "phone", chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	for hash, ready := range map[string]string{
		"#/": ".listings tbody tr", "#/deal/1": ".deal .drips", "#/wallet/" + borrowerText: ".wallet section", "#/pool": ".pool .budgets", "#/pipeline": ".partitions tbody tr",
	} {
		var wide int
		var paper string
		do(t, ctx, hash, chromedp.Navigate(url+"/"+hash), chromedp.Reload(), chromedp.WaitReady(ready, chromedp.ByQuery),
			chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide),
			chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &paper))
		if wide > 360 || strings.HasPrefix(paper, "rgb(2") {
			var beyond string
			do(t, ctx, hash, chromedp.Evaluate(`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 361).map(e => e.tagName + "." + e.getAttribute("class")).slice(0, 9).join(" ")`, &beyond))
			t.Errorf("%s: %d pixels wide for %s, on %s", hash, wide, beyond, paper)
		}
	}
}
