package notifier_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lienstream/lienstream/processors/notifier"
	serving "github.com/lienstream/lienstream/serving/notifier"
)

// A mail program's one click ends the subscription, in either encoding that RFC 8058 allows; anything else ends
// nothing.
func TestOneClick(t *testing.T) {
	h := newHouse(t, "kfake")
	lower := strings.ToLower(addressOf(h.wallet).Hex())
	keys, err := notifier.ParseKeys(keyText)
	check(t, err)
	const boundary = "----WebKitFormBoundaryABC"
	multipart := func(field, value string) string {
		return fmt.Sprintf("--%s\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n--%s--\r\n", boundary, field, value, boundary)
	}
	const form = "application/x-www-form-urlencoded"
	good := multipart("List-Unsubscribe", "One-Click")
	for _, c := range []struct {
		name, kind, body string
		status           int
	}{
		{"as a form", form, "List-Unsubscribe=One-Click", http.StatusOK},
		{"as a form with a charset", form + "; charset=utf-8", "List-Unsubscribe=One-Click", http.StatusOK},
		{"in parts", "multipart/form-data; boundary=" + boundary, good, http.StatusOK},
		{"nothing", form, "", http.StatusBadRequest},
		{"another value", form, "List-Unsubscribe=Two-Clicks", http.StatusBadRequest},
		{"twice", form, "List-Unsubscribe=One-Click&List-Unsubscribe=One-Click", http.StatusBadRequest},
		{"no form", "text/plain", "List-Unsubscribe=One-Click", http.StatusBadRequest},
		{"no kind", "", "List-Unsubscribe=One-Click", http.StatusBadRequest},
		{"parts without a boundary", "multipart/form-data", good, http.StatusBadRequest},
		{"parts that are cut", "multipart/form-data; boundary=" + boundary, good[:len(good)-20], http.StatusBadRequest},
		{"another part", "multipart/form-data; boundary=" + boundary, multipart("X", "One-Click"), http.StatusBadRequest},
		{"too much", form, "List-Unsubscribe=One-Click&x=" + strings.Repeat("x", 20<<10), http.StatusRequestEntityTooLarge},
	} {
		m := h.message(lower, "email", "ann@example.com", h.next())
		h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", allPrefs, m, sign(t, h.wallet, m))), `200 {"ok":true}`)
		subs, err := h.client.Subscriptions(t.Context(), addressOf(h.wallet))
		check(t, err)
		link := fmt.Sprintf("/unsubscribe?wallet=%s&channel=email&token=%s", lower, keys.Link(addressOf(h.wallet), notifier.Email, subs[0].CreatedAt, "ann@example.com"))
		req := httptest.NewRequest(http.MethodPost, link, strings.NewReader(c.body))
		req.Header.Set("Content-Type", c.kind)
		res := httptest.NewRecorder()
		h.services[1].ServeHTTP(res, req)
		if res.Code != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, res.Code, res.Body, c.status)
		}
		if left := strings.Contains(h.do(0, http.MethodGet, "/notify/"+lower, ""), "email"); left != (c.status != http.StatusOK) {
			t.Errorf("%s: the subscription is there: %v", c.name, left)
		}
	}
}

// A link that ends nothing says so: a reader who is told that alerts have ended must not get more.
func TestStaleLink(t *testing.T) {
	h := newHouse(t, "kfake")
	lower := strings.ToLower(addressOf(h.wallet).Hex())
	another, err := notifier.ParseKeys("9:" + strings.Repeat("99", 32))
	check(t, err)
	m := h.message(lower, "email", "ann@example.com", h.next())
	h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", allPrefs, m, sign(t, h.wallet, m))), `200 {"ok":true}`)
	subs, err := h.client.Subscriptions(t.Context(), addressOf(h.wallet))
	check(t, err)
	ask := func(method, token string) (int, string) {
		req := httptest.NewRequest(method, fmt.Sprintf("/unsubscribe?wallet=%s&channel=email&token=%s", lower, token), strings.NewReader("List-Unsubscribe=One-Click"))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res := httptest.NewRecorder()
		h.services[0].ServeHTTP(res, req)
		return res.Code, res.Body.String()
	}
	// A mistyped address was corrected: the link of a mail to the wrong address does not end the alerts to this one.
	links, err := notifier.ParseKeys(keyText)
	check(t, err)
	for name, token := range map[string]string{
		"to another address":    links.Link(addressOf(h.wallet), notifier.Email, subs[0].CreatedAt, "anne@example.com"),
		"of a key that is gone": another.Link(addressOf(h.wallet), notifier.Email, subs[0].CreatedAt, "ann@example.com"), "of no key": "00", "empty": "",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if status, text := ask(method, token); status != http.StatusNotFound || !strings.Contains(text, "alerts go on") || strings.Contains(text, "<form") {
				t.Errorf("%s of a link %s: %d %s", method, name, status, text)
			}
		}
	}
	keys, err := notifier.ParseKeys(keyText)
	check(t, err)
	good := keys.Link(addressOf(h.wallet), notifier.Email, subs[0].CreatedAt, "ann@example.com")
	for range 2 { // a mail program may send it again
		if status, text := ask(http.MethodPost, good); status != http.StatusOK || !strings.Contains(text, "ended") {
			t.Errorf("the good link: %d %s", status, text)
		}
	}
}

