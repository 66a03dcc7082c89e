package notifier

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// viewed has f read what was applied, as the sender does.
func (d *desk) viewed(f func(state.View)) {
	d.t.Helper()
	snap, err := d.store.SnapshotWith(d.w)
	if err != nil {
		d.t.Fatal(err)
	}
	defer snap.Release()
	view := snap.View(topics.BlockRef{Number: 1})
	defer view.Close()
	f(view)
}

// sendable is what the sender finds in the outbox, each alert as wallet, channel, deal and stage.
func (d *desk) sendable() (all string) {
	d.t.Helper()
	d.viewed(func(view state.View) { all = d.sendableOf(view) })
	return all
}

func (d *desk) sendableOf(view state.View) string {
	d.t.Helper()
	var found []string
	err := view.ScanIndex(OutboxByTime, nil, nil, func(entry, _ []byte) bool {
		row := slices.Clone(entry[8:])
		_, _, ok, err := Pending(view, row)
		if err != nil {
			d.t.Fatal(err)
		}
		to, _ := ParseRow(row)
		if ok {
			found = append(found, fmt.Sprintf("%d %s %d %s", to.Wallet[0], to.Channel, to.Subject[31], to.Stage))
		}
		return true
	})
	if err != nil {
		d.t.Fatal(err)
	}
	h, err := getTally(d.w)
	if err != nil {
		d.t.Fatal(err)
	}
	if h.Pending != len(found) {
		d.t.Fatalf("%d are said to be pending, and %d can be sent", h.Pending, len(found))
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

func (d *desk) subscribe(wallet common.Address, channel Channel, prefs Prefs) {
	d.t.Helper()
	d.unix++
	s := &Subscribe{Wallet: wallet, Channel: channel, Sealed: []byte{1}, Mask: "m", Prefs: prefs, Unix: d.unix}
	d.want("subscribed", d.do(wallet, Command{Subscribe: s}), Accepted)
}

func (d *desk) tick(at uint64) { d.do(common.Address{}, Command{Tick: &Tick{Time: at}}) }

// The clock tells how far the chain is, and how far behind it the facts are: by the blocks that they have not seen yet,
// and by how old what they read is. A minute between two nodes' clocks is no age.
func TestClock(t *testing.T) {
	d := newDesk(t)
	now := uint64(d.at.Unix())
	for _, c := range []struct {
		name   string
		tick   Tick
		head   uint64
		behind time.Duration
	}{
		{"of a former build", Tick{Time: now - 60}, now - 60, 0},
		{"at the head", Tick{Time: now - 60, Applied: now, Head: now, Written: d.at.UnixMilli()}, now, 0},
		{"confirmed late", Tick{Time: now - 1536, Applied: now, Head: now, Written: d.at.UnixMilli()}, now, 0},
		{"the ingester catches up", Tick{Time: now - 7200, Applied: now - 7100, Head: now - 10, Written: d.at.UnixMilli()}, now - 10, 7090 * time.Second},
		{"the facts catch up", Tick{Time: now - 7260, Applied: now - 7200, Head: now - 7200, Written: d.at.UnixMilli() - 7_200_000}, now, 2 * time.Hour},
		{"of a node whose clock is late", Tick{Time: now, Applied: now, Head: now, Written: d.at.UnixMilli() - 60_000}, now, 0},
	} {
		d.do(common.Address{}, Command{Tick: &c.tick})
		d.viewed(func(view state.View) {
			got, err := ReadClock(view)
			if want := (Clock{Time: c.tick.Time, Told: d.at, Head: c.head, Behind: c.behind}); err != nil || got.Head != want.Head || got.Behind != want.Behind || got.Time != want.Time {
				t.Errorf("%s: %+v, want %+v, %v", c.name, got, want, err)
			}
		})
	}
}

// One partition of the raw topic that stands holds all alerts up: the clock is where that one is, and was heard of from
// the others.
func TestClockOfAPartitionThatStands(t *testing.T) {
	d := newDesk(t)
	d.app = New(2, prometheus.NewRegistry())
	began := d.at
	for minute := range uint64(3) {
		for p := range int32(2) {
			if at := uint64(d.at.Unix()); minute == 0 || p == 0 {
				d.do(common.Address{}, Command{Tick: &Tick{From: p, Time: at - 600, Applied: at, Head: at, Written: d.at.UnixMilli()}})
			}
		}
		d.at = d.at.Add(time.Minute)
	}
	d.viewed(func(view state.View) {
		got, err := ReadClock(view)
		if err != nil || !got.Told.Equal(began) || !got.Heard.Equal(began.Add(2*time.Minute)) || got.Time != uint64(began.Unix())-600 || got.Head != uint64(began.Unix())+120 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// endingDeal is a deal of a wallet that is told of its funding, and of its end.
func endingDeal(wallet common.Address) (funded, ended *Fact) {
	deal := Deal{ID: "7", Borrower: wallet, FundedAt: 1_000_000, Expiry: 1_500_000, GraceEnd: 1_586_400, Open: true}
	over := deal
	over.Open = false
	return &Fact{Wallet: wallet, Deal: deal, At: deal.FundedAt}, &Fact{Wallet: wallet, Deal: over, At: deal.Expiry - 3000}
}

// What waits for its receiver is not sent while the deal has ended, and is once a reorg has taken the end back.
func TestAnEndThatIsTakenBack(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	funded, ended := endingDeal(ann)
	d.do(ann, Command{Fact: funded})
	d.tick(funded.Deal.Expiry - 3500)
	d.want("due", d.sendable(), "1 email 7 t1")
	d.do(ann, Command{Fact: ended})
	d.want("of a deal that has ended", d.sendable(), "")
	d.do(ann, Command{Fact: ended, Removed: true})
	d.want("of one that has not ended after all", d.sendable(), "1 email 7 t1")

	// A claim of before the end is not good after it, and what was sent meanwhile is not sent again.
	row := Address{ann, Email, common.Hash{31: 7}, Before1}.Row()
	d.do(ann, Command{Claim: &Claim{Wallet: ann, Row: row, FiredAt: funded.Deal.Expiry - 3500, By: "one"}})
	d.do(ann, Command{Fact: ended})
	d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, FiredAt: funded.Deal.Expiry - 3500, By: "one", Result: Sent}})
	d.do(ann, Command{Fact: ended, Removed: true})
	d.want("what was sent", d.sendable(), "")

	// What came due meanwhile replaces what waited before.
	d.tick(funded.Deal.Expiry)
	d.want("at the end", d.sendable(), "1 email 7 expiry")
	ended.At = funded.Deal.Expiry + 3600
	d.do(ann, Command{Fact: ended})
	d.tick(funded.Deal.GraceEnd)
	d.want("of a deal that has ended", d.sendable(), "")
	d.do(ann, Command{Fact: ended, Removed: true})
	d.tick(funded.Deal.GraceEnd + 5)
	d.want("after its grace", d.sendable(), "1 email 7 graceEnd")

	// Once no reorg can take the end back, nothing of the deal is kept.
	d.do(ann, Command{Fact: ended})
	d.tick(funded.Deal.GraceEnd + 5 + endedSeconds)
	d.want("of a deal that is forgotten", d.sendable(), "")
	for _, table := range []*struct {
		name string
		n    int
	}{{"outbox", d.rows(outbox, ann[:])}, {"deals", d.rows(dealsOf, ann[:])}, {"timers", d.rows(timers, nil)}} {
		if table.n != 0 {
			t.Errorf("%d rows of %s are left", table.n, table.name)
		}
	}
}

// Another funding of the deal has nothing of what the first one had.
func TestAFundingThatIsTakenBack(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	funded, _ := endingDeal(ann)
	d.do(ann, Command{Fact: funded})
	d.tick(funded.Deal.Expiry - 3500)
	d.do(ann, Command{Fact: funded, Removed: true})
	d.want("of a deal that is not funded", d.sendable(), "")
	again := *funded
	again.Deal.FundedAt += 10
	again.Deal.Expiry += 10
	again.Deal.GraceEnd += 10
	d.do(ann, Command{Fact: &again})
	d.want("funded anew", d.sendable(), "")
	d.tick(again.Deal.Expiry - 3500)
	d.want("due anew", d.sendable(), "1 email 7 t1")
}

// A node may make up that a deal has ended and was funded otherwise, once or twice. When that is taken back, all is as
// it was: what waited is sent, what came due meanwhile is, and nothing is again.
func TestAFundingThatIsMadeUp(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	funded, _ := endingDeal(ann)
	d.do(ann, Command{Fact: funded})
	at := funded.Deal
	d.tick(Before48.due(&at))
	d.sent(ann, Before48, Before48.due(&at))
	for stage := Before24; stage < dealStages; stage++ {
		now := stage.due(&at)
		d.tick(now)
		waits := "1 email 7 " + stage.String()
		d.want("as it was", d.sendable(), waits)
		var lies []*Fact
		for i := range uint64(2) {
			end := &Fact{Wallet: ann, Deal: at, At: now + 1}
			if i > 0 {
				end.Deal = lies[len(lies)-1].Deal
			}
			end.Deal.Open = false
			other := *funded
			other.At = now + 1
			other.Deal.FundedAt, other.Deal.Expiry, other.Deal.GraceEnd = now-1000+i, now+1, at.GraceEnd+1
			lies = append(lies, end, &other)
		}
		for n := range 2 {
			some := lies[:2*(n+1)]
			for _, lie := range some {
				d.do(ann, Command{Fact: lie})
				d.want("made up", d.sendable(), "")
			}
			d.tick(now) // which is before the block
			d.want("of what is made up", d.sendable(), "")
			for _, lie := range slices.Backward(some) {
				d.do(ann, Command{Fact: lie, Removed: true})
			}
			d.want("once it was taken back", d.sendable(), waits)
		}
		for _, lie := range lies {
			d.do(ann, Command{Fact: lie})
		}
		if stage+1 < dealStages { // which comes due meanwhile
			d.tick((stage + 1).due(&at))
		}
		for _, lie := range slices.Backward(lies) {
			d.do(ann, Command{Fact: lie, Removed: true})
		}
	}
	for id, n := range d.published() {
		if n != 1 {
			t.Errorf("alert %x is published %d times", id, n)
		}
	}
	d.want("published", len(d.published()), int(dealStages))
}

// A node may make up an end of any time, too.
func TestAnEndOfAnyTime(t *testing.T) {
	for _, at := range []uint64{0, 1, 1 << 63, math.MaxUint64} {
		d, ann := newDesk(t), common.Address{1}
		d.subscribe(ann, Email, 0x7f)
		funded, ended := endingDeal(ann)
		d.do(ann, Command{Fact: funded})
		due := Before1.due(&funded.Deal)
		d.tick(due)
		ended.At = at
		d.do(ann, Command{Fact: ended})
		d.tick(due + 5)
		d.want("of a deal that has ended", d.sendable(), "")
		d.do(ann, Command{Fact: ended, Removed: true})
		d.want("once it was taken back", d.sendable(), "1 email 7 t1")
	}
}

// Each channel is told of the nearest threshold of those that it asked for: one that it did not ask for is no reason to
// be told nothing, whether it came later or at once.
func TestTheNearestThatIsWanted(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, Prefs(0).With(T24, true))
	d.subscribe(ann, Telegram, Prefs(0).With(T6, true).With(T1, true))
	d.subscribe(ann, Push, Prefs(0).With(Budget, true))
	funded, _ := endingDeal(ann)
	d.do(ann, Command{Fact: funded})
	d.tick(funded.Deal.Expiry - 23*3600)
	d.want("a day before", d.sendable(), "1 email 7 t24")
	d.tick(funded.Deal.Expiry - 5*3600) // the mail still waits
	d.want("six hours before", d.sendable(), "1 email 7 t24, 1 telegram 7 t6")
	d.tick(funded.Deal.Expiry + 10)
	d.want("after the end", d.sendable(), "1 email 7 t24, 1 telegram 7 t1")

	bob := common.Address{2}
	d.subscribe(bob, Email, Prefs(0).With(T24, true).With(T6, true))
	at, _ := endingDeal(bob)
	d.do(bob, Command{Fact: at})
	d.tick(at.Deal.Expiry + 20) // all at once
	if got := d.sendable(); !strings.HasSuffix(got, ", 2 email 7 t6") {
		t.Errorf("after a downtime: %s", got)
	}
}

// What a receiver said to an address that the wallet has replaced meanwhile does not end the new one, and the new one
// is told.
func TestAnAddressThatIsReplacedWhileItRefuses(t *testing.T) {
	for _, result := range []Result{Gone, Dead} {
		d, ann := newDesk(t), common.Address{1}
		d.subscribe(ann, Push, 0x7f)
		funded, _ := endingDeal(ann)
		d.do(ann, Command{Fact: funded})
		d.tick(funded.Deal.Expiry - 3500)
		row := Address{ann, Push, common.Hash{31: 7}, Before1}.Row()
		refused := Delivery{Wallet: ann, Row: row, FiredAt: funded.Deal.Expiry - 3500, By: "one", Result: result, Reason: "gone", Unix: d.unix}
		d.do(ann, Command{Claim: &Claim{Wallet: ann, Row: row, FiredAt: refused.FiredAt, By: "one"}})
		d.subscribe(ann, Push, 0x7f)
		d.do(ann, Command{Report: &refused})
		d.want("the new address", d.sendable(), "1 push 7 t1")
		s, err := getSubscription(d.w, ann, Push)
		if err != nil || s.Disabled != "" {
			t.Fatalf("the new address is disabled: %q, %v", s.Disabled, err)
		}
		refused.By, refused.Unix = "two", d.unix
		d.do(ann, Command{Claim: &Claim{Wallet: ann, Row: row, FiredAt: refused.FiredAt, By: "two"}})
		d.do(ann, Command{Report: &refused})
		d.want("an address that refuses", d.sendable(), "")
		if s, err = getSubscription(d.w, ann, Push); err != nil || (s.Disabled != "") != (result == Gone) {
			t.Fatalf("disabled: %q, %v", s.Disabled, err)
		}
	}
}

// A change of preferences alone does not restart attempts: otherwise a wallet could defeat a server's request for a
// pause. Nor does it change the address for a running attempt. If the address was refused, it may have been repaired.
func TestPreferencesAloneRestartNothing(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	at := d.fires(ann)
	of, to := d.unix, Address{ann, Email, common.Hash{31: 7}, Before24}
	later := d.at.Add(6 * time.Hour).UnixMilli()
	reports := func(attempt int, result Result) {
		d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: to.Row(), Attempt: attempt, FiredAt: at, Result: result, Next: later, Unix: of, Reason: "no"}})
	}
	keeps := func(of int64) {
		d.unix++
		c := &Subscribe{Wallet: ann, Channel: Email, Sealed: []byte{1}, Mask: "m", Prefs: 0x7f, Unix: d.unix, Keeps: of}
		d.want("subscribed", d.do(ann, Command{Subscribe: c}), Accepted)
	}
	is := func(when string, attempt int, next int64) {
		t.Helper()
		if a, found := d.pending(to); !found || a.Attempt != attempt || a.Next != next {
			t.Errorf("%s: attempt %d at %d, want %d at %d", when, a.Attempt, a.Next, attempt, next)
		}
	}
	reports(0, Retry)
	for range 3 {
		keeps(of)
		is("it stays", 1, later)
	}
	reports(1, Retry)
	is("an attempt of before is of the same address", 2, later)
	keeps(of - 1)
	is("another one than was compared", 0, d.at.UnixMilli())
	of = d.unix
	reports(0, Gone)
	keeps(of)
	is("one that was refused", 0, d.at.UnixMilli())
	d.unix++
	d.want("ended", d.do(ann, Command{Unsubscribe: &Unsubscribe{Wallet: ann, Channel: Email, Unix: d.unix}}), Accepted)
	keeps(of)
	if s, err := getSubscription(d.w, ann, Email); err != nil || s.Of() != d.unix {
		t.Errorf("one that has ended: %+v, %v", s, err)
	}
}

