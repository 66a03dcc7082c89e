package notifier_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/processors/notifier"
	serving "github.com/lienstream/lienstream/serving/notifier"
)

// Strangers do not have us write to one made-up mailbox of a domain after the other, through whichever nodes and from however many
// clients and wallets: beyond the bound it is refused, and nothing has changed, so that the same message is good later. Other domains
// go on up to the bound of all. A wallet with an open deal is outside both.
func TestConfirmAsksOfADomain(t *testing.T) {
	w := newTown(t, "kfake")
	conf := serving.DefaultConfig()
	conf.Confirm, conf.Asks, conf.Admits = true, 100, 3
	var err error
	for i := range w.services {
		w.services[i], err = serving.New(conf, w.client, w.over(w.chain.HTTP()), w.keys, w.log, w.metrics.New())
		check(t, err)
	}
	const asked, refused = `200 {"confirm":{"by":"link","sent":true},"ok":true}`, "429 RATE_LIMITED"
	names := 0
	stranger := func(domain string) (lower, body string) {
		w.wallet, err = crypto.GenerateKey()
		check(t, err)
		names++
		address := fmt.Sprintf("a%d@%s", names, domain)
		lower = strings.ToLower(addressOf(w.wallet).Hex())
		m := w.message(lower, "email", address, w.next())
		return lower, postBody(lower, "email", address, allPrefs, m, sign(t, w.wallet, m))
	}
	asks := func(domain, want string) {
		t.Helper()
		_, body := stranger(domain)
		w.want(w.do(names%2, http.MethodPost, "/notify", body), want)
	}
	for _, domain := range []string{"example.com", "mail.example.com", "Example.COM"} {
		asks(domain, asked)
	}
	lower, body := stranger("x.example.com")
	for node := range 2 {
		before := w.answers.Len()
		w.want(w.do(node, http.MethodPost, "/notify", body), refused)
		said := w.answers.String()[before:]
		if !strings.Contains(said, "Retry-After: 3600\r\n") || !strings.Contains(said, `\"address\"`) {
			t.Fatal(said)
		}
	}
	w.want(w.do(0, http.MethodGet, "/notify/"+lower, ""), `200 {"subscriptions":[]}`)
	w.letters(3)

	wallet := addressOf(w.wallet)
	now := uint64(time.Now().Unix())
	w.told(wallet, notifier.Deal{ID: "7", Borrower: wallet, Lender: common.Address{1}, Cap: "1", FundedAt: now, Expiry: now + 3600, GraceEnd: now + 7200, Open: true})
	w.want(w.do(0, http.MethodPost, "/notify", body), asked) // by the message that was refused
	w.letters(4)
	for i := range 4 {
		for range 3 {
			asks(fmt.Sprintf("other%d.example", i), asked)
		}
	}
	asks("another.example", refused)
	w.letters(16)
	w.wallet, err = crypto.GenerateKey()
	check(t, err)
	w.want(w.post(0, "telegram", "1234567"), w.started("1234567")) // it has no mail sent
	w.want(w.post(0, "push", browser), `200 {"ok":true}`)
}

// told has the processor hear of a wallet's deal.
func (w *town) told(wallet common.Address, deal notifier.Deal) {
	w.t.Helper()
	rec, err := (&notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: deal}}).Record(w.cat, wallet)
	check(w.t, err)
	_, err = w.producer.Send(w.t.Context(), rec)
	check(w.t, err)
	// A write is answered once it is applied, and so is all that was written before it.
	_, err = w.client.Unsubscribe(w.t.Context(), &notifier.Unsubscribe{ID: notifier.ID{1}, Wallet: wallet, Channel: notifier.Push})
	check(w.t, err)
}
