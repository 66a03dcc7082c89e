package sender_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/SherClockHolmes/webpush-go"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// flood is how many subscriptions a stranger has, each of a wallet of its own, and all of them on one channel.
const flood = 12_000

// storm subscribes a stranger to everything, by as many hosts, and has an epoch open.
func (h *house) storm(channel notifier.Channel, address string, hosts int) {
	h.t.Helper()
	var g errgroup.Group
	g.SetLimit(64)
	for i := range uint64(flood) {
		g.Go(func() error {
			wallet := common.BytesToAddress(crypto.Keccak256(binary.BigEndian.AppendUint64(nil, i)))
			sealed, err := h.keys.Seal(wallet, channel, address)
			if err != nil {
				return err
			}
			mask := fmt.Sprintf("of%d.stranger%d.example", i, i%uint64(hosts))
			cmd := notifier.Command{Subscribe: &notifier.Subscribe{Wallet: wallet, Channel: channel, Sealed: sealed, Mask: mask, Prefs: 0x7f, Unix: 1}}
			rec, err := cmd.Record(h.cat, wallet)
			if err == nil {
				_, err = h.producer.Send(h.t.Context(), rec)
			}
			return err
		})
	}
	check(h.t, g.Wait())
	h.everybody(notifier.Command{News: &notifier.News{Stage: notifier.EpochOpen, Epoch: 1, At: h.at, StartsAt: h.at, EndsAt: h.at + 7*24*hour, Budget7: "1", Budget21: "1"}})
	for range 2 { // a tick announces so many
		h.at += 10
		h.everybody(notifier.Command{Tick: &notifier.Tick{Block: h.at, Time: h.at}})
	}
	polltest.Until(h.t, "the stranger is due everything", func() bool {
		now, err := h.client.Health(h.t.Context())
		return err == nil && now.Pending+now.SentLastHour >= flood-500
	})
}

// An alert of a deal is sent, whatever other wallets have subscribed to on push services that never answer.
func TestASlowHostStopsNobody(t *testing.T) {
	for _, hosts := range []int{1, 1000} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) { testSlowHosts(t, hosts) })
	}
}

func testSlowHosts(t *testing.T, hosts int) {
	push, conf := newService(), sender.DefaultConfig() // an attempt that hangs takes half a minute
	conf.Scan = flood / 10                             // nor does a scan go through all of its due alerts
	h, url := pushHouseOf(t, conf, push.hangsFor("stranger"))
	ann, bob := common.Address{1}, common.Address{2}
	for wallet, who := range map[common.Address]string{ann: "ann", bob: "bob"} {
		h.subscribe(wallet, notifier.Push, newBrowser(t).subscription(url+"/"+who), who+".push.example")
	}
	h.storm(notifier.Push, newBrowser(t).subscription(url+"/stranger"), hosts)
	most := min(hosts, conf.Parallel/4/2) // they are on probation, and asked for news
	polltest.Until(t, "the stranger's hosts are asked as often as they may", func() bool { return push.count("stranger") >= most })
	began := time.Now()
	h.fire(ann, bob)
	polltest.Until(t, "both are told of their deals", func() bool {
		return push.told("ann", alertDue(ann, "push", h.at)) && push.told("bob", alertDue(bob, "push", h.at))
	})
	if took := time.Since(began); took > conf.Timeout/2 {
		t.Errorf("they waited %s for a stranger", took)
	}
	if n := push.count("stranger"); n > most {
		t.Errorf("the stranger's hosts were asked %d times at once", n)
	}
}

