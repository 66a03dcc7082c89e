package simulation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// firstChat is the chat of the first wallet of a ledger; the others follow.
const firstChat = 100

// fundingOf is the funding on the chain that an alert is of; nil: there is none. On another branch the deal may have been funded at
// another time, or by another.
func (n *node) fundingOf(a alert) *funding {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, hash := range slices.Backward(n.canonical) {
		for _, f := range n.rec.ledger.funded[hash] {
			if f.deal == a.deal && f.due(a.stage) == a.due(a.stage) && slices.Contains(f.parties(), a.wallet) {
				return f
			}
		}
	}
	return nil
}

// hoursLeft is how a text names its stage before the expiry.
var hoursLeft = regexp.MustCompile(`^Deal \d+ expires in (\d+) hours?\n`)

// wrong is what is wrong with the chat or the text of an alert; empty: nothing is. It names the deal, its times and what this party
// can do.
func (a alert) wrong(l *ledger, chat, text string) string {
	at := func(unix uint64) string { return time.Unix(int64(unix), 0).UTC().Format("2 January 2006, 15:04 UTC") }
	says := func(what ...any) bool { return strings.Contains(text, fmt.Sprint(what...)) }
	over := says("The grace period of deal ", a.deal, " ended on ", at(a.graceEnd), ".\n")
	ends := says("Deal ", a.deal, " expires on ", at(a.expiry), "; its grace period ends on ", at(a.graceEnd), ".\n") ||
		says("Deal ", a.deal, " expired on ", at(a.expiry), "; its grace period ends on ", at(a.graceEnd), ".\n")
	lender := over && says("You may claim the collateral") || ends && says("\nThe borrower can repay ")
	borrower := over && says("The lender may claim the collateral") || ends && says("\nRepay ")
	hours := hoursLeft.FindStringSubmatch(text)
	switch {
	case chat != fmt.Sprint(firstChat+slices.Index(l.wallets, a.wallet)):
		return "it is another wallet's chat"
	case !over && !ends:
		return "it names another deal, or other times"
	case (!lender || a.wallet != a.lender) && (!borrower || a.wallet != a.borrower):
		return "it is for another party"
	case hours != nil && "t"+hours[1] != stages[a.stage].kind:
		return "it is of another stage"
	}
	return ""
}
