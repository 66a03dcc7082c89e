package sender_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
)

// dealOf is what fire has the wallet be told of.
func dealOf(wallet common.Address) *notifier.Fact {
	return &notifier.Fact{Wallet: wallet, Deal: notifier.Deal{
		ID: "7", Borrower: wallet, Lender: common.Address{0xff}, Cap: "1234500000",
		FundedAt: genesis, Expiry: genesis + 7*hour, GraceEnd: genesis + 31*hour, Open: true,
	}}
}

// What is sent is true when it is sent: while alerts wait for their turn, a reorg has other terms for one deal, and
// another deal ends. And each was published before. Nor does it matter that the clock of the facts' sender is an hour
// ahead: a topic of commands goes by the brokers' clock.
func TestWhatIsSentIsTrueThen(t *testing.T) {
	t.Parallel()
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) { testWhatIsSentIsTrueThen(t, kind) })
	}
}

func testWhatIsSentIsTrueThen(t *testing.T, kind string) {
	api := newService()
	url := telegramAPI(t, api)
	conf := sender.DefaultConfig()
	conf.Parallel = 1
	h := newHouseOn(t, brokertest.Start(t, kind), 1, rate.Inf, conf, onlyTelegram(t, url))
	if kind == "apache" { // the embedded broker keeps the time of the sender, which is in the same process
		h.ahead = time.Hour
	}
	wallets := map[string]common.Address{"101": {1}, "102": {2}, "103": {3}}
	var once sync.Once
	began, goes := make(chan string, 1), make(chan struct{})
	answer := func(w http.ResponseWriter, r *http.Request) {
		chat, text := r.FormValue("chat_id"), r.FormValue("text")
		if !h.published(text[strings.LastIndexByte(text, ' ')+1:]) {
			t.Errorf("what is sent to %s was not published", chat)
		}
		once.Do(func() { // the others wait for it
			began <- chat
			<-goes
		})
		api.take(chat, text)
		_, _ = io.WriteString(w, `{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"}}}`)
	}
	var all []common.Address
	for chat, wallet := range wallets {
		api.answers[chat] = []func(http.ResponseWriter, *http.Request){answer}
		h.subscribe(wallet, notifier.Telegram, chat, "m")
		all = append(all, wallet)
	}
	h.fire(all...)
	var first string
	select {
	case first = <-began:
	case <-t.Context().Done():
		t.Fatal("nothing is sent")
	}
	delete(wallets, first)
	var changed, ended string
	for chat := range wallets {
		changed, ended = ended, chat
	}
	now := dealOf(wallets[changed])
	h.send(now.Wallet, notifier.Command{Fact: now, Removed: true})
	now.Deal.Cap = "2000000000"
	h.send(now.Wallet, notifier.Command{Fact: now})
	over := dealOf(wallets[ended])
	over.Deal.Open, over.At = false, h.at
	h.send(over.Wallet, notifier.Command{Fact: over})
	h.subscribe(common.Address{4}, notifier.Telegram, "104", "m") // which comes after it
	close(goes)
	h.settled(2)
	if text := api.one(t, first); !strings.Contains(text, "Repay 1234.5 USDG") {
		t.Errorf("first came %q", text)
	}
	if text := api.one(t, changed); !strings.Contains(text, "Repay 2000 USDG") {
		t.Errorf("after a reorg came %q", text)
	}
	if api.count(ended) != 0 {
		t.Error("an alert of a deal that has ended was sent")
	}
}

// published reports whether an alert is in evt.alert.
func (h *house) published(id string) (found bool) {
	topic, _ := h.cat.Find(topics.KindEvent, topics.FamilyAlert)
	for p := range h.cat.Partitions {
		err := kafka.ReadBack(h.t.Context(), h.cfg, topic.Name(), p, 0, func(r *kafka.Record) bool {
			found = found || strings.HasPrefix(common.Bytes2Hex(r.Key), id)
			return !found
		})
		if err != nil {
			h.t.Error(err)
		}
	}
	return found
}
