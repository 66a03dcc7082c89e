package sender_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// While Kafka is away the chain goes on. What waited since before is not sent once it is back, before the notifier has been
// told what happened meanwhile: here one deal of two has ended.
func TestKafkaIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	api := newService()
	url := telegramAPI(t, api)
	conf := impatient()
	conf.LastWait, conf.Hold = time.Second, time.Hour // however long the broker takes
	kafka := brokertest.Apache(t)
	h := newHouseOn(t, kafka.Addrs(), 1, rate.Inf, conf, onlyTelegram(t, url))
	ended, open := common.Address{1}, common.Address{2}
	h.subscribe(ended, notifier.Telegram, "101", "m")
	h.subscribe(open, notifier.Telegram, "102", "m")
	refuses := says(http.StatusBadGateway, "{}")
	api.mu.Lock()
	for _, who := range []string{"101", "102"} {
		for range 1000 {
			api.answers[who] = append(api.answers[who], refuses)
		}
	}
	api.mu.Unlock()
	h.fire(ended, open)
	polltest.Until(t, "the receiver has refused both", func() bool { return api.count("101") > 0 && api.count("102") > 0 })

	kafka.Kill()
	polltest.Until(t, "the notifier has noticed", func() bool { return h.restarts() > 0 })
	api.mu.Lock()
	api.answers = map[string][]func(http.ResponseWriter, *http.Request){}
	api.mu.Unlock()
	check(t, kafka.Restart(t.Context()))
	h.subscribe(common.Address{3}, notifier.Telegram, "103", "m") // the notifier is back
	told := time.Now().Add(2 * time.Second)
	polltest.Until(t, "it has had time to send", func() bool { return time.Now().After(told) })
	h.send(ended, notifier.Command{Fact: &notifier.Fact{Wallet: ended, Deal: notifier.Deal{
		ID: "7", Borrower: ended, Lender: common.Address{0xff}, Cap: "1234500000", FundedAt: genesis, Expiry: genesis + 7*hour, GraceEnd: genesis + 31*hour,
	}, At: h.at + 60}})
	h.everybody(notifier.Command{Tick: &notifier.Tick{Block: h.at + 60, Time: h.at + 60}})
	h.settled(1)
	if !api.told("102", "Deal 7") || api.told("101", "Deal 7") {
		t.Errorf("told were %q and %q", api.taken["101"], api.taken["102"])
	}
}
