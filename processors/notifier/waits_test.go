package notifier

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
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

// fires has the wallet subscribe, and its deal come within a day of its expiry: at that time.
func (d *desk) fires(wallet common.Address) (at uint64) {
	d.t.Helper()
	d.subscribe(wallet, Email, 0x7f)
	funded, _ := endingDeal(wallet)
	d.do(wallet, Command{Fact: funded})
	at = funded.Deal.Expiry - 23*3600
	d.tick(at)
	return at
}

// What comes due while a wallet's only address is not confirmed waits for that: of a deal the nearest threshold, once.
func TestAlertsWaitForAnAddress(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.awaits(ann, 0x7f)
	funded, ended := endingDeal(ann)
	d.do(ann, Command{Fact: funded})
	d.tick(funded.Deal.Expiry - 23*3600)
	d.want("before it is confirmed", d.sendable(), "")
	d.awaits(ann, 0x7f)
	d.tick(funded.Deal.Expiry - 3000)
	d.want("before another one is confirmed", d.sendable(), "")
	d.do(ann, Command{Fact: ended})
	d.confirms(ann)
	d.want("of a deal that has ended", d.sendable(), "")
	d.do(ann, Command{Fact: ended, Removed: true})
	d.want("of the nearest", d.sendable(), "1 email 7 t1")

	// What is not wanted any more does not come back.
	d.awaits(ann, Prefs(0).With(Expiry, true))
	d.confirms(ann)
	d.awaits(ann, 0x7f)
	d.confirms(ann)
	d.want("what was not wanted", d.sendable(), "")
	d.tick(funded.Deal.Expiry)
	d.want("at expiry", d.sendable(), "1 email 7 expiry")
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

// Alerts go on to a confirmed address, as they were wanted there, until the next one is confirmed: it may be mistyped.
func TestAConfirmedAddressGoesOn(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	is := func() Subscription {
		s, err := getSubscription(d.w, ann, Email)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	at := d.fires(ann)
	names := func(sealed byte, prefs Prefs) {
		t.Helper()
		d.unix++
		c := asking(ann, Email, d.unix)
		c.Sealed, c.Mask, c.Prefs = []byte{sealed}, "next", prefs
		d.want("asked", d.do(ann, Command{Await: c}), Accepted)
	}
	names(2, Prefs(0).With(T24, true))
	d.want("to the confirmed address", d.sendable(), "1 email 7 t24")
	if s := is(); s.Sealed[0] != 1 || s.Prefs != 0x7f || s.Awaited == nil || s.Awaited.Mask != "next" {
		t.Fatalf("%+v", s)
	}
	d.want("the same message again", d.do(ann, Command{Await: asking(ann, Email, d.unix)}), Reused)

	// It refuses for now; the next one does not wait for that.
	row := Address{ann, Email, common.Hash{31: 7}, Before24}.Row()
	d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, FiredAt: at, Result: Retry, Next: d.at.UnixMilli() + 1e9, Unix: d.unix}})
	d.confirms(ann)
	if a, found := d.pending(Address{ann, Email, common.Hash{31: 7}, Before24}); !found || a.Attempt != 0 || a.Next != d.at.UnixMilli() {
		t.Errorf("the new address waits for what the former one has said: %+v", a)
	}
	if s := is(); s.Sealed[0] != 2 || s.Prefs != Prefs(0).With(T24, true) || s.Awaited != nil || s.Disabled != "" {
		t.Fatalf("%+v", s)
	}

	// An address that is not confirmed is dropped, and alerts go on.
	names(3, 0x7f)
	d.at = d.at.Add((confirmSeconds + 1) * time.Second)
	d.want("too late", d.do(ann, Command{Confirm: &Confirmation{Wallet: ann, Channel: Email, Unix: d.unix}}), Expired)
	d.at = d.at.Add(keptAsked * time.Hour)
	d.tick(at + 1)
	if s := is(); s.Sealed[0] != 2 || s.Awaited != nil {
		t.Fatalf("%+v", s)
	}
	d.want("to the one that is confirmed", d.sendable(), "1 email 7 t24")

	// The link in an alert ends those to its address, not to the wallet's next.
	names(4, 0x7f)
	link := &Unsubscribe{Wallet: ann, Channel: Email, Since: is().CreatedAt}
	d.want("by its link", d.do(ann, Command{Unsubscribe: link}), Accepted)
	d.want("to the former", d.sendable(), "")
	d.confirms(ann)
	d.want("to the next", d.sendable(), "1 email 7 t24")

	// The wallet takes it back by naming the confirmed one, and a signature ends both.
	names(5, 0x7f)
	d.subscribe(ann, Email, 0x7f)
	d.want("what was taken back", d.do(ann, Command{Confirm: &Confirmation{Wallet: ann, Channel: Email, Unix: d.unix - 1}}), Missing)
	names(6, 0x7f)
	d.unix++
	d.want("ended", d.do(ann, Command{Unsubscribe: &Unsubscribe{Wallet: ann, Channel: Email, Unix: d.unix}}), Accepted)
	d.want("what has ended", d.do(ann, Command{Confirm: &Confirmation{Wallet: ann, Channel: Email, Unix: d.unix - 1}}), Missing)
	d.want("published", len(d.published()), 1)
}

