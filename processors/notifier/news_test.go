package notifier

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// budgetNews are news of a budget of an epoch.
func budgetNews(stage Stage, at uint64, reserved string) *News {
	return &News{Stage: stage, Epoch: 5, Term: 604800, At: at, StartsAt: 50, EndsAt: 100_000, Budget7: "1000", Budget21: "2000", Reserved: reserved}
}

// sentBudget reports an alert of budget news as sent.
func (d *desk) sentBudget(wallet common.Address, n *News, firedAt uint64) {
	d.t.Helper()
	row := Address{wallet, Email, n.subject(), n.Stage}.Row()
	d.do(wallet, Command{Report: &Delivery{Wallet: wallet, Row: row, FiredAt: firedAt, Result: Sent, Unix: d.unix}})
}

// later is a tick some time after the last.
func (d *desk) later(at uint64) {
	d.at = d.at.Add(lostAfter)
	d.tick(at)
}

// told are the wallets with an alert of news that may be sent.
func (d *desk) told(n *News, wallets ...common.Address) (all string) {
	d.t.Helper()
	for _, wallet := range wallets {
		if _, found := d.pending(Address{wallet, Email, n.subject(), n.Stage}); found {
			all += fmt.Sprint(wallet[0], " ")
		}
	}
	return all
}

// A wallet that subscribes while a budget is exhausted, or after a part of it was returned, is told when it is
// exhausted again; wallets that were told are not. So reserving everything and returning it does not silence the news
// for the rest of the epoch.
func TestABudgetThatIsExhaustedAgain(t *testing.T) {
	d, ann, bob, cleo := newDesk(t), common.Address{1}, common.Address{2}, common.Address{3}
	d.subscribe(ann, Email, 0x7f)
	was := budgetNews(Budget100, 100, "1000")
	d.do(ann, Command{News: was})
	d.later(110)
	d.want("at first", d.told(was, ann), "1 ")
	d.sentBudget(ann, was, 110)
	d.subscribe(bob, Email, 0x7f)
	d.later(112)
	d.do(ann, Command{Returned: was})
	d.later(120)
	d.subscribe(cleo, Email, 0x7f)
	d.subscribe(ann, Email, 0x7f&^Prefs(0).With(T1, true)) // which is still in the list
	d.later(130)
	d.want("while it is not", d.told(was, ann, bob, cleo), "")
	again := budgetNews(Budget100, 50_000, "1000")
	for range 2 {
		d.do(ann, Command{News: again})
		d.later(50_010)
		d.later(50_012)
		d.want("again", d.told(again, ann, bob, cleo), "2 3 ")
		d.do(ann, Command{News: again, Removed: true}) // a reorg
		d.later(50_013)
		d.want("taken back", d.told(again, ann, bob, cleo), "")
	}
}

// An announcement that was not at its end when its news were retracted goes on once they are true again, and comes then
// to those whom it had passed.
func TestABudgetThatIsReturnedWhileItIsAnnounced(t *testing.T) {
	d := newDesk(t)
	wallet := func(n int) (w common.Address) {
		binary.BigEndian.PutUint32(w[:], uint32(n))
		return w
	}
	const subscribers = maxAnnounced + 10
	for i := range subscribers {
		d.subscribe(wallet(2*i+2), Email, 0x7f)
	}
	n := budgetNews(Budget100, 100, "1000")
	d.do(wallet(0), Command{News: n})
	d.later(110)
	d.want("by one tick", d.rows(outbox, nil), maxAnnounced)
	d.do(wallet(0), Command{Returned: n})
	d.subscribe(wallet(1), Email, 0x7f)
	d.do(wallet(0), Command{News: n})
	for at := range uint64(4) {
		d.later(111 + at)
	}
	d.want("in the end", d.rows(outbox, nil), subscribers+1)
}

