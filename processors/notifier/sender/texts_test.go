package sender

import (
	"strings"
	"testing"

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
	for _, c := range []struct {
		stage   notifier.Stage
		wallet  common.Address
		late    uint64
		subject string
		says    []string
	}{
		{notifier.Before48, ann, 0, "Deal 7 expires in 48 hours", []string{"Repay 1234.5 USDG", "18 May 2033, 03:33 UTC", "https://app.example/deals/7"}},
		{notifier.Before1, bob, 601, "Late: deal 7 expires on 18 May 2033, 03:33 UTC", []string{"This message is late.", "The borrower can repay 1234.5 USDG", "you may claim"}},
		{notifier.AtExpiry, ann, 600, "Deal 7 has expired", []string{"expired on 18 May 2033, 03:33 UTC", "19 May 2033, 03:33 UTC"}},
		{notifier.AtGraceEnd, bob, 0, "Deal 7: the grace period has ended", []string{"You may claim the collateral now."}},
		{notifier.EpochOpen, ann, 0, "Epoch 12 has opened", []string{"1 sTKN for 7-day deals, 2.5 sTKN for 21-day deals", "25 May 2033", "https://app.example/epochs"}},
		{notifier.Budget90, ann, 0, "Epoch 12: 90 % of the rewards for 21-day deals are reserved", []string{"2.25 sTKN of 2.5 sTKN"}},
		{notifier.Budget100, ann, 0, "Epoch 12: all rewards for 21-day deals are reserved", []string{"earns no reward"}},
	} {
		alert := notifier.Alert{Deal: deal, Stage: c.stage, Due: 2_000_000_000, FiredAt: 2_000_000_000 + c.late}
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
		if late := strings.Contains(text.Body, "This message is late."); late != (c.late > 600) || late != strings.Contains(text.HTML, "This message is late.") {
			t.Errorf("%s: late is %v in %q", c.stage, late, text.Body)
		}
	}
}