// What a former address has refused, as is known after the next one was confirmed, is no refusal of that.
func TestALateRefusalIsOfTheFormerAddress(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	at := d.fires(ann)
	row := Address{ann, Email, common.Hash{31: 7}, Before24}.Row()
	went := func() (of int64) {
		d.viewed(func(view state.View) {
			_, s, found, err := Pending(view, row)
			if err != nil || !found {
				t.Fatal(found, err)
			}
			of = s.Of()
		})
		return of
	}
	d.awaits(ann, 0x7f)
	d.awaits(ann, 0x7f)
	to := went() // while another one is awaited
	d.confirms(ann)
	d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, FiredAt: at, Result: Gone, Reason: "no such mailbox", Unix: to}})
	d.want("to the next", d.sendable(), "1 email 7 t24")
	d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, FiredAt: at, Result: Gone, Reason: "no such mailbox", Unix: went()}})
	d.want("to the next, once that has refused", d.sendable(), "")
}

// Where a confirmed address refuses for good, alerts wait for the one that is to be confirmed.
func TestARefusalWaitsForTheNextAddress(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	at := d.fires(ann)
	to := d.unix
	d.awaits(ann, 0x7f)
	row := Address{ann, Email, common.Hash{31: 7}, Before24}.Row()
	d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, FiredAt: at, Result: Gone, Reason: "no such mailbox", Unix: to}})
	d.want("to an address that refuses", d.sendable(), "")
	d.confirms(ann)
	d.want("to the next", d.sendable(), "1 email 7 t24")
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

// Requests of wallets with an open deal are sent before any number of those of other wallets.
func TestStrangersAreAskedLast(t *testing.T) {
	d, ann, eve := newDesk(t), common.Address{1}, common.Address{2}
	funded, ended := endingDeal(ann)
	d.do(ann, Command{Fact: funded})
	names := func(wallet common.Address) {
		t.Helper()
		d.unix++
		place := common.Address{0xaa, byte(d.unix)}
		c := asking(wallet, Email, d.unix)
		c.Mail = &Permit{ID: ID{0xee, byte(d.unix)}, Place: place, Mail: &Request{Wallet: wallet, Sealed: []byte{1}}}
		d.want("asked", d.do(wallet, Command{Await: c}), Accepted)
		_, asks := d.ownTicks()
		d.apply(asks)
	}
	classes := func() (all [2]int) {
		d.viewed(func(view state.View) {
			for i, class := range []byte{DueRequests, DueStrangers} {
				err := view.ScanIndex(OutboxByClass, []byte{class}, nil, func(_, _ []byte) bool { all[i]++; return true })
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		return all
	}
	for range 3 {
		names(eve)
	}
	names(ann)
	d.want("of holders and strangers", classes(), [2]int{1, 3})
	d.do(ann, Command{Fact: ended})
	names(ann)
	d.want("once the deal has ended", classes(), [2]int{1, 4})
	// An older build's row is where it was.
	d.w.Put(outbox, Address{ann, Email, common.Hash{1}, ToConfirm}.Row(), []byte(`{"request":{"wallet":"0x0100000000000000000000000000000000000000","sealed":"AQ=="},"stage":9,"due":1,"firedAt":1,"next":1}`))
	d.want("with one of before", classes(), [2]int{2, 4})
}

// A wallet with very many deals changes its mind: one command settles a part of what is queued, and ticks the rest.
// What is not settled yet is not sent.
func TestManyAlertsAreSettledInParts(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.awaits(ann, 0x7f)
	const deals = 2*maxSettled + 7
	funded, _ := endingDeal(ann)
	for i := range deals {
		fact := *funded
		fact.Deal.ID = fmt.Sprint(1 + i)
		d.do(ann, Command{Fact: &fact})
	}
	at := funded.Deal.Expiry - 23*3600
	d.tick(at)
	count := func() (sendable, waits int) {
		d.viewed(func(view state.View) {
			err := view.Scan(outbox, ann[:], nil, func(key, row []byte) bool {
				var a Alert
				if err := json.Unmarshal(row, &a); err != nil {
					t.Fatal(err)
				}
				if a.Waits {
					waits++
				}
				_, _, ok, err := Pending(view, slices.Clone(key))
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					sendable++
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		})
		return sendable, waits
	}
	d.confirms(ann)
	for part := 1; part <= 3; part++ {
		sendable, waits := count()
		d.want("sendable", sendable, min(part*maxSettled, deals))
		d.want("waiting", waits, deals-min(part*maxSettled, deals))
		h, err := getTally(d.w)
		d.want("pending", [2]any{h.Pending, err}, [2]any{sendable, nil})
		d.tick(at + uint64(part))
	}
	d.want("left to settle", d.rows(tallies, []byte(settlingPrefix)), 0)

	// Nor is what it does not want any more.
	d.subscribe(ann, Email, Prefs(0).With(T1, true))
	sendable, _ := count()
	d.want("not wanted", sendable, 0)
	d.want("in the first part", d.rows(outbox, ann[:]), deals-maxSettled)
	d.tick(at + 10)
	d.tick(at + 11)
	d.want("in the end", d.rows(outbox, ann[:]), 0)
	d.want("pending", d.sendable(), "")
}

// TestWhoHasTakenItIsKept: an alert that an address has taken, and another one has refused, is not sent to the first
// again.
func TestWhoHasTakenItIsKept(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Email, 0x7f)
	d.due(ann, 1)
	row := Address{ann, Email, common.Hash{31: 1}, Before1}.Row()
	alert := func() (a Alert) {
		if err := getRow(d.w, outbox, row, &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := d.unix
	d.subscribe(ann, Email, 0x7f)
	second := d.unix
	d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, FiredAt: alert().FiredAt, Result: Sent, Unix: first, To: "the first"}})
	d.want("taken by", alert().To, "the first")
	d.subscribe(ann, Email, 0x7f) // the first again, while the second is tried
	d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, Attempt: alert().Attempt, FiredAt: alert().FiredAt, Result: Gone, Unix: second, Reason: "no"}})
	d.want("taken by, once the second has refused it", alert().To, "the first")
}
