package notifier_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lienstream/lienstream/processors/notifier"
)

// Who gets a mail that asks for an address to be confirmed ends that request by the link in its header (RFC 8058): nothing confirms the
// address any more, and what goes to another one goes on.
func TestARequestToConfirmIsRefused(t *testing.T) {
	w := newTown(t, "kfake")
	header := func(l letter) string {
		t.Helper()
		return strings.TrimPrefix(endLink.FindString(l.text), canaryLinks.Notify)
	}
	const asked = `200 {"confirm":{"by":"link","sent":true},"ok":true}`
	w.want(w.post(0, "email", "bob@example.com"), asked)
	mail := w.letters(1)[0]
	if got := w.do(1, http.MethodGet, header(mail), ""); !strings.HasPrefix(got, "200") || !strings.Contains(got, "<form") || !strings.Contains(got, "b•••@example.com") {
		t.Fatal(got)
	}
	if got := w.shown(0); !strings.Contains(got, "not confirmed") {
		t.Fatal("a link was followed, and no button pressed: " + got)
	}
	if got := w.do(0, http.MethodPost, header(mail)[:len(header(mail))-1]+"g", "List-Unsubscribe=One-Click"); !strings.HasPrefix(got, "404") {
		t.Fatal(got)
	}
	for node := range 2 { // a mail program may send it again
		if got := w.do(node, http.MethodPost, header(mail), "List-Unsubscribe=One-Click"); !strings.HasPrefix(got, "200") || !strings.Contains(got, "ended") {
			t.Fatal(got)
		}
	}
	w.want(w.shown(1), `200 {"subscriptions":[]}`)
	if got := w.do(0, http.MethodPost, linkIn(t, mail), confirmForm); !strings.Contains(got, "no longer good") {
		t.Fatal(got)
	}
	w.due(1)
	w.letters(1)

	// Beside a confirmed address it ends the request alone.
	w.want(w.post(0, "email", "ann@example.com"), asked)
	confirmed := w.letters(2)[1]
	if got := w.do(0, http.MethodPost, linkIn(t, confirmed), confirmForm); !strings.Contains(got, "<h1>Confirmed</h1>") {
		t.Fatal(got)
	}
	w.want(w.post(0, "email", "cat@example.com"), asked)
	if got := w.do(1, http.MethodPost, header(w.letters(3)[2]), "List-Unsubscribe=One-Click"); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	if got := w.shown(0); !strings.Contains(got, "a•••@example.com") || !strings.Contains(got, `"awaited":null`) || !strings.Contains(got, `"disabled":null`) {
		t.Fatal(got)
	}
	// The mail by which the address was confirmed ends the alerts there, long after its code has ceased to confirm anything. No other
	// wallet's or address's does.
	lastYear := time.Now().Unix() - 365*24*3600
	end := func(email string) string {
		return fmt.Sprintf("/unsubscribe?wallet=%s&channel=email&at=%d&token=%s", strings.ToLower(addressOf(w.wallet).Hex()), lastYear, w.keys.Refusal(addressOf(w.wallet), lastYear, email))
	}
	if lastYear+notifier.MailSeconds > time.Now().Unix() {
		t.Fatal("it confirms")
	}
	for _, other := range []string{end("cat@example.com"), strings.Replace(end("ann@example.com"), fmt.Sprint("at=", lastYear), fmt.Sprint("at=", lastYear+1), 1)} {
		if got := w.do(0, http.MethodPost, other, "List-Unsubscribe=One-Click"); !strings.HasPrefix(got, "404") {
			t.Fatal(got)
		}
	}
	if got := w.do(0, http.MethodGet, header(confirmed), ""); !strings.HasPrefix(got, "200") || !strings.Contains(got, "<form") {
		t.Fatal(got)
	}
	if got := w.do(1, http.MethodPost, end("ann@example.com"), "List-Unsubscribe=One-Click"); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	w.want(w.shown(0), `200 {"subscriptions":[]}`)
}
