package sender_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

func noChannels(*notifier.Keys) map[notifier.Channel]sender.Channel { return nil }

// Where subscriptions are to a channel that has no flags, the operator is told, and what is due of it is seen to wait. It does not
// wait for ever.
func TestAChannelWithoutFlags(t *testing.T) {
	t.Parallel()
	conf := sender.DefaultConfig()
	conf.Hold, conf.Keep = time.Second, 3*time.Second
	h := newHouseOn(t, brokertest.Start(t, "kfake"), 1, rate.Inf, conf, nil)
	ann := common.Address{1}
	h.subscribe(ann, notifier.Push, "{}", "m")
	h.deliver(rate.Inf, conf, noChannels)
	polltest.Until(t, "the operator is warned", func() bool { return h.logged.FilterMessageSnippet("is not configured").Len() > 0 })
	if all := h.logged.All(); len(all) != 1 || all[0].ContextMap()["channel"] != "push" {
		t.Errorf("warnings: %v", all)
	}
	h.fire(ann)
	polltest.Until(t, "what is due is counted", func() bool {
		return h.gauge("lienstream_sender_due_alerts", "channel", "push") == 1 && h.gauge("lienstream_sender_oldest_due_seconds", "channel", "push") > 0
	})
	if n := h.gauge("lienstream_sender_due_alerts", "channel", "email"); n != 0 {
		t.Errorf("%v mails are due", n)
	}
	h.settled(0)
	polltest.Until(t, "nothing is due", func() bool { return h.gauge("lienstream_sender_due_alerts", "channel", "push") == 0 })
	if why := h.lastReport(); why.Result != notifier.Dead || why.Reason != "nobody could send it in 3s" {
		t.Errorf("reported was %+v", why)
	}
	if n := h.gauge("lienstream_sender_attempts_total", "result", "unsent"); n != 1 {
		t.Errorf("%v dead letters are counted", n)
	}
	if why := h.disabled(ann); why != "" {
		t.Errorf("the subscription is disabled: %s", why)
	}
}

// News of an epoch that has ended are given up: they are no longer true.
func TestNewsOfAnEpochThatIsOver(t *testing.T) {
	api := newService()
	url := telegramAPI(t, api)
	conf := impatient()
	conf.Hold = time.Second
	h := newHouseOn(t, brokertest.Start(t, "kfake"), 1, rate.Inf, conf, nil)
	h.subscribe(common.Address{1}, notifier.Telegram, "101", "m")
	h.everybody(notifier.Command{News: &notifier.News{Stage: notifier.EpochOpen, Epoch: 1, At: h.at, StartsAt: h.at, EndsAt: h.at + hour, Budget7: "1", Budget21: "1"}})
	for _, at := range []uint64{h.at + 10, h.at + hour} {
		h.everybody(notifier.Command{Tick: &notifier.Tick{Block: at, Time: at}})
	}
	h.deliver(rate.Inf, conf, onlyTelegram(t, url))
	polltest.Until(t, "it was fired", func() bool { return h.published("") })
	polltest.Until(t, "it is reported", func() bool { return h.lastReport().Result != 0 }) // nothing is pending before the alert is applied either
	h.settled(0)
	if why := h.lastReport(); why.Result != notifier.Dead || why.Reason != "the epoch is over" || api.count("101") != 0 {
		t.Errorf("reported was %+v, after %d attempts", why, api.count("101"))
	}
}

// lastReport is the last that the sender has reported of an attempt.
func (h *house) lastReport() (last notifier.Delivery) {
	h.t.Helper()
	check(h.t, kafka.ReadBack(h.t.Context(), h.cfg, h.cat.Commands(topics.AppNotifier), 0, 0, func(r *kafka.Record) bool {
		var cmd notifier.Command
		check(h.t, json.Unmarshal(r.Value[1:len(r.Value)-1], &cmd))
		if cmd.Report != nil {
			last = *cmd.Report
		}
		return cmd.Report == nil
	}))
	return last
}

// A channel is used no more often than its rate allows.
func TestRate(t *testing.T) {
	const perSecond, alerts = 20, 12
	api := newService()
	url := telegramAPI(t, api)
	conf := impatient()
	conf.Hold = time.Second
	h := newHouseOn(t, brokertest.Start(t, "kfake"), 1, perSecond, conf, onlyTelegram(t, url))
	var wallets []common.Address
	for i := range alerts {
		wallets = append(wallets, common.Address{byte(i + 1)})
		h.subscribe(wallets[i], notifier.Telegram, "101", "m")
	}
	h.fire(wallets...)
	h.settled(alerts)
	api.mu.Lock()
	defer api.mu.Unlock()
	came := api.came["101"] // later than they were let through, each by as much as the machine is busy
	if took, least := came[len(came)-1].Sub(came[0]), (alerts-1)*time.Second/perSecond/2; len(came) != alerts || took < least {
		t.Errorf("%d alerts in %s, want %s at least", len(came), took, least)
	}
}
