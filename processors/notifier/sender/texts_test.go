package sender

import (
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
)

// Every kind says what, when and how much, to both parties; one that is late says so.
func TestTexts(t *testing.T) {
	ann, bob := common.Address{1}, common.Address{2}
	deal := &notifier.Deal{ID: "7", Borrower: ann, Lender: bob, Cap: "1234500000", Expiry: 2_000_000_000, GraceEnd: 2_000_086_400}
	news := &notifier.News{
		Epoch: 12, StartsAt: 2_000_000_000, EndsAt: 2_000_604_800, Term: 21 * 24 * 3600,
		Budget7: "1000000000000000000", Budget21: "2500000000000000000", Reserved: "2250000000000000000",
	}
	const minute, day = 60, 24 * 3600
	for _, c := range []struct {
		stage   notifier.Stage
		wallet  common.Address
		due     uint64
		late    uint64
		subject string
		says    []string
	}{
		{notifier.Before48, ann, deal.Expiry - 2*day, 0, "Deal 7 expires in 48 hours", []string{"Repay 1234.5 USDG", "expires on 18 May 2033, 03:33 UTC", "https://app.example/deals/7"}},
		{notifier.Before1, bob, deal.Expiry - 60*minute, 601, "Late: deal 7 expires on 18 May 2033, 03:33 UTC", []string{"The borrower can repay 1234.5 USDG", "you may claim"}},
		{notifier.AtExpiry, ann, deal.Expiry, 600, "Deal 7 has expired", []string{"expired on 18 May 2033, 03:33 UTC", "19 May 2033, 03:33 UTC"}},
		{notifier.AtGraceEnd, bob, deal.GraceEnd, 0, "Deal 7: the grace period has ended", []string{"You may claim the collateral now."}},
		// So late that what it was to warn of has come.
		{notifier.Before1, ann, deal.Expiry - 60*minute, 61 * minute, "Deal 7 has expired", []string{"expired on 18 May 2033, 03:33 UTC", "Repay 1234.5 USDG before"}},
		{notifier.Before24, ann, deal.Expiry - day, 2 * day, "Deal 7: the grace period has ended", []string{"The lender may claim the collateral now."}},
		{notifier.AtExpiry, bob, deal.Expiry, day, "Deal 7: the grace period has ended", []string{"You may claim the collateral now."}},
		{notifier.EpochOpen, ann, deal.Expiry, 0, "Epoch 12 has opened", []string{"1 sTKN for 7-day deals, 2.5 sTKN for 21-day deals", "25 May 2033", "https://app.example/epochs"}},
		{notifier.Budget90, ann, deal.Expiry, 0, "Epoch 12: 90 % of the rewards for 21-day deals are reserved", []string{"2.25 sTKN of 2.5 sTKN"}},
		{notifier.Budget100, ann, deal.Expiry, 0, "Epoch 12: all rewards for 21-day deals are reserved", []string{"earns no reward"}},
	} {
		alert := notifier.Alert{Deal: deal, Stage: c.stage, Due: c.due, FiredAt: c.due + c.late}
		if c.stage >= notifier.EpochOpen {
			alert.Deal, alert.News = nil, news
		}
		event := alert.Event(notifier.Address{Wallet: c.wallet, Channel: notifier.Email, Stage: c.stage})
		text, err := render(&Message{Alert: alert, Event: event}, Links{App: "https://app.example/"})
		if err != nil {
			t.Fatal(err)
		}
		if text.Subject != c.subject {
			t.Errorf("%s: subject %q", c.stage, text.Subject)
		}
		for _, part := range c.says {
			if !strings.Contains(text.Body, part) {
				t.Errorf("%s: %q lacks %q", c.stage, text.Body, part)
			}
		}
		if c.due+c.late >= deal.GraceEnd && c.stage < notifier.EpochOpen && strings.Contains(text.Body+text.HTML, "epay") {
			t.Errorf("%s: after the grace period nobody can repay: %q", c.stage, text.Body)
		}
		if late := strings.Contains(text.Body, "This message is late."); late != (c.late > 600) || late != strings.Contains(text.HTML, "This message is late.") {
			t.Errorf("%s: late is %v in %q", c.stage, late, text.Body)
		}
	}
}

// News that were retracted and are true again since are late by the time since when they are.
func TestNewsThatAreTrueAgainAreNotLate(t *testing.T) {
	alert := notifier.Alert{News: &notifier.News{Stage: notifier.Budget100, Epoch: 12, Term: 7 * 24 * 3600, At: 5000}, Stage: notifier.Budget100, Due: 1000, FiredAt: 1010}
	event := alert.Event(notifier.Address{Channel: notifier.Email, Stage: alert.Stage})
	for now, late := range map[uint64]bool{5600: false, 5601: true} {
		text, err := render(&Message{Alert: alert, Event: event, Now: now}, Links{})
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(text.Body, "This message is late."); says != late {
			t.Errorf("at %d: late is %v", now, says)
		}
	}
}

// A receiver that is away for half a day loses no alert.
func TestPatience(t *testing.T) {
	s := &Sender{cfg: DefaultConfig()}
	least := time.Duration(0)
	for d := new(due); ; d.alert.Attempt++ {
		began := time.Now()
		r := s.outcome(d, &Failure{Reason: "away"})
		if r.Result == notifier.Dead {
			break
		}
		if r.Result != notifier.Retry || d.alert.Attempt > 1000 {
			t.Fatalf("attempt %d: result %d", d.alert.Attempt, r.Result)
		}
		least += time.UnixMilli(r.Next).Sub(began)
	}
	if least < 12*time.Hour {
		t.Errorf("an alert is given up after %s", least)
	}
}

// All hosts that the owner of a domain can make up share the limit of one site; those under a public suffix do not.
func TestSites(t *testing.T) {
	for host, want := range map[string]string{
		"a.evil.example.com": "example.com", "B.example.com.": "example.com", "x.co.uk": "x.co.uk", "203.0.113.7": "203.0.113.0/24",
		"2001:db8:1:2::3": "2001:db8:1::/48", "com": "com", "push.services.mozilla.com": "mozilla.com",
		"updates.push.services.mozilla.com": "updates.push.services.mozilla.com", "fcm.googleapis.com": "fcm.googleapis.com",
		"web.push.apple.com": "web.push.apple.com", "db5p.Notify.Windows.com.": "db5p.notify.windows.com",
		"evilnotify.windows.com": "windows.com", "nosuch.fcm.googleapis.com": "nosuch.fcm.googleapis.com", "notify.windows.com.evil.example": "evil.example",
		"ｅvil.example.com": "example.com", "a.bücher.example": "xn--bcher-kva.example", "BÜCHER.example": "xn--bcher-kva.example",
		"updates.push。services.mozilla.com": "updates.push.services.mozilla.com", "２０３.0.113.7": "203.0.113.0/24", "one.github.io": "one.github.io", "a.two.github.io": "two.github.io",
	} {
		if got := siteOf(host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
