package notifier_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// In Chromium, a person who follows the links of mails confirms an address and ends its alerts, each with a button, and can read
// what the pages say.
func TestPagesOfLinks(t *testing.T) {
	browser := apitest.Browser(t)
	w := newTown(t, "kfake")
	server := httptest.NewServer(w.services[1])
	t.Cleanup(server.Close)
	w.want(w.post(0, "email", "ann@example.com"), `200 {"confirm":{"by":"link","sent":true},"ok":true}`)
	confirm := server.URL + linkIn(t, w.letters(1)[0])
	press := func(what string) {
		apitest.Drive(t, browser, what, chromedp.Navigate(what))
		_, err := chromedp.RunResponse(browser, chromedp.Click("button", chromedp.ByQuery))
		check(t, err)
	}
	says := func(what string) {
		t.Helper()
		var text string
		apitest.Drive(t, browser, what, chromedp.Evaluate(`document.body.innerText`, &text))
		if !strings.Contains(text, what) {
			t.Errorf("the page says %q, not %q", text, what)
		}
	}
	apitest.Legible(t, browser, "confirm", confirm)
	says("The wallet " + addressOf(w.wallet).Hex() + " asked for alerts to a•••@example.com.")
	press(confirm)
	says("Confirmed")
	if got := w.shown(0); !strings.Contains(got, `"disabled":null`) {
		t.Error(got)
	}
	apitest.Legible(t, browser, "confirm-stale", confirm[:len(confirm)-1]+"g")

	subs, err := w.client.Subscriptions(t.Context(), addressOf(w.wallet))
	check(t, err)
	end := fmt.Sprintf("%s/unsubscribe?wallet=%s&channel=email&token=%s", server.URL, strings.ToLower(addressOf(w.wallet).Hex()),
		w.keys.Link(addressOf(w.wallet), notifier.Email, subs[0].CreatedAt, "ann@example.com"))
	apitest.Legible(t, browser, "unsubscribe", end)
	says("Alerts about your deals will no longer go to a•••@example.com.")
	if got := w.shown(0); !strings.Contains(got, "email") {
		t.Error("a link was followed, and no button pressed: " + got)
	}
	press(end)
	says("Alerts to a•••@example.com have ended.")
	if got := w.shown(0); strings.Contains(got, "email") {
		t.Error(got)
	}
	apitest.Legible(t, browser, "unsubscribed", end)
}
