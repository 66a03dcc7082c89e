package sender_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// Many alerts of one wallet hold up no other, and of its own the deal that ends first comes first.
func TestWalletsTakeTurns(t *testing.T) {
	t.Parallel()
	const deals = 300
	api := newService()
	url := telegramAPI(t, api)
	conf := sender.DefaultConfig()
	conf.Hold, conf.Queue = time.Second, 16
	h := newHouseOn(t, brokertest.Start(t, "kfake"), 1, 50, conf, nil)
	ann, eve := common.Address{1}, common.Address{9}
	h.subscribe(ann, notifier.Telegram, "101", "m")
	h.subscribe(eve, notifier.Telegram, "666", "m")
	for n := range deals {
		expiry := h.at + 6*hour + 100
		if n == deals-1 {
			expiry -= 50
		}
		h.send(eve, notifier.Command{Fact: &notifier.Fact{Wallet: eve, Deal: notifier.Deal{
			ID: fmt.Sprint(1000 + n), Borrower: eve, Lender: eve, Cap: "1", FundedAt: h.at, Expiry: expiry, GraceEnd: h.at + 31*hour, Open: true,
		}}})
	}
	h.at += 100
	h.everybody(notifier.Command{Tick: &notifier.Tick{Block: h.at, Time: h.at}})
	polltest.Until(t, "all of eve's are due", func() bool {
		now, err := h.client.Health(t.Context())
		return err == nil && now.Pending == deals
	})
	settled := time.Now().Add(notifier.SettleTime)
	polltest.Until(t, "all of eve's are due", func() bool { return time.Now().After(settled) })
	h.deliver(50, conf, onlyTelegram(t, url))
	polltest.Until(t, "eve is told of the deal that ends first", func() bool { return api.told("666", fmt.Sprint("Deal ", 1000+deals-1)) })
	if n := api.count("666"); n > conf.Queue*2 {
		t.Errorf("%d of eve's came before the deal that ends first", n)
	}
	gate := make(chan struct{}) // else eve's are all told while ann's settles
	api.holds("666", gate)
	h.fire(ann)
	settled = time.Now().Add(notifier.SettleTime + conf.Hold)
	polltest.Until(t, "ann's is due", func() bool { return time.Now().After(settled) })
	close(gate)
	polltest.Until(t, "ann is told", func() bool { return api.told("101", "Deal 7") })
	if n := api.count("666"); n > deals*3/4 {
		t.Errorf("ann waited for %d of eve's", n)
	}
}

// The alerts of other wallets' deals, however many, hold up none of a deal that ends before them.
func TestANearDeadlineWaitsForNoOthers(t *testing.T) {
	t.Parallel()
	const others = 400
	api := newService()
	url := telegramAPI(t, api)
	conf := sender.DefaultConfig()
	conf.Hold, conf.Queue = time.Second, 16
	h := newHouseOn(t, brokertest.Start(t, "kfake"), 1, 50, conf, nil)
	funded := func(wallet common.Address, left uint64) {
		sealed, err := h.keys.Seal(wallet, notifier.Telegram, fmt.Sprint(int(wallet[0])*100))
		check(t, err)
		h.send(wallet, notifier.Command{Subscribe: &notifier.Subscribe{Wallet: wallet, Channel: notifier.Telegram, Sealed: sealed, Mask: "m", Prefs: 0x7f, Unix: 1}})
		h.send(wallet, notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: notifier.Deal{
			ID: "7", Borrower: wallet, Cap: "1", FundedAt: h.at, Expiry: h.at + left + 100, GraceEnd: h.at + left + 24*hour, Open: true,
		}}})
	}
	for n := range others {
		funded(common.Address{1, byte(n >> 8), byte(n)}, 48*hour)
	}
	funded(common.Address{2}, hour)
	h.at += 100
	h.everybody(notifier.Command{Tick: &notifier.Tick{Block: h.at, Time: h.at}})
	polltest.Until(t, "all are due", func() bool {
		now, err := h.client.Health(t.Context())
		return err == nil && now.Pending == others+1
	})
	settled := time.Now().Add(notifier.SettleTime)
	polltest.Until(t, "all are due", func() bool { return time.Now().After(settled) })
	h.deliver(50, conf, onlyTelegram(t, url))
	polltest.Until(t, "the deal that ends first is told of", func() bool { return api.told("200", "Deal 7") })
	if n := api.count("100"); n > others/4 {
		t.Errorf("%d of others came before it", n)
	}
}
