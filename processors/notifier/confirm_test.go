package notifier

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// desk is the application on a state of its own, at a time of the test's choosing.
type desk struct {
	t     *testing.T
	app   *App
	store *state.Store
	w     *state.Overlay
	at    time.Time
	ids   byte
	unix  int64
}

func newDesk(t *testing.T) *desk {
	app := New(1, prometheus.NewRegistry())
	store, err := state.Open(state.Options{Dir: "notifier", Tables: app.Tables(), FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	d := &desk{t: t, app: app, store: store, w: store.NewOverlay(), at: time.Date(2026, 3, 1, 12, 59, 0, 0, time.UTC)}
	d.w.Begin(topics.BlockRef{Number: 1}, false)
	return d
}

func (d *desk) apply(value []byte) {
	d.t.Helper()
	if err := d.app.ApplyCommand(d.w, engine.Command{Value: value, Time: d.at}); err != nil {
		d.t.Fatal(err)
	}
}

// do applies a command of a wallet, and returns its outcome.
func (d *desk) do(who common.Address, c Command) Outcome {
	d.t.Helper()
	d.ids++
	id := ID{d.ids}
	switch {
	case c.Ask != nil:
		c.Ask.ID = id
	case c.Await != nil:
		c.Await.ID = id
	case c.Subscribe != nil:
		c.Subscribe.ID = id
	case c.Admit != nil:
		c.Admit.ID = id
	case c.Permit != nil:
		c.Permit.ID = id
	case c.Confirm != nil:
		c.Confirm.ID = id
	case c.Unsubscribe != nil:
		c.Unsubscribe.ID = id
	}
	value, err := c.Encode()
	if err != nil {
		d.t.Fatal(err)
	}
	d.apply(value)
	var list []outcome
	if err := getRow(d.w, outcomes, who[:], &list); err != nil {
		d.t.Fatal(err)
	}
	for _, o := range list {
		if o.ID == id {
			return o.Outcome
		}
	}
	return Unknown
}

// due has the wallet's deal come due, and returns how many alerts are to be sent, requests to confirm an address apart.
func (d *desk) due(wallet common.Address, n uint64) (alerts, asked int) {
	d.t.Helper()
	at := n * 1_000_000
	d.do(wallet, Command{Fact: &Fact{Wallet: wallet, Deal: Deal{ID: "1", Borrower: wallet, FundedAt: at, Expiry: at + 7200, GraceEnd: at + 90_000, Open: true}}})
	d.do(wallet, Command{Tick: &Tick{Time: at + 3600}})
	err := d.w.Scan(outbox, wallet[:], nil, func(key, value []byte) bool {
		var a Alert
		if err := json.Unmarshal(value, &a); err != nil {
			d.t.Fatal(err)
		}
		switch {
		case key[len(key)-1] == byte(ToConfirm):
			asked++
		case a.pends():
			alerts++
		}
		return true
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return alerts, asked
}

// rows counts the rows of a table with a prefix.
func (d *desk) rows(t *state.Table, prefix []byte) (n int) {
	d.t.Helper()
	if err := d.w.Scan(t, prefix, nil, func(_, _ []byte) bool { n++; return true }); err != nil {
		d.t.Fatal(err)
	}
	return n
}

func (d *desk) want(what string, got, want any) {
	d.t.Helper()
	if got != want {
		d.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func asking(wallet common.Address, channel Channel, unix int64) *Subscribe {
	return &Subscribe{Wallet: wallet, Channel: channel, Sealed: []byte{1}, Mask: "m", Prefs: 0x7f, Unix: unix}
}

// A request is good once, for a day, and for the last that the wallet signed.
func TestConfirmation(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	confirming := func(unix int64) Outcome {
		return d.do(ann, Command{Confirm: &Confirmation{Wallet: ann, Channel: Email, Unix: unix}})
	}
	d.want("nothing to confirm", confirming(1), Missing)
	d.want("asked", d.do(ann, Command{Ask: asking(ann, Email, 1)}), Accepted)
	d.want("asked by the same message", d.do(ann, Command{Ask: asking(ann, Email, 1)}), Reused)
	alerts, asked := d.due(ann, 1)
	d.want("alerts", alerts, 0)
	d.want("requests", asked, 1)
	d.want("asked anew", d.do(ann, Command{Ask: asking(ann, Email, 2)}), Accepted)
	_, asked = d.due(ann, 2)
	d.want("requests: the former is not sent any more", asked, 1)
	d.want("by the former request", confirming(1), Missing)
	d.want("as if it were confirmed", d.do(ann, Command{Subscribe: &Subscribe{Wallet: ann, Channel: Email, Prefs: 1, Unix: 3, Since: d.at.Unix()}}), Changed)
	d.at = d.at.Add(confirmSeconds*time.Second + time.Second)
	d.want("too late", confirming(2), Expired)
	alerts, _ = d.due(ann, 3)
	d.want("alerts", alerts, 0)

	d.want("asked a third time", d.do(ann, Command{Ask: asking(ann, Email, 4)}), Accepted)
	d.at = d.at.Add(confirmSeconds * time.Second)
	d.want("in time", confirming(4), Accepted)
	d.want("twice", confirming(4), Missing)
	alerts, asked = d.due(ann, 4)
	d.want("alerts", alerts, 1)
	d.want("requests: nobody needs one any more", asked, 0)
	h, err := getTally(d.w)
	if err != nil || h.Pending != 1 {
		t.Fatalf("%d are pending, not the one alert: %v", h.Pending, err)
	}

	// What it wants may change; a chat gets no mail; what has ended is asked again.
	s, err := getSubscription(d.w, ann, Email)
	if err != nil {
		t.Fatal(err)
	}
	keep := asking(ann, Email, 5)
	keep.Since = s.CreatedAt
	d.want("changed", d.do(ann, Command{Subscribe: keep}), Accepted)
	d.want("a chat", d.do(ann, Command{Ask: asking(ann, Telegram, 1)}), Accepted)
	alerts, asked = d.due(ann, 5)
	d.want("alerts, by email", alerts, 1)
	d.want("requests", asked, 0)
	value, err := (&Command{Unsubscribe: &Unsubscribe{Wallet: ann, Channel: Email, Unix: 6}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	d.apply(value)
	keep.Unix = 7
	d.want("of one that has ended", d.do(ann, Command{Subscribe: keep}), Changed)
}

// In no hour is an address asked more than it may be, nor does a wallet ask more; and counts do not stay for ever.
func TestConfirmationBounds(t *testing.T) {
	d, place, ann := newDesk(t), common.Address{0xaa}, common.Address{1}
	asks := func(n int) (taken int) {
		for range n {
			if d.do(place, Command{Permit: &Permit{Place: place}}) == Accepted {
				taken++
			}
		}
		return taken
	}
	var given []time.Time
	for range 300 { // five hours
		for range asks(2) {
			given = append(given, d.at)
		}
		d.at = d.at.Add(time.Minute)
	}
	for i := maxPlaceAsks; i < len(given); i++ {
		if gap := given[i].Sub(given[i-maxPlaceAsks]); gap < time.Hour {
			t.Fatalf("%d requests within %s", maxPlaceAsks+1, gap)
		}
	}
	d.want("mails in five hours", len(given), maxPlaceDay)
	d.at = d.at.Add(14 * time.Hour)
	d.want("mails in the rest of a day", asks(1), 0)
	if d.at.Sub(given[0]) >= MailSeconds*time.Second {
		t.Fatal("the code in the first mail is not good any more")
	}
	d.at = d.at.Add(7 * time.Hour)
	d.want("mails in the next day", asks(2), 2)
	for i := range int64(maxWalletAsks + 1) {
		want := Accepted
		if i == maxWalletAsks {
			want = Limited
		}
		d.want("ask", d.do(ann, Command{Ask: asking(ann, Telegram, i+1)}), want)
	}
	if s, err := getSubscription(d.w, ann, Telegram); err != nil || s.Unix != maxWalletAsks {
		t.Fatalf("the message that was refused is taken: %+v, %v", s, err)
	}
	rows := func() (n int) {
		if err := d.w.Scan(tallies, []byte(askedPrefix), nil, func(_, _ []byte) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if rows() < 3 {
		t.Fatalf("%d counts", rows())
	}
	d.do(ann, Command{Tick: &Tick{Time: 1}})
	if n := rows(); n == 0 || n > 7 {
		t.Fatalf("%d counts", n)
	}
	d.at = d.at.Add((keptAsked + 1) * time.Hour)
	d.do(ann, Command{Tick: &Tick{Time: 1}})
	d.want("counts of hours that are over", rows(), 0)
	d.want("asked again", asks(1), 1)
}

// A mail that no mailbox takes is not counted: strangers make up tags of a mailbox whose server has none of them.
func TestARefusedMailIsNotCounted(t *testing.T) {
	d, place := newDesk(t), common.Address{0xaa}
	asks := func() Outcome {
		return d.do(place, Command{Permit: &Permit{Place: place, Mail: &Request{Wallet: common.Address{1}, Sealed: []byte{1}}}})
	}
	reports := func(result Result) {
		row := Address{place, Email, askSubject((&ID{d.ids})[:]), ToConfirm}.Row()
		d.do(place, Command{Report: &Delivery{Wallet: place, Row: row, FiredAt: uint64(d.at.Unix()), Result: result, Reason: "no such mailbox"}})
		d.want("waiting", d.rows(outbox, row), 0)
	}
	for range 2 * maxPlaceDay {
		d.want("asked", asks(), Accepted)
		reports(Gone)
	}
	for range maxPlaceAsks {
		d.want("asked", asks(), Accepted)
		reports(Sent)
	}
	d.want("asked for more than it may get", asks(), Limited)
}

// What strangers have sent to confirm an address is no alert: neither pending, nor sent. An older build has counted
// what it queued.
func TestRequestsAreNoAlerts(t *testing.T) {
	d, ann, place := newDesk(t), common.Address{1}, common.Address{0xaa}
	counted := func(when string, pending, sent int) {
		t.Helper()
		row, err := getTally(d.w)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, minute := range row.Sent {
			n += minute
		}
		d.want(when, [2]int{row.Pending, n}, [2]int{pending, sent})
	}
	sent := func(at Address, firedAt uint64) {
		d.do(at.Wallet, Command{Report: &Delivery{Wallet: at.Wallet, Row: at.Row(), FiredAt: firedAt, Result: Sent}})
		d.want("waiting", d.rows(outbox, at.Row()), 0)
	}
	d.subscribe(ann, Email, 0x7f)
	d.due(ann, 1)
	counted("an alert is due", 1, 0)
	d.want("asked", d.do(place, Command{Permit: &Permit{Place: place, Mail: &Request{Wallet: ann, Sealed: []byte{1}}}}), Accepted)
	counted("a request", 1, 0)
	sent(Address{place, Email, askSubject((&ID{d.ids})[:]), ToConfirm}, uint64(d.at.Unix()))
	counted("a request was sent", 1, 0)
	sent(Address{ann, Email, common.Hash{31: 1}, Before1}, 1_003_600)
	counted("an alert was sent", 0, 1)

	former := Address{place, Email, askSubject([]byte{7}), ToConfirm}
	for _, was := range []int{1, 0} { // as it was queued by an older build, or tried
		d.w.Put(outbox, former.Row(), []byte(`{"request":{"wallet":"0x0100000000000000000000000000000000000000","sealed":"AQ=="},"stage":9,"due":1,"firedAt":1,"next":1}`))
		if err := putRow(d.w, tallies, []byte("all"), &tally{Pending: was}); err != nil {
			t.Fatal(err)
		}
		sent(former, 1)
		counted("a former build's was sent", 0, 0)
	}
}

// What an older build wrote is read: its subscriptions need no confirmation. And what this one writes makes a former
// build send nothing to an address that is not confirmed.
func TestConfirmationAcrossBuilds(t *testing.T) {
	d, ann, bob := newDesk(t), common.Address{1}, common.Address{2}
	d.apply([]byte("\x01" + `{"subscribe":{"id":[7,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"wallet":"0x0100000000000000000000000000000000000000","channel":1,"sealed":"AQ==","mask":"m","prefs":127,"unix":5}}` + "\x00"))
	alerts, _ := d.due(ann, 1)
	d.want("alerts of a command of before", alerts, 1)
	d.w.Put(subscriptions, subscriptionKey(bob, Email), []byte(`{"channel":1,"sealed":"AQ==","mask":"m","prefs":127,"createdAt":9,"unix":5}`))
	alerts, _ = d.due(bob, 2)
	d.want("alerts of a row of before", alerts, 1)

	cat := common.Address{3}
	d.want("asked", d.do(cat, Command{Ask: asking(cat, Email, 6)}), Accepted)
	row, err := d.w.Get(subscriptions, subscriptionKey(cat, Email))
	if err != nil {
		t.Fatal(err)
	}
	var former struct { // the row as it was
		CreatedAt int64
		Disabled  string
	}
	if err := json.Unmarshal(row, &former); err != nil || former.CreatedAt == 0 || former.Disabled == "" {
		t.Fatalf("a former build sends to %s: %v", row, err)
	}
	if former.Disabled != Unconfirmed {
		t.Fatal(former.Disabled)
	}
	// It knows neither the command nor the stage, and skips what it does not know.
	const formerStages, formerCommands = 9, `{"subscribe":{},"unsubscribe":{},"fact":{},"news":{},"tick":{},"claim":{},"report":{}}`
	if ToConfirm < formerStages {
		t.Fatalf("the stage %d had another meaning", ToConfirm)
	}
	var known map[string]struct{}
	if err := json.Unmarshal([]byte(formerCommands), &known); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(&Command{Ask: asking(ann, Email, 6)})
	if err != nil {
		t.Fatal(err)
	}
	var is map[string]json.RawMessage
	if err := json.Unmarshal(body, &is); err != nil {
		t.Fatal(err)
	}
	for name := range is {
		if _, ok := known[name]; ok {
			t.Fatalf("a former build takes %q for its own", name)
		}
	}
	// No table is new: a node of an older build stops at one that it does not know.
	var ids []int
	for _, table := range d.app.Tables() {
		ids = append(ids, int(table.ID))
	}
	if slices.Max(ids) != 10 {
		t.Fatalf("tables %v", ids)
	}
}

// TestRequestOfAFormerBuild: a mail that an older build has queued beside a confirmed address is sent once, and given
// up once refused.
func TestRequestOfAFormerBuild(t *testing.T) {
	for name, result := range map[string]Result{"sent": Sent, "gone": Gone, "dead": Dead} {
		t.Run(name, func(t *testing.T) {
			d, ann := newDesk(t), common.Address{1}
			d.subscribe(ann, Email, 0x7f)
			named := asking(ann, Email, 50)
			named.Sealed = []byte{2}
			d.want("asked", d.do(ann, Command{Ask: named}), Accepted)
			var row []byte
			if err := d.w.Scan(outbox, ann[:], nil, func(key, _ []byte) bool { row = slices.Clone(key); return false }); err != nil {
				t.Fatal(err)
			}
			attempts := 0
			for found := true; attempts < 10; attempts++ {
				var a Alert
				var s Subscription
				d.viewed(func(v state.View) {
					var err error
					if a, s, found, err = Pending(v, row); err != nil {
						t.Fatal(err)
					}
				})
				if !found {
					break
				}
				d.do(ann, Command{Claim: &Claim{Wallet: ann, Row: row, Attempt: a.Attempt, FiredAt: a.FiredAt, By: "x", Lapsed: a.By}})
				d.do(ann, Command{Report: &Delivery{Wallet: ann, Row: row, Attempt: a.Attempt, FiredAt: a.FiredAt, By: "x", Unix: s.Of(), Result: result, Reason: "no", To: "taker"}})
			}
			d.want("attempts", attempts, 1)
			s, err := getSubscription(d.w, ann, Email)
			d.want("the confirmed address", [2]any{s.Disabled, err}, [2]any{"", nil})
		})
	}
}
