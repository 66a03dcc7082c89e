package sender_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics/polltest"
)

// What another node may be sending is left to it: until it reports, or its attempt must have ended. What it reports
// later counts only if it was sent.
func TestClaims(t *testing.T) {
	t.Parallel()
	api := newService()
	url := telegramAPI(t, api)
	conf := impatient()
	h := newHouse(t, conf, onlyTelegram(t, url))
	lost, reported, late := common.Address{1}, common.Address{2}, common.Address{3}
	row := func(wallet common.Address) []byte {
		return notifier.Address{Wallet: wallet, Channel: notifier.Telegram, Subject: uint256.NewInt(7).Bytes32(), Stage: notifier.Before6}.Row()
	}
	report := func(wallet common.Address, result notifier.Result) {
		h.send(wallet, notifier.Command{Report: &notifier.Delivery{
			Wallet: wallet, Row: row(wallet), FiredAt: genesis + hour, By: "another", Result: result, Next: time.Now().Add(time.Hour).UnixMilli(),
		}})
	}
	claim := func(wallet common.Address, by, over string) {
		h.send(wallet, notifier.Command{Claim: &notifier.Claim{Wallet: wallet, Row: row(wallet), FiredAt: genesis + hour, By: by, Lapsed: over}})
	}
	for i, wallet := range []common.Address{lost, reported, late} {
		h.subscribe(wallet, notifier.Telegram, []string{"101", "102", "103"}[i], "m")
	}
	api.answers["103"] = []func(http.ResponseWriter, *http.Request){hangs}
	h.fire(lost, reported, late)
	began := time.Now() // before it is due
	for _, wallet := range []common.Address{lost, reported, late} {
		claim(wallet, "another", "")
		claim(wallet, "a second", "")           // comes too late
		claim(wallet, "a third", "what is not") // takes over nothing
	}
	report(reported, notifier.Sent)
	polltest.Until(t, "the claim of another has lapsed", func() bool { return api.count("103") > 0 })
	claim(late, "another", "") // while we send it
	report(late, notifier.Retry)
	h.settled(3)
	if n := api.count("102"); n != 0 {
		t.Errorf("what another has sent was sent %d times more", n)
	}
	if n := api.count("101"); n != 1 {
		t.Errorf("what another has left was sent %d times", n)
	}
	if n := api.count("103"); n != 2 { // it hung once
		t.Errorf("what another reports too late was sent %d times", n)
	}
	if at := api.first("101"); at.Sub(began) < notifier.SettleTime+conf.Timeout {
		t.Errorf("it was taken over after %s", at.Sub(began))
	}
}

// Where another node takes over what we are slow to report, and dies, we try again: our report is ignored, and is not waited for.
func TestTheNodeThatTookOverDies(t *testing.T) {
	t.Parallel()
	api := newService()
	url := telegramAPI(t, api)
	conf := impatient()
	h := newHouse(t, conf, onlyTelegram(t, url))
	ann, bob := common.Address{1}, common.Address{2}
	row := notifier.Address{Wallet: ann, Channel: notifier.Telegram, Subject: uint256.NewInt(7).Bytes32(), Stage: notifier.Before6}.Row()
	h.subscribe(ann, notifier.Telegram, "101", "m")
	taken := make(chan struct{})
	api.answers["101"] = []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, r *http.Request) {
		<-taken
		says(http.StatusBadGateway, "{}")(w, r)
	}}
	h.fire(ann)
	polltest.Until(t, "we are sending", func() bool { return api.count("101") == 1 })
	view, err := h.node.View(t.Context(), 0, nil)
	check(t, err)
	alert, _, _, err := notifier.Pending(view, row)
	view.Close()
	check(t, err)
	h.send(ann, notifier.Command{Claim: &notifier.Claim{Wallet: ann, Row: row, FiredAt: alert.FiredAt, By: "another", Lapsed: alert.By}})
	h.subscribe(bob, notifier.Telegram, "102", "m") // the claim is applied
	close(taken)
	h.settled(1)
	if n := api.count("101"); n != 2 {
		t.Errorf("it was sent %d times", n)
	}
}

// A claim of this process that was applied too late for its attempt is not waited for, as another's is.
func TestOwnClaimIsClaimedAnew(t *testing.T) {
	t.Parallel()
	api := newService()
	url := telegramAPI(t, api)
	conf := impatient()
	conf.Timeout = time.Hour
	h := newHouse(t, conf, onlyTelegram(t, url))
	ann, bob, cleo := common.Address{1}, common.Address{2}, common.Address{3}
	row := func(wallet common.Address) []byte {
		return notifier.Address{Wallet: wallet, Channel: notifier.Telegram, Subject: uint256.NewInt(7).Bytes32(), Stage: notifier.Before6}.Row()
	}
	for wallet, chat := range map[common.Address]string{ann: "101", bob: "102", cleo: "103"} {
		h.subscribe(wallet, notifier.Telegram, chat, "m")
	}
	ends := make(chan struct{})
	defer close(ends)
	api.answers["101"] = []func(http.ResponseWriter, *http.Request){func(http.ResponseWriter, *http.Request) { <-ends }}
	h.fire(ann)
	polltest.Until(t, "one is being sent", func() bool { return api.count("101") == 1 })
	view, err := h.node.View(t.Context(), 0, nil)
	check(t, err)
	alert, _, _, err := notifier.Pending(view, row(ann))
	view.Close()
	check(t, err)
	process, _, _ := strings.Cut(alert.By, ".")

	firedAt := h.at + hour
	h.ahead = 5 * time.Second // so long the claims have to come before it is due
	h.fire(bob, cleo)
	for wallet, by := range map[common.Address]string{bob: process, cleo: "another"} {
		h.send(wallet, notifier.Command{Claim: &notifier.Claim{Wallet: wallet, Row: row(wallet), FiredAt: firedAt, By: by + ".late"}})
	}
	polltest.Until(t, "what this process has claimed is sent", func() bool { return api.count("102") == 1 })
	if n := api.count("103"); n != 0 {
		t.Errorf("what another has claimed was sent %d times", n)
	}
}

// count is how often a customer was asked for.
func (s *service) count(who string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.came[who])
}

// first is when a customer was first asked for.
func (s *service) first(who string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came[who][0]
}
