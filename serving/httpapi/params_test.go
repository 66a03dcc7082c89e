package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

type colour uint8

var colours = []string{"RED", "GREEN"}

// every parses one parameter of every type and answers with what it understood.
func every(_ context.Context, req *Request, res *Response) error {
	wallet, id, term := req.Query("wallet").Address(), req.Query("id").Uint256(), req.Query("term").Seconds()
	c := Enum[colour](req.Query("colour"), colours)
	limit := req.Limit()
	if err := req.Err(); err != nil {
		return err
	}
	if wallet != nil {
		res.Body = fmt.Appendf(res.Body, "wallet %s ", strings.ToLower(wallet.Hex()))
	}
	if id != nil {
		res.Body = fmt.Appendf(res.Body, "id %s ", id.Dec())
	}
	if term != nil {
		res.Body = fmt.Appendf(res.Body, "term %d ", *term)
	}
	if c != nil {
		res.Body = fmt.Appendf(res.Body, "colour %d ", *c)
	}
	res.Body = fmt.Appendf(res.Body, "limit %d", limit)
	return nil
}

func TestParameters(t *testing.T) {
	a, _, _ := newAPI(t, nil, get("/", every, "wallet", "id", "term", "colour", "limit"))
	const (
		checksummed = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
		lower       = "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"
	)
	maxID := new(uint256.Int).SetAllOne().Dec()
	for _, c := range []struct{ query, want string }{
		{"", "limit 50"},
		{"&&", "limit 50"},
		{"wallet=" + lower, "wallet " + lower + " limit 50"},
		{"wallet=" + checksummed, "wallet " + lower + " limit 50"},
		{"wallet=0x" + strings.ToUpper(lower[2:]), "wallet " + lower + " limit 50"},
		{"%77allet=" + lower, "wallet " + lower + " limit 50"},
		{"id=0", "id 0 limit 50"},
		{"id=" + maxID, "id " + maxID + " limit 50"},
		{"term=1", "term 1 limit 50"},
		{"term=4294967295", "term 4294967295 limit 50"},
		{"colour=GREEN", "colour 1 limit 50"},
		{"limit=1", "limit 1"},
		{"limit=200", "limit 200"},

		{"wallet=", "!wallet"},
		{"wallet", "!wallet"},
		{"wallet=" + lower[2:], "!wallet"},
		{"wallet=0X" + lower[2:], "!wallet"},
		{"wallet=" + lower + "0", "!wallet"},
		{"wallet=" + lower[:41], "!wallet"},
		{"wallet=" + lower[:41] + "g", "!wallet"},
		{"wallet=0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "!wallet"},
		{"wallet=%zz", "!wallet"},
		{"wallet=" + lower + "&wallet=" + lower, "!wallet"},
		{"id=", "!id"},
		{"id=-1", "!id"},
		{"id=+1", "!id"},
		{"id=01", "!id"},
		{"id=1.0", "!id"},
		{"id=0x1", "!id"},
		{"id=1e3", "!id"},
		{"id=%EF%BC%91", "!id"},
		{"id=1_000", "!id"},
		{"id=" + maxID[:77] + "9", "!id"},
		{"id=1" + maxID, "!id"},
		{"term=0", "!term"},
		{"term=4294967296", "!term"},
		{"term=7d", "!term"},
		{"term=%2B7", "!term"},
		{"colour=", "!colour"},
		{"colour=red", "!colour"},
		{"colour=RED,GREEN", "!colour"},
		{"colour=RED&colour=RED", "!colour"},
		{"colour=RED&%63olour=RED", "!colour"},
		{"limit=", "!limit"},
		{"limit=0", "!limit"},
		{"limit=201", "!limit"},
		{"limit=-1", "!limit"},
		{"limit=%2B5", "!limit"},
		{"limit=05", "!limit"},
		{"limit=5.0", "!limit"},
		{"limit=99999999999999999999", "!limit"},
		{"limit=50;colour=RED", "!limit"},
		{"Limit=5", "!Limit"},
		{"page=2", "!page"},
		{"=", "!"},
		{"%zz=1", "!%zz"},
		{"limit[]=5", "!limit[]"},
		// The first fault in the query is told before those of values, and those in their own order.
		{"limit=0&page=2", "!page"},
		{"limit=0&wallet=1", "!wallet"},
	} {
		w := do(a, http.MethodGet, "/?"+c.query, "")
		if name, wrong := strings.CutPrefix(c.want, "!"); wrong {
			code, message := errorOf(t, w)
			if w.Code != 400 || code != "INVALID_INPUT" || !strings.HasPrefix(message, `"`+name+`" `) {
				t.Errorf("?%s: %d %s %q", c.query, w.Code, code, message)
			}
			continue
		}
		if w.Code != 200 || w.Body.String() != c.want {
			t.Errorf("?%s: %d %q, want %q", c.query, w.Code, w.Body, c.want)
		}
	}
	w := do(a, http.MethodGet, "/?"+strings.Repeat("x", 10_000)+"=1", "")
	if w.Code != 400 || w.Body.Len() > 300 {
		t.Errorf("a long name: %d, %d bytes", w.Code, w.Body.Len())
	}
}

func FuzzAddress(f *testing.F) {
	f.Add("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")
	f.Add("0x")
	f.Add("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaeg")
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := parseAddress(s)
		if want := len(s) == 42 && s[:2] == "0x" && common.IsHexAddress(s); ok != want {
			t.Fatalf("%q: %v, go-ethereum %v", s, ok, want)
		}
		if ok && got != common.HexToAddress(s) {
			t.Fatalf("%q parsed as %s", s, got)
		}
	})
}
