package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// list pages through the letters, by key, in two orders and with two filters.
func list(_ context.Context, req *Request, res *Response) error {
	req.Query("wallet").Address()
	Sort[colour](req, colours)
	limit, after := req.Limit(), req.After()
	if err := req.Err(); err != nil {
		return err
	}
	letters := "abcdefghij"
	letters = letters[strings.Index(letters, string(after))+len(after):]
	next := []byte(nil)
	if len(letters) > limit {
		letters = letters[:limit]
		next = []byte(letters[limit-1:])
	}
	res.Body = AppendString(append(res.Body, `{"items":`...), letters)
	res.Body = req.AppendNextCursor(append(res.Body, `,"nextCursor":`...), next)
	res.Body = append(res.Body, '}')
	return nil
}

type letterPage struct {
	Items      string
	NextCursor *string
}

func page(t *testing.T, w *httptest.ResponseRecorder) letterPage {
	t.Helper()
	var p letterPage
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 200 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return p
}

func TestCursorsPageThroughAList(t *testing.T) {
	a, _, _ := newAPI(t, nil, get("/", list, "wallet", "sort", "limit", "cursor"))
	seen, target := "", "/?limit=3"
	for range 10 {
		p := page(t, do(a, http.MethodGet, target, ""))
		seen += p.Items
		if p.NextCursor == nil {
			break
		}
		if *p.NextCursor != url.QueryEscape(*p.NextCursor) {
			t.Fatalf("cursor %s is not safe in a URL", *p.NextCursor)
		}
		target = "/?limit=3&cursor=" + *p.NextCursor
	}
	if seen != "abcdefghij" {
		t.Errorf("saw %q", seen)
	}
}

func TestCursorsAreOfTheirListOnly(t *testing.T) {
	const (
		lower = "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"
		mixed = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
		other = "0x00000000000000000000000000000000000000aa"
	)
	query := []string{"wallet", "sort", "limit", "cursor"}
	a, _, _ := newAPI(t, nil, get("/", list, query...), get("/other", list, query...))
	b, _, _ := newAPI(t, nil, get("/", list, query...)) // another node of the deployment
	secret, _, _ := newAPI(t, func(c *Config) { c.CursorSecret = "another key than theirs" }, get("/", list, query...))

	cursor := *page(t, do(a, http.MethodGet, "/?limit=3&sort=RED&wallet="+lower, "")).NextCursor
	for _, ok := range []struct {
		node   *API
		target string
	}{
		{a, "/?sort=RED&wallet=" + lower}, {a, "/?wallet=" + lower}, {b, "/?sort=RED&wallet=" + lower}, {a, "/?limit=1&sort=RED&wallet=" + mixed},
	} {
		if p := page(t, do(ok.node, http.MethodGet, ok.target+"&cursor="+cursor, "")); p.Items[0] != 'd' {
			t.Errorf("%s goes on with %q", ok.target, p.Items)
		}
	}
	flipped := []byte(cursor)
	flipped[len(flipped)/2] ^= 1
	for _, wrong := range []struct {
		node           *API
		target, cursor string
	}{
		{secret, "/?sort=RED&wallet=" + lower, cursor},
		{a, "/other?sort=RED&wallet=" + lower, cursor},
		{a, "/?sort=GREEN&wallet=" + lower, cursor},
		{a, "/?sort=RED&wallet=" + other, cursor},
		{a, "/?sort=RED", cursor},
		{a, "/?sort=RED&wallet=" + lower, ""},
		{a, "/?sort=RED&wallet=" + lower, "x"},
		{a, "/?sort=RED&wallet=" + lower, string(flipped)},
		{a, "/?sort=RED&wallet=" + lower, cursor + "%0A"},
		{a, "/?sort=RED&wallet=" + lower, cursor + "="},
		{a, "/?sort=RED&wallet=" + lower, cursor[:len(cursor)-1]},
		{a, "/?sort=RED&wallet=" + lower, cursor[1:]},
		{a, "/?sort=RED&wallet=" + lower, strings.Repeat(cursor, 20)},
	} {
		w := do(wrong.node, http.MethodGet, strings.Replace(wrong.target, "/?", "/?", 1)+"&cursor="+wrong.cursor, "")
		if code, message := errorOf(t, w); w.Code != 400 || code != "INVALID_CURSOR" || !strings.HasPrefix(message, `"cursor" `) {
			t.Errorf("%s with cursor %q: %d %s %q", wrong.target, wrong.cursor, w.Code, code, message)
		}
	}
	w := do(a, http.MethodGet, "/?cursor=x&cursor=x", "")
	if code, message := errorOf(t, w); code != "INVALID_INPUT" || !strings.HasPrefix(message, `"cursor" `) {
		t.Errorf("repeated: %s %q", code, message)
	}
}

func FuzzCursor(f *testing.F) {
	c := newCursors("a secret of sixteen", "")
	scope := []byte("/listings&lane=STOCK")
	made := string(c.append(nil, 1, scope, []byte("last key")))
	f.Add(made, "last key")
	f.Add(made[:20], "")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, text, key string) {
		if last, ok := c.open(text, 1, scope); ok && string(c.append(nil, 1, scope, last)) != text {
			t.Fatalf("%q is a second text of a cursor", text)
		}
		if len(key) > maxLastKey {
			return
		}
		last, ok := c.open(string(c.append(nil, 1, scope, []byte(key))), 1, scope)
		if !ok || string(last) != key {
			t.Fatalf("key %q came back as %q, %v", key, last, ok)
		}
	})
}