// An alert of a deal is sent, whatever other wallets are due at two push services that answer slowly.
func TestSlowSitesHoldNobody(t *testing.T) {
	const slow, each, soon = 4 * time.Second, 300, 12
	push := newService()
	h, url := pushHouse(t, func(w http.ResponseWriter, r *http.Request) {
		who := strings.TrimPrefix(r.URL.Path, "/")
		push.next(who)
		if strings.HasPrefix(who, "stranger") && push.count(who) > soon {
			select {
			case <-time.After(slow):
			case <-r.Context().Done():
			}
		}
		push.take(who, r.Header.Get("Topic"))
		w.WriteHeader(http.StatusCreated)
	})
	ann, strangers := common.Address{1}, []common.Address{{3}, {4}}
	h.subscribe(ann, notifier.Push, newBrowser(t).subscription(url+"/ann"), "ann.push.example")
	for i, wallet := range strangers {
		h.subscribe(wallet, notifier.Push, newBrowser(t).subscription(fmt.Sprintf("%s/stranger%d", url, i)), fmt.Sprintf("push.site%d.example", i))
	}
	for i := range each {
		for _, wallet := range strangers {
			h.send(wallet, notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: notifier.Deal{
				ID: fmt.Sprint(1000 + i), Borrower: strangers[0], Lender: strangers[1], Cap: "1",
				FundedAt: h.at, Expiry: h.at + 7*hour, GraceEnd: h.at + 31*hour, Open: true,
			}}})
		}
	}
	h.at += hour
	h.everybody(notifier.Command{Tick: &notifier.Tick{Block: h.at, Time: h.at}})
	polltest.Until(t, "the strangers' services are slow", func() bool {
		return push.count("stranger0") >= soon+8 && push.count("stranger1") >= soon+8
	})
	h.soon(push, "ann", ann)
}

// Nor do the deals of strangers hold up those at a service that has answered, on however many hosts that never do. The
// operator is not paged for them.
func TestDealsOnSilentHostsHoldNobody(t *testing.T) {
	const strangers = 24
	push := newService()
	h, url := pushHouse(t, push.hangsFor("stranger"))
	ann, bob := common.Address{1}, common.Address{2}
	for wallet, who := range map[common.Address]string{ann: "ann", bob: "bob"} {
		h.subscribe(wallet, notifier.Push, newBrowser(t).subscription(url+"/"+who), who+".push.example")
	}
	h.soon(push, "bob", bob)
	most := strangersFire(t, h, push, url, "of.stranger%d.example", strangers)
	h.soon(push, "ann", ann)
	if n := push.count("stranger"); n > most {
		t.Errorf("the strangers' hosts were asked %d times at once", n)
	}
	if n := h.gauge("lienstream_sender_due_alerts", "channel", "push"); n < strangers {
		t.Errorf("%v alerts are due, of %d strangers", n, strangers)
	}
	if age := h.gauge("lienstream_sender_oldest_due_seconds", "channel", "push"); age > 1 {
		t.Errorf("the oldest that counts has waited for %v s", age)
	}
}

// A push service that browsers have is trusted before it has answered anything: its alerts do not wait behind made-up
// hosts that never answer.
func TestKnownPushServicesNeedNoTrial(t *testing.T) {
	const strangers = 24
	push := newService()
	h, url := pushHouse(t, push.hangsFor("stranger"))
	known := []string{"fcm.googleapis.com", "updates.push.services.mozilla.com", "web.push.apple.com"}
	wallets := make([]common.Address, len(known))
	for i, host := range known {
		wallets[i] = common.Address{1, byte(i)}
		h.subscribe(wallets[i], notifier.Push, newBrowser(t).subscription(url+"/"+host), host)
	}
	strangersFire(t, h, push, url, "of.stranger%d.example", strangers)
	for i, host := range known {
		h.soon(push, host, wallets[i])
	}
}

// Hosts that strangers make up below a push service cost it nothing.
func TestHostsBelowAServiceAreOthers(t *testing.T) {
	push := newService()
	h, url := pushHouse(t, push.hangsFor("stranger"))
	ann := common.Address{1}
	h.subscribe(ann, notifier.Push, newBrowser(t).subscription(url+"/ann"), "fcm.googleapis.com")
	strangersFire(t, h, push, url, "nosuch%d.fcm.googleapis.com", 24)
	h.soon(push, "ann", ann)
}