// Where a key is missing nothing changes, and the answer is not the user's fault.
func TestKeyMissing(t *testing.T) {
	h := newHouse(t, "kfake")
	wallet := addressOf(h.wallet)
	lower := strings.ToLower(wallet.Hex())
	gone, err := notifier.ParseKeys("9:" + strings.Repeat("99", 32))
	check(t, err)
	sealed, err := gone.Seal(wallet, notifier.Email, "ann@example.com")
	check(t, err)
	_, err = h.client.Subscribe(t.Context(), &notifier.Subscribe{Wallet: wallet, Channel: notifier.Email, Sealed: sealed, Mask: "a", Prefs: 1, Unix: 1})
	check(t, err)
	m := h.message(lower, "email", "ann@example.com", h.next())
	if got := h.do(0, http.MethodDelete, "/notify/"+lower+"/email", deleteBody(m, sign(t, h.wallet, m))); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "UPSTREAM_UNAVAILABLE") {
		t.Errorf("an address without its key: %s", got)
	}
	subs, err := h.client.Subscriptions(t.Context(), wallet)
	check(t, err)
	if len(subs) != 1 || !subs[0].Active() || string(subs[0].Sealed) != string(sealed) {
		t.Errorf("it has changed: %+v", subs)
	}
}

// raced is the state, but that something happens between what a request reads of it and what it writes.
type raced struct {
	*notifier.Client
	between func()
}

func (r *raced) Unsubscribe(ctx context.Context, c *notifier.Unsubscribe) (notifier.Outcome, error) {
	if f := r.between; f != nil {
		r.between = nil
		f()
	}
	return r.Client.Unsubscribe(ctx, c)
}

// Ending the alerts to one address, by a link or a signature, does not end those to another that the wallet names
// meanwhile.
func TestAnAddressThatChangesWhileItIsEnded(t *testing.T) {
	h := newHouse(t, "kfake")
	wallet := addressOf(h.wallet)
	lower := strings.ToLower(wallet.Hex())
	keys, err := notifier.ParseKeys(keyText)
	check(t, err)
	store := &raced{Client: h.client}
	service, err := serving.New(serving.DefaultConfig(), store, h.over(h.chain.HTTP()), keys, h.log, h.metrics.New())
	check(t, err)
	const some = `{"t48":true,"t24":false,"t6":false,"t1":false,"expiry":false,"budget":false,"epoch":false}`
	post := func(address, prefs string, unix int64) {
		t.Helper()
		m := h.message(lower, "email", address, unix)
		h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", address, prefs, m, sign(t, h.wallet, m))), `200 {"ok":true}`)
	}
	for _, c := range []struct {
		name, address, prefs string
		signed               bool
		status               int
		left                 string
	}{
		{"another address, by a link", "anne@other.example.com", allPrefs, false, http.StatusNotFound, "other.example.com"},
		{"another address, by a signature", "anne@other.example.com", allPrefs, true, http.StatusServiceUnavailable, "other.example.com"},
		{"the same address, by a link", "ann@example.com", some, false, http.StatusOK, ""},
	} {
		post("ann@example.com", allPrefs, h.next())
		subs, err := h.client.Subscriptions(t.Context(), wallet)
		check(t, err)
		meanwhile, then := h.next(), h.next()
		store.between = func() { post(c.address, c.prefs, meanwhile) }
		var req *http.Request
		if c.signed {
			m := h.message(lower, "email", "ann@example.com", then)
			req = httptest.NewRequest(http.MethodDelete, "/notify/"+lower+"/email", strings.NewReader(deleteBody(m, sign(t, h.wallet, m))))
			req.Header.Set("Content-Type", "application/json")
		} else {
			link := keys.Link(wallet, notifier.Email, subs[0].CreatedAt, "ann@example.com")
			req = httptest.NewRequest(http.MethodPost, fmt.Sprintf("/unsubscribe?wallet=%s&channel=email&token=%s", lower, link), strings.NewReader("List-Unsubscribe=One-Click"))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		res := httptest.NewRecorder()
		service.ServeHTTP(res, req)
		if store.between != nil {
			t.Fatalf("%s: nothing happened between", c.name)
		}
		if res.Code != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, res.Code, res.Body, c.status)
		}
		if got := h.do(0, http.MethodGet, "/notify/"+lower, ""); !strings.Contains(got, c.left) || c.left == "" && !strings.Contains(got, `"subscriptions":[]`) {
			t.Errorf("%s: there is %s", c.name, got)
		}
	}
}
