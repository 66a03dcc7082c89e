package notifier

import (
	"math"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// pending is an alert as the sender reads it.
func (d *desk) pending(to Address) (a Alert, found bool) {
	d.t.Helper()
	d.viewed(func(view state.View) {
		var err error
		if a, _, found, err = Pending(view, to.Row()); err != nil {
			d.t.Fatal(err)
		}
	})
	return a, found
}

// Where a reorg has other facts, an alert that waits says them, and one that they make untrue is cancelled.
func TestAnAlertSaysWhatIsTrue(t *testing.T) {
	d, ann, bob, eve := newDesk(t), common.Address{1}, common.Address{2}, common.Address{3}
	d.subscribe(ann, Email, 0x7f)
	was, _ := endingDeal(ann)
	was.Deal.Lender, was.Deal.Amount, was.Deal.Cap, was.Deal.Price = bob, "5", "100", "90"
	d.do(ann, Command{Fact: was})
	d.tick(was.Deal.Expiry - 3500)
	at := Address{ann, Email, common.Hash{31: 7}, Before1}
	a, found := d.pending(at)
	d.want("as it was fired", [2]any{found, *a.Deal}, [2]any{true, was.Deal})

	reorg := func(change func(*Deal)) *Fact {
		now := *was
		change(&now.Deal)
		d.do(ann, Command{Fact: was, Removed: true})
		d.do(ann, Command{Fact: &now})
		was = &now
		return was
	}
	now := reorg(func(deal *Deal) { deal.Cap, deal.Price, deal.Amount, deal.Lender = "200", "150", "6", eve })
	a, found = d.pending(at)
	d.want("with other terms", [2]any{found, *a.Deal}, [2]any{true, now.Deal})
	reorg(func(deal *Deal) { deal.Borrower, deal.Lender = eve, ann })
	a, found = d.pending(at)
	d.want("with its parties exchanged", [2]any{found, a.Event(at).Role}, [2]any{true, "lender"})

	// The end of the grace period is another, before it is told of, and after it is due.
	now = reorg(func(deal *Deal) { deal.GraceEnd += 100 })
	a, found = d.pending(at)
	d.want("with another grace period", [2]any{found, a.Event(at).GraceEnd}, [2]any{true, now.Deal.GraceEnd})
	d.tick(now.Deal.GraceEnd)
	d.want("at its end", d.sendable(), "1 email 7 graceEnd")
	now = reorg(func(deal *Deal) { deal.GraceEnd += 100 })
	d.want("which is another", d.sendable(), "")
	d.tick(now.Deal.GraceEnd)
	d.want("and has come", d.sendable(), "1 email 7 graceEnd")
	reorg(func(deal *Deal) { deal.Expiry++; deal.GraceEnd++ })
	d.want("of another deadline", d.sendable(), "")
}

// News, too.
func TestNewsSayWhatIsTrue(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	was := News{Stage: EpochOpen, Epoch: 5, At: 100, StartsAt: 100, EndsAt: 1000, Budget7: "1", Budget21: "2"}
	d.do(ann, Command{News: &was})
	d.tick(110)
	to := Address{ann, Email, was.subject(), EpochOpen}
	a, found := d.pending(to)
	d.want("as it was fired", [2]any{found, *a.News}, [2]any{true, was})
	now := was
	now.Budget7, now.EndsAt = "3", 1100
	d.do(ann, Command{News: &was, Removed: true})
	if _, found = d.pending(to); found {
		t.Error("it is sent while there is no such epoch")
	}
	d.do(ann, Command{News: &now})
	a, found = d.pending(to)
	d.want("with other budgets", [2]any{found, *a.News}, [2]any{true, now})

	d.tick(1099)
	if _, found = d.pending(to); !found {
		t.Error("it is not sent before the epoch has ended")
	}
	d.tick(1100)
	if a, found = d.pending(to); found || !a.Obsolete {
		t.Errorf("after the epoch: %v, obsolete: %v", found, a.Obsolete)
	}
	for epoch := range uint32(keptEpochs) {
		d.do(ann, Command{News: &News{Stage: EpochOpen, Epoch: 6 + epoch, At: 2000, StartsAt: 2000, EndsAt: 3000}})
	}
	for _, kept := range []int{keptEpochs + 1, keptEpochs} {
		d.tick(1100 + endedSeconds + keptEpochs + 1 - uint64(kept))
		d.want("news that are kept", d.rows(news, nil), kept)
	}
	if a, found = d.pending(to); found || !a.Obsolete {
		t.Errorf("of an epoch that is forgotten: %v, obsolete: %v", found, a.Obsolete)
	}
}

// A node may make up epochs, of any number and time. When they are taken back, those that there are are told of, and nothing is left.
func TestEpochsThatAreMadeUp(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	d.do(ann, Command{News: &News{Stage: EpochOpen, Epoch: 5, At: 1000, StartsAt: 1000, EndsAt: 900_000}})
	d.tick(1001)
	for _, epoch := range []uint32{4, 6, 9, math.MaxUint32} {
		for _, at := range []uint64{0, 1010, math.MaxUint64} {
			lie := News{Stage: EpochOpen, Epoch: epoch, At: at, StartsAt: at, EndsAt: at + 1}
			d.do(ann, Command{News: &lie})
			d.want("beside one that is made up", d.sendable(), "1 email 0 epoch")
			d.do(ann, Command{News: &lie, Removed: true})
			d.tick(1002)
			d.want("once it was taken back", d.sendable(), "1 email 0 epoch")
			d.want("news that are kept", d.rows(news, nil), 1)
		}
	}
}