// That most of a budget is reserved is not told after all of it is, however long the one has waited for its server;
// once some is returned, it is.
func TestMostIsNotToldAfterAll(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	most, all := budgetNews(Budget90, 100, "900"), budgetNews(Budget100, 200, "1000")
	d.do(ann, Command{News: most})
	d.later(110)
	d.do(ann, Command{Report: &Delivery{
		Wallet: ann, Row: Address{ann, Email, most.subject(), Budget90}.Row(), FiredAt: 110, Result: Retry, Next: d.at.UnixMilli() + 1_800_000, Unix: d.unix,
	}})
	d.want("most", d.told(most, ann), "1 ")
	d.do(ann, Command{News: all})
	d.later(210)
	d.want("all", d.told(all, ann), "1 ")
	d.sentBudget(ann, all, 210)
	d.want("most, after all", d.told(most, ann), "")
	d.do(ann, Command{Returned: all})
	d.want("most, once some was returned", d.told(most, ann), "1 ")
}

// A wallet that subscribes during an announcement is not told by it, as one that subscribes after it, and once by the
// next.
func TestWhoSubscribesDuringAnAnnouncement(t *testing.T) {
	d := newDesk(t)
	wallet := func(n int) (w common.Address) {
		binary.BigEndian.PutUint32(w[:], uint32(n))
		return w
	}
	for i := range maxAnnounced + 10 {
		d.subscribe(wallet(i+1), Email, 0x7f)
	}
	n := budgetNews(Budget100, 100, "1000")
	d.do(wallet(0), Command{News: n})
	d.later(110)
	last := wallet(100_000)
	d.at = d.at.Add(time.Second)
	d.subscribe(last, Email, 0x7f)
	d.later(111)
	d.later(112)
	d.want("by the one that went on", d.told(n, last), "")
	d.do(wallet(0), Command{Returned: n})
	d.do(wallet(0), Command{News: n})
	for at := range uint64(4) {
		d.later(113 + at)
	}
	d.want("by the next", d.told(n, last), "0 ")
	d.want("alerts", d.rows(outbox, nil), maxAnnounced+11)
}

// Queued news that were retracted are sent once the clock has reached the block by which they are true again, and not
// by an unconfirmed block.
func TestNewsOfAnUnconfirmedBlock(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	n := budgetNews(Budget100, 100, "1000")
	d.do(ann, Command{News: n})
	d.later(110)
	d.want("at first", d.told(n, ann), "1 ")
	d.do(ann, Command{Returned: n})
	d.later(40_000)
	d.want("returned", d.told(n, ann), "")
	again := budgetNews(Budget100, 50_000, "1000")
	d.do(ann, Command{News: again})
	d.later(40_010)
	d.want("by a block that may be reverted", d.told(again, ann), "")
	d.later(50_010)
	d.want("once it is confirmed", d.told(again, ann), "1 ")
}

// News that an older build announced are announced again to those that subscribed since they were retracted.
func TestNewsOfAFormerBuildAreAnnouncedAgain(t *testing.T) {
	d, ann, bob := newDesk(t), common.Address{1}, common.Address{2}
	d.subscribe(ann, Email, 0x7f)
	n := budgetNews(Budget100, 100, "1000")
	if err := putRow(d.w, news, newsKey(n), &newsRow{News: *n, Done: true}); err != nil {
		t.Fatal(err)
	}
	d.later(110)
	d.do(ann, Command{Returned: n})
	d.later(120)
	d.subscribe(bob, Email, 0x7f)
	d.do(ann, Command{News: budgetNews(Budget100, 200, "1000")})
	d.later(210)
	d.want("told", d.told(n, ann, bob), "2 ")
}

// TestNewsInOneMillisecond: a wallet that subscribed before an announcement began is told by it, and one after it by
// the next, even if all of that is in one millisecond, or the clock has gone back.
func TestNewsInOneMillisecond(t *testing.T) {
	for name, back := range map[string]time.Duration{"one millisecond": 0, "a clock that goes back": time.Minute} {
		t.Run(name, func(t *testing.T) {
			d, ann, bob := newDesk(t), common.Address{1}, common.Address{2}
			n := budgetNews(Budget100, 100, "1000")
			d.do(ann, Command{News: n})
			d.subscribe(bob, Email, 0x7f)
			d.at = d.at.Add(-back)
			d.tick(110)
			d.want("at first", d.told(n, ann, bob), "2 ")
			d.subscribe(ann, Email, 0x7f)
			d.sentBudget(bob, n, 110)
			d.later(111)
			d.do(ann, Command{Returned: n})
			d.later(112)
			d.do(ann, Command{News: n})
			d.later(113)
			d.later(114)
			d.want("again", d.told(n, ann, bob), "1 ")
		})
	}
}
