package notifier_test

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics/polltest"
)

// A due alert is fired once, for the subscribed parties, at its time, and only while it is true.
func TestAlerts(t *testing.T) {
	c := newChain(t, 1)
	ann, bob, eve := common.Address{1}, common.Address{2}, common.Address{3}
	c.subscribe(ann, notifier.Email, 1, notifier.Kinds...)
	c.subscribe(bob, notifier.Telegram, 1, notifier.Expiry)
	c.subscribe(bob, notifier.Email, 2, notifier.T6)
	c.subscribe(eve, notifier.Push, 1, notifier.Kinds...) // has no deal

	at := uint64(genesis + 10)
	kept := &deal{1, ann, bob, at, at + 50*hour, at + 74*hour}
	reclaimed := &deal{2, ann, bob, at, at + 60*hour, at + 84*hour}
	reverted := &deal{3, ann, bob, at, at + 49*hour, at + 73*hour}
	short := &deal{4, bob, ann, at, at + 20*hour, at + 44*hour} // its t48 and t24 were past when it was funded
	c.block(10, c.listed(kept), c.listed(reclaimed), c.listed(reverted), c.listed(short))
	c.block(10, c.funded(kept), c.funded(reclaimed), c.funded(short))
	c.block(60, c.funded(reverted))
	c.revert()
	c.block(60)

	// Nothing is due for an hour and more.
	c.block(hour)
	c.block(60)
	c.want()

	due := []common.Hash{model(kept, ann, "email", "t48")}
	c.block(hour) // two hours: 48 h before the first deal ends
	c.block(60)
	c.want(due...)

	// The second is reclaimed before anything of it is due, but for a block that is not safe yet.
	c.block(60, c.log("DealReclaimed", map[string]any{"dealId": amount(2).ToBig(), "borrower": ann, "lender": bob}))
	c.block(12 * hour)
	c.block(60) // six hours before the short one ends
	due = append(due, model(short, ann, "email", "t6"), model(short, bob, "email", "t6"))
	c.want(due...)

	// A downtime: of all that has come meanwhile only the nearest is fired.
	c.block(32 * hour)
	c.block(60) // at+46: t24 is past, it is within six hours; the short one is past its grace period
	due = append(due, model(kept, ann, "email", "t6"), model(kept, bob, "email", "t6"),
		model(short, ann, "email", "graceEnd"), model(short, bob, "telegram", "graceEnd"))
	c.want(due...)

	// A late subscriber gets the stages that are left. Removing a preference removes its waiting alerts.
	health, err := c.client.Health(t.Context())
	check(t, err)
	if health.Pending != 5 { // ann: both deals; bob: the t6 of both by email, all that it asked for, and the short one by telegram
		t.Fatalf("%d are pending", health.Pending)
	}
	c.subscribe(bob, notifier.Email, 3, notifier.Budget)
	polltest.Until(c.t, "both t6 are cancelled", func() bool {
		health, err = c.client.Health(t.Context())
		return err == nil && health.Pending == 3
	})
	c.block(4 * hour)
	c.block(60)
	due = append(due, model(kept, ann, "email", "expiry"), model(kept, bob, "telegram", "expiry"))
	c.want(due...)
	c.block(24 * hour)
	c.block(60)
	due = append(due, model(kept, ann, "email", "graceEnd"), model(kept, bob, "telegram", "graceEnd"))
	c.want(due...)
	c.block(100 * hour)
	c.block(60)
	c.want(due...)
}
