package notifier

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// published counts the alerts that were published, by their ID.
func (d *desk) published() map[string]int {
	all := map[string]int{}
	d.w.Events(func(e state.Event, _ bool) {
		if e.Family == topics.FamilyAlert {
			all[string(e.Key)]++
		}
	})
	return all
}

func (d *desk) sent(wallet common.Address, stage Stage, firedAt uint64) {
	row := Address{wallet, Email, common.Hash{31: 7}, stage}.Row()
	d.do(wallet, Command{Claim: &Claim{Wallet: wallet, Row: row, FiredAt: firedAt, By: "one"}})
	d.do(wallet, Command{Report: &Delivery{Wallet: wallet, Row: row, FiredAt: firedAt, By: "one", Result: Sent}})
}

// A time that a node made up, and that was reverted, does not lose an alert: each comes when it is due, and is
// published once.
func TestATimeThatIsTakenBack(t *testing.T) {
	d, ann, bob := newDesk(t), common.Address{1}, common.Address{2}
	d.app.most = 1 // deals of a tick
	for _, wallet := range []common.Address{ann, bob} {
		d.subscribe(wallet, Email, 0x7f)
		funded, _ := endingDeal(wallet)
		d.do(wallet, Command{Fact: funded})
	}
	funded, _ := endingDeal(ann)
	at := funded.Deal
	d.do(ann, Command{News: &News{Stage: EpochOpen, Epoch: 5, At: at.FundedAt, StartsAt: at.FundedAt, EndsAt: at.Expiry}})
	d.tick(at.FundedAt + 1)
	d.tick(4_000_000_000)
	d.tick(4_000_000_001)
	d.want("alerts, by a time that was made up", d.rows(outbox, nil), 4)

	d.tick(at.FundedAt + 2)
	d.tick(at.FundedAt + 3)
	d.do(ann, Command{Fact: funded}) // which changes nothing
	d.want("once it was taken back", d.sendable(), "1 email 0 epoch, 2 email 0 epoch")
	d.sentNews(ann, at.FundedAt+1)
	d.sentNews(bob, at.FundedAt+1)
	for stage := range dealStages {
		d.tick(stage.due(&at))
		d.tick(stage.due(&at) + 1)
		d.want("in time", d.sendable(), "1 email 7 "+stage.String()+", 2 email 7 "+stage.String())
	}
	for id, n := range d.published() {
		if n != 1 {
			t.Errorf("alert %x is published %d times", id, n)
		}
	}
	d.want("published", len(d.published()), 2*int(dealStages)+2)
}

func (d *desk) sentNews(wallet common.Address, firedAt uint64) {
	n := News{Stage: EpochOpen, Epoch: 5}
	row := Address{wallet, Email, n.subject(), EpochOpen}.Row()
	d.do(wallet, Command{Report: &Delivery{Wallet: wallet, Row: row, FiredAt: firedAt, Result: Sent}})
}

// What was sent by a time far ahead, of which nothing was true, is sent again when it is; by one that a reorg took
// back, it is not.
func TestWhatWasSentByATimeThatIsTakenBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead uint64
		want  string
	}{
		{"far ahead", 7200, "1 email 7 t1"},
		{"a reorg", 120, ""},
	} {
		d, ann := newDesk(t), common.Address{1}
		d.subscribe(ann, Email, 0x7f)
		funded, _ := endingDeal(ann)
		d.do(ann, Command{Fact: funded})
		due := Before1.due(&funded.Deal)
		d.tick(Before6.due(&funded.Deal))
		d.sent(ann, Before6, Before6.due(&funded.Deal))
		d.tick(due)
		d.sent(ann, Before1, due)
		d.tick(due - c.ahead)
		d.want(c.name+": before it is due", d.sendable(), "")
		d.tick(due)
		d.want(c.name, d.sendable(), c.want)
	}
}

// ownTicks counts the ticks that the notifier has sent itself, and returns one.
func (d *desk) ownTicks() (n int, last []byte) {
	d.w.Events(func(e state.Event, _ bool) {
		if p, _, _ := topics.Unrouted(e.Key); e.Family == topics.CommandFamily(topics.AppNotifier) && p == 0 {
			n, last = n+1, e.Value
		}
	})
	return n, last
}

// News for many are told of a part at a time: whatever else comes meanwhile, a wallet's write or a deal's alert, waits
// for one part.
func TestNewsComeInParts(t *testing.T) {
	d := newDesk(t)
	for i := range 2*maxAnnounced + 1 {
		d.subscribe(common.BytesToAddress([]byte{1, byte(i >> 8), byte(i)}), Email, 0x7f)
	}
	d.do(common.Address{1}, Command{News: &News{Stage: EpochOpen, Epoch: 5, At: 1000, StartsAt: 1000, EndsAt: 900_000}})
	d.tick(1001)
	for part := 1; part <= 2; part++ {
		d.want("told of", d.rows(outbox, nil), part*maxAnnounced)
		d.tick(1001 + uint64(part))
		d.want("by a tick of the chain meanwhile", d.rows(outbox, nil), part*maxAnnounced)
		n, own := d.ownTicks()
		d.want("ticks of its own", n, part)
		d.apply(own)
	}
	d.want("told of in the end", d.rows(outbox, nil), 2*maxAnnounced+1)
	n, _ := d.ownTicks()
	d.want("ticks of its own in the end", n, 2)
}

// One that was lost is not waited for.
func TestATickOfItsOwnIsLost(t *testing.T) {
	d := newDesk(t)
	for i := range maxAnnounced + 1 {
		d.subscribe(common.BytesToAddress([]byte{1, byte(i >> 8), byte(i)}), Email, 0x7f)
	}
	d.do(common.Address{1}, Command{News: &News{Stage: EpochOpen, Epoch: 5, At: 1000, StartsAt: 1000, EndsAt: 900_000}})
	d.tick(1001)
	d.at = d.at.Add(lostAfter)
	d.tick(1061)
	d.want("told of", d.rows(outbox, nil), maxAnnounced+1)
}

// More than one tick may fire is fired by one that the notifier sends itself.
func TestWhatATickLeavesIsFired(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.app.most = 2
	d.subscribe(ann, Email, 0x7f)
	funded, _ := endingDeal(ann)
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		f := *funded
		f.Deal.ID = id
		d.do(ann, Command{Fact: &f})
	}
	d.tick(funded.Deal.Expiry)
	for range 2 {
		_, rest := d.ownTicks()
		if rest == nil {
			t.Fatal("nothing is sent for the rest")
		}
		d.apply(rest)
	}
	d.want("fired", d.rows(outbox, ann[:]), 5)
	n, _ := d.ownTicks()
	d.want("ticks for the rest", n, 2)
}
