package sender_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics/polltest"
)

// An alert to an address whose key was removed too early waits for it, however many attempts there could have been.
func TestAlertWaitsForItsKey(t *testing.T) {
	t.Parallel()
	api := newService()
	url := telegramAPI(t, api)
	conf := impatient()
	conf.Attempts, conf.LastWait = 2, 10*time.Millisecond
	h := newHouse(t, conf, onlyTelegram(t, url))
	gone, err := notifier.ParseKeys("9:" + strings.Repeat("99", 32))
	check(t, err)
	waits, told := common.Address{1}, common.Address{2}
	sealed, err := gone.Seal(waits, notifier.Telegram, "101")
	check(t, err)
	h.subscribe(told, notifier.Telegram, "102", "m")
	_, err = h.client.Subscribe(t.Context(), &notifier.Subscribe{ID: notifier.ID{1}, Wallet: waits, Channel: notifier.Telegram, Sealed: sealed, Mask: "m", Prefs: 0x7f, Unix: 1})
	check(t, err)
	h.fire(waits, told)
	polltest.Until(t, "the other is told", func() bool { return api.told("102", "Deal 7") })
	polltest.Until(t, "only that waits whose key is missing", func() bool {
		now, err := h.client.Health(t.Context())
		return err == nil && now.Pending == 1 && now.SentLastHour == 1
	})
	again, err := h.keys.Seal(waits, notifier.Telegram, "101") // as with the key put back
	check(t, err)
	h.send(waits, notifier.Command{Reseal: &notifier.Reseal{Wallet: waits, Channel: notifier.Telegram, Was: sealed, Sealed: again}})
	h.settled(2)
	if !api.told("101", "Deal 7") {
		t.Errorf("told were %q", api.taken["101"])
	}
}