// A new address has all attempts, and the first of them at once, whatever the former one has failed at: before it was
// replaced, or while it was.
func TestAnAddressThatIsReplacedWhileItFails(t *testing.T) {
	for name, confirms := range map[string]bool{"at once": false, "once it is confirmed": true} {
		t.Run(name, func(t *testing.T) {
			d, ann := newDesk(t), common.Address{1}
			d.subscribe(ann, Email, 0x7f)
			funded, _ := endingDeal(ann)
			d.do(ann, Command{Fact: funded})
			at := funded.Deal.Expiry - 47*3600
			d.tick(at)
			row := Address{ann, Email, common.Hash{31: 7}, Before48}.Row()
			failed := Delivery{Wallet: ann, Row: row, FiredAt: at, Result: Retry, Next: d.at.Add(6 * time.Hour).UnixMilli(), Unix: d.unix}
			replace := func() {
				t.Helper()
				if !confirms {
					d.subscribe(ann, Email, 0x7f)
				} else {
					d.awaits(ann, 0x7f)
					d.confirms(ann)
				}
				if failed.By != "" {
					d.do(ann, Command{Report: &failed})
				}
				var a Alert
				if err := getRow(d.w, outbox, row, &a); err != nil {
					t.Fatal(err)
				}
				if a.Attempt != 0 || a.Next > d.at.Add(SettleTime).UnixMilli() {
					t.Errorf("attempt %d, in %s", a.Attempt, time.UnixMilli(a.Next).Sub(d.at))
				}
			}
			for failed.Attempt = range 71 {
				d.do(ann, Command{Report: &failed})
			}
			replace()
			failed.Attempt, failed.By, failed.Unix = 0, "one", d.unix
			d.do(ann, Command{Claim: &Claim{Wallet: ann, Row: row, FiredAt: at, By: "one"}})
			replace()
		})
	}
}