// strangersFire fires alerts of so many strangers, each at a host of its own that never answers, and waits until these
// are asked as often as they may, which it returns.
func strangersFire(t *testing.T, h *house, push *service, url, hosts string, strangers byte) (most int) {
	t.Helper()
	never := newBrowser(t).subscription(url + "/stranger")
	var others []common.Address
	for i := range strangers {
		others = append(others, common.Address{0xa0, i})
		h.send(others[i], notifier.Command{Subscribe: subscribed(t, h, others[i], never, fmt.Sprintf(hosts, i))})
	}
	h.fire(others...)
	most = sender.DefaultConfig().Parallel / 4
	polltest.Until(t, "the strangers' hosts are asked as often as they may", func() bool { return push.count("stranger") >= most })
	return most
}

// subscribed is the command by which a wallet has alerts of everything sent to a browser.
func subscribed(t *testing.T, h *house, wallet common.Address, address, mask string) *notifier.Subscribe {
	t.Helper()
	sealed, err := h.keys.Seal(wallet, notifier.Push, address)
	check(t, err)
	return &notifier.Subscribe{Wallet: wallet, Channel: notifier.Push, Sealed: sealed, Mask: mask, Prefs: 0x7f, Unix: 1}
}

// News of strangers at the very push service that others have wait behind those at hosts that never answer. They hold
// nothing meanwhile that alerts of deals at that service need.
func TestNewsHoldNoSite(t *testing.T) {
	push := newService()
	h, url := pushHouse(t, push.hangsFor("hangs"))
	ann := common.Address{1}
	h.subscribe(ann, notifier.Push, newBrowser(t).subscription(url+"/ann"), "ann.push.example")
	var others []common.Address // by whom the service has shown that it answers
	for i := range byte(12) {
		wallet := common.Address{0xa0 + i}
		others = append(others, wallet)
		h.subscribe(wallet, notifier.Push, newBrowser(t).subscription(url+"/others"), "others.push.example")
	}
	h.fire(others...)
	h.settled(len(others))
	never, fake := newBrowser(t).subscription(url+"/hangs"), newBrowser(t).subscription(url+"/fake")
	for i := range uint64(600) {
		wallet := common.BytesToAddress(crypto.Keccak256(binary.BigEndian.AppendUint64(nil, i)))
		address, mask := never, fmt.Sprintf("of.stranger%d.example", i%100)
		if i%2 == 0 {
			address, mask = fake, "fake.push.example"
		}
		sealed, err := h.keys.Seal(wallet, notifier.Push, address)
		check(t, err)
		h.send(wallet, notifier.Command{Subscribe: &notifier.Subscribe{Wallet: wallet, Channel: notifier.Push, Sealed: sealed, Mask: mask, Prefs: 0x7f, Unix: 1}})
	}
	h.everybody(notifier.Command{News: &notifier.News{Stage: notifier.EpochOpen, Epoch: 1, At: h.at, StartsAt: h.at, EndsAt: h.at + 7*24*hour, Budget7: "1", Budget21: "1"}})
	for range 2 {
		h.at += 10
		h.everybody(notifier.Command{Tick: &notifier.Tick{Block: h.at, Time: h.at}})
	}
	polltest.Until(t, "hosts that never answer are asked as often as they may", func() bool {
		return push.count("hangs") >= sender.DefaultConfig().Parallel/4/2
	})
	h.soon(push, "ann", ann)
}

// hangsFor takes what all get but one, whom it answers nothing.
func (s *service) hangsFor(one string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who := strings.TrimPrefix(r.URL.Path, "/")
		if s.next(who); who == one {
			hangs(w, r)
			return
		}
		s.take(who, r.Header.Get("Topic"))
		w.WriteHeader(http.StatusCreated)
	}
}

// pushHouse is a house with a push service alone.
func pushHouse(t *testing.T, answer http.HandlerFunc) (h *house, url string) {
	t.Helper()
	return pushHouseOf(t, sender.DefaultConfig(), answer)
}

