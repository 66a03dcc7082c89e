package notifier_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lienstream/lienstream/processors/notifier"
	serving "github.com/lienstream/lienstream/serving/notifier"
)

// hasty hangs up as soon as an address is written down.
type hasty struct {
	*notifier.Client
	hangUp context.CancelFunc
}

func (h hasty) Await(ctx context.Context, c *notifier.Subscribe) (notifier.Outcome, error) {
	defer h.hangUp()
	return h.Client.Await(ctx, c)
}

// Whoever has an address written down has the mail sent that asks for it, with no more of the client: its message is used
// up, and the address before it gets nothing any more.
func TestConfirmHangUp(t *testing.T) {
	w := newTown(t, "kfake")
	ctx, hangUp := context.WithCancel(t.Context())
	conf := serving.DefaultConfig()
	conf.Confirm = true
	var err error
	w.services[1], err = serving.New(conf, hasty{w.client, hangUp}, w.over(w.chain.HTTP()), w.keys, w.log, w.metrics.New())
	check(t, err)
	lower := strings.ToLower(addressOf(w.wallet).Hex())
	m := w.message(lower, "email", "ann@example.com", w.next())
	body := postBody(lower, "email", "ann@example.com", allPrefs, m, sign(t, w.wallet, m))
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/notify", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w.want(w.answer(1, req), `200 {"confirm":{"by":"link"},"ok":true}`) // whether a mail is sent it cannot say
	w.want(w.do(0, http.MethodPost, "/notify", body), "401 SIGNATURE_REUSED")
	if got := w.do(0, http.MethodPost, linkIn(t, w.letters(1)[0]), confirmForm); !strings.Contains(got, "<h1>Confirmed</h1>") {
		t.Fatal(got)
	}
}
