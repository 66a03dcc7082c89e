package notifier

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// awaits has the wallet name an address that is to be confirmed.
func (d *desk) awaits(wallet common.Address, prefs Prefs) {
	d.t.Helper()
	d.unix++
	c := asking(wallet, Email, d.unix)
	c.Prefs = prefs
	d.want("asked", d.do(wallet, Command{Await: c}), Accepted)
}

// confirms has the owner of that address confirm it.
func (d *desk) confirms(wallet common.Address) {
	d.t.Helper()
	d.want("confirmed", d.do(wallet, Command{Confirm: &Confirmation{Wallet: wallet, Channel: Email, Unix: d.unix}}), Accepted)
}

// What is due, or comes due, while a wallet's address is not confirmed waits for that: of a deal the nearest threshold, once.
func TestAlertsWaitForAnAddress(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	funded, ended := endingDeal(ann)
	d.do(ann, Command{Fact: funded})
	d.tick(funded.Deal.Expiry - 23*3600)
	d.want("to the first address", d.sendable(), "1 email 7 t24")
	row := Address{ann, Email, common.Hash{31: 7}, Before24}.Row()
	d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, FiredAt: funded.Deal.Expiry - 23*3600, Result: Retry, Next: d.at.UnixMilli() + 1e9, Unix: d.unix}})
	d.awaits(ann, 0x7f)
	d.want("before it is confirmed", d.sendable(), "")
	d.confirms(ann)
	d.want("to the second", d.sendable(), "1 email 7 t24")
	if a, _ := d.pending(Address{ann, Email, common.Hash{31: 7}, Before24}); a.Attempt != 0 || a.Next != d.at.UnixMilli() {
		t.Errorf("the new address waits for what the former one has said: attempt %d, in %d ms", a.Attempt, a.Next-d.at.UnixMilli())
	}

	d.awaits(ann, 0x7f)
	d.tick(funded.Deal.Expiry - 3000)
	d.want("before it is confirmed", d.sendable(), "")
	d.do(ann, Command{Fact: ended})
	d.confirms(ann)
	d.want("of a deal that has ended", d.sendable(), "")
	d.do(ann, Command{Fact: ended, Removed: true})
	d.want("of the nearest", d.sendable(), "1 email 7 t1")

	// What is not wanted any more does not come back.
	d.awaits(ann, Prefs(0).With(Expiry, true))
	d.awaits(ann, 0x7f)
	d.confirms(ann)
	d.want("what was not wanted", d.sendable(), "")
	d.awaits(ann, 0x7f)
	d.tick(funded.Deal.Expiry)
	d.unix++
	d.want("ended", d.do(ann, Command{Unsubscribe: &Unsubscribe{Wallet: ann, Channel: Email, Unix: d.unix}}), Accepted)
	d.subscribe(ann, Email, 0x7f)
	d.want("of a subscription that has ended", d.sendable(), "")
	for id, n := range d.published() {
		if n != 1 {
			t.Errorf("alert %x is published %d times", id, n)
		}
	}
	d.want("published", len(d.published()), 3)
}

// Where an address refuses for good, what waits goes to the next one, and so does what it has refused.
func TestAlertsWaitWhereAnAddressRefuses(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	funded, _ := endingDeal(ann)
	other := *funded
	other.Deal.ID = "8"
	d.do(ann, Command{Fact: funded})
	d.do(ann, Command{Fact: &other})
	d.do(ann, Command{News: &News{Stage: EpochOpen, Epoch: 1, At: 5, StartsAt: 5, EndsAt: 5_000_000}})
	at := funded.Deal.Expiry - 23*3600
	d.tick(at)
	d.want("to the first address", d.sendable(), "1 email 0 epoch, 1 email 7 t24, 1 email 8 t24")
	row := Address{ann, Email, common.Hash{31: 7}, Before24}.Row()
	d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, FiredAt: at, Result: Gone, Reason: "no such mailbox", Unix: d.unix}})
	d.want("to an address that refuses", d.sendable(), "")
	d.want("dead letters", len(d.reasons()), 1)
	d.tick(at + 60)
	d.subscribe(ann, Email, 0x7f)
	d.want("to the next one", d.sendable(), "1 email 7 t24, 1 email 8 t24")
}