func pushHouseOf(t *testing.T, conf sender.Config, answer http.HandlerFunc) (h *house, url string) {
	t.Helper()
	private, _, err := webpush.GenerateVAPIDKeys()
	check(t, err)
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return newHouse(t, conf, func(*notifier.Keys) map[notifier.Channel]sender.Channel {
		channel, err := sender.NewPush(sender.PushConfig{
			Private: private, Contact: "ops@lien.example", AllowLoopback: true, TLS: &tls.Config{RootCAs: roots}, Links: links,
		})
		check(t, err)
		return map[notifier.Channel]sender.Channel{notifier.Push: channel}
	}), server.URL
}

// soon fires an alert of a deal, and it comes long before another wallet's attempt ends.
func (h *house) soon(push *service, who string, wallet common.Address) {
	h.t.Helper()
	began := time.Now()
	h.fire(wallet)
	polltest.Within(h.t, sender.DefaultConfig().Timeout/2, func() error {
		if !push.told(who, alertDue(wallet, "push", h.at)) {
			return fmt.Errorf("%s waits for %s", who, time.Since(began))
		}
		return nil
	})
}

// Most browsers have one of a few push services: one that answers gets what is due at the channel's rate, not what few
// attempts at each look come to.
func TestAPushServiceThatAnswers(t *testing.T) {
	private, _, err := webpush.GenerateVAPIDKeys()
	check(t, err)
	push := newService()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		push.take("all", r.Header.Get("Topic"))
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	conf := sender.DefaultConfig()
	conf.Hold = time.Second
	h := newHouse(t, conf, nil)
	const due = 200
	var wallets []common.Address
	address := newBrowser(t).subscription(server.URL + "/all")
	for i := range uint64(due) {
		wallet := common.BytesToAddress(crypto.Keccak256(binary.BigEndian.AppendUint64(nil, i)))
		wallets = append(wallets, wallet)
		sealed, err := h.keys.Seal(wallet, notifier.Push, address)
		check(t, err)
		h.send(wallet, notifier.Command{Subscribe: &notifier.Subscribe{Wallet: wallet, Channel: notifier.Push, Sealed: sealed, Mask: "push.example", Prefs: 0x7f, Unix: 1}})
	}
	h.fire(wallets...)
	h.look = conf.Look
	began := time.Now()
	h.deliver(100, conf, func(*notifier.Keys) map[notifier.Channel]sender.Channel {
		channel, err := sender.NewPush(sender.PushConfig{
			Private: private, Contact: "ops@lien.example", AllowLoopback: true, TLS: &tls.Config{RootCAs: roots}, Links: links,
		})
		check(t, err)
		return map[notifier.Channel]sender.Channel{notifier.Push: channel}
	})
	h.settled(due)
	if took, most := time.Since(began), time.Duration(due/conf.PerHost)*conf.Look/2; took > most {
		t.Errorf("%d alerts took %s, want %s", due, took, most)
	}
}

// Nor do many that a channel's rate holds back, in whichever partition.
func TestALimitedChannelTellsOfDealsFirst(t *testing.T) {
	api := newService()
	url := telegramAPI(t, api)
	conf := impatient()
	conf.Hold = time.Second
	h := newHouseOn(t, brokertest.Start(t, "kfake"), 4, 100, conf, onlyTelegram(t, url))
	told := map[string]common.Address{} // one in each partition
	for p := range h.cat.Partitions {
		wallet := common.Address{1}
		for topics.Partition(wallet[:], h.cat.Partitions) != p {
			wallet[1]++
		}
		who := fmt.Sprint(100 + p)
		told[who] = wallet
		h.subscribe(wallet, notifier.Telegram, who, "m")
	}
	h.storm(notifier.Telegram, "666", 1)
	h.fire(slices.Collect(maps.Values(told))...)
	for who := range told {
		polltest.Until(t, "the deal is told of", func() bool { return api.told(who, "Deal 7") })
	}
	if n := api.count("666"); n > flood/2 {
		t.Errorf("%d others came before it", n)
	}
}

// told reports whether a customer has a message that says this.
func (s *service) told(who, what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.taken[who], func(m string) bool { return strings.Contains(m, what) })
}
