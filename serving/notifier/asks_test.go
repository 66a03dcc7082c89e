package notifier_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"

	serving "github.com/lienstream/lienstream/serving/notifier"
)

// A client names few addresses that are to be confirmed, whatever wallets it makes up, and so does a network: each has a mail
// sent, and whoever names one after it waits for those. What is refused has changed nothing.
func TestConfirmAsksOfAClient(t *testing.T) {
	w := newTown(t, "kfake")
	conf := serving.DefaultConfig()
	conf.Confirm, conf.Asks = true, 3
	var err error
	w.services[1], err = serving.New(conf, w.client, w.over(w.chain.HTTP()), w.keys, w.log, w.metrics.New())
	check(t, err)
	names := 0
	signed := func(channel string) string {
		w.wallet, err = crypto.GenerateKey()
		check(t, err)
		names++
		address := fmt.Sprintf("a%d@example.com", names)
		if channel == "telegram" {
			address = fmt.Sprint(names)
		}
		lower := strings.ToLower(addressOf(w.wallet).Hex())
		m := w.message(lower, channel, address, w.next())
		return postBody(lower, channel, address, allPrefs, m, sign(t, w.wallet, m))
	}
	post := func(client, body string) string {
		req := httptest.NewRequest(http.MethodPost, "/notify", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.RemoteAddr = client + ":1000"
		return w.answer(1, req)
	}
	const asked, refused = `200 {"confirm":{"by":"link","sent":true},"ok":true}`, "429 RATE_LIMITED"
	for range conf.Asks {
		w.want(post("192.0.2.7", signed("email")), asked)
	}
	body := signed("email")
	w.want(post("192.0.2.7", body), refused)
	w.want(post("192.0.2.8", body), asked)
	if got := post("192.0.2.7", signed("telegram")); !strings.HasPrefix(got, "200") { // it has no mail sent
		t.Fatal(got)
	}
	for i := range 5 * conf.Asks {
		w.want(post(fmt.Sprintf("[2001:db8:1:%x::1]", i/conf.Asks), signed("email")), asked)
	}
	w.want(post("[2001:db8:1:ffff::1]", signed("email")), refused)
	w.want(post("[2001:db8:2::1]", signed("email")), asked)
}
