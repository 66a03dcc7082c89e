package notifier

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"
)

// left is how many bytes the tables have.
func (d *desk) left() (bytes int) {
	d.t.Helper()
	for _, table := range d.app.Tables() {
		if err := d.w.Scan(table, nil, nil, func(key, row []byte) bool {
			if table != clocks {
				bytes += len(key) + len(row)
			}
			return true
		}); err != nil {
			d.t.Fatal(err)
		}
	}
	return bytes
}

// A wallet without a deal leaves next to nothing once it has unsubscribed, or its address was not confirmed in time.
func TestWhatAStrangerLeaves(t *testing.T) {
	const most = 42 // bytes of a channel: its key, and the time of its last message
	for _, ask := range []bool{false, true} {
		d := newDesk(t)
		d.tick(1)
		clean := d.left()
		ann := common.Address{1}
		for i := range int64(maxOutcomes) {
			channel := Channels[i%3]
			s := &Subscribe{Wallet: ann, Channel: channel, Sealed: make([]byte, 2000), Mask: strings.Repeat("m", 100), Prefs: 0x7f, Unix: i + 1}
			if ask {
				d.do(ann, Command{Ask: s})
				d.at = d.at.Add(20 * time.Minute) // as often as it may
			} else {
				d.do(ann, Command{Subscribe: s})
			}
		}
		if d.left() < 6000 {
			t.Fatalf("%d bytes of three subscriptions", d.left())
		}
		if !ask {
			for i, channel := range Channels {
				value, err := (&Command{Unsubscribe: &Unsubscribe{ID: ID{0xff, byte(i)}, Wallet: ann, Channel: channel, Unix: 100}}).Encode()
				if err != nil {
					t.Fatal(err)
				}
				d.apply(value)
			}
		}
		d.at = d.at.Add((keptAsked + 1) * time.Hour)
		d.tick(2)
		d.tick(3)
		if n := d.left() - clean; n > 3*most+30 { // and when to look again
			t.Errorf("asked: %v: %d bytes are left", ask, n)
		}
		for _, channel := range Channels {
			if s, err := getSubscription(d.w, ann, channel); err != nil || s.Unix < 29 || s.Active() {
				t.Errorf("asked: %v: its last message on %s is forgotten: %+v, %v", ask, channel, s, err)
			}
		}
	}
}

// Old outcomes of many wallets are removed, a part with each tick. Those that a client may wait for are not.
func TestOutcomesAreForgotten(t *testing.T) {
	d := newDesk(t)
	unsubscribe := func(i int, id ID) {
		wallet := common.Address{byte(i >> 8), byte(i), 1}
		value, err := (&Command{Unsubscribe: &Unsubscribe{ID: id, Wallet: wallet, Channel: Email, Unix: 1}}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		d.apply(value)
	}
	for i := range maxOutdated + 10 {
		unsubscribe(i, ID{1})
	}
	d.tick(1)
	d.want("while somebody may wait", d.rows(outcomes, nil), maxOutdated+10)
	d.at = d.at.Add(2 * outcomeTime)
	unsubscribe(0, ID{2})
	for i := range 3 {
		d.tick(uint64(2 + i))
	}
	d.want("once nobody does", d.rows(outcomes, nil), 1)
}

// formerAlert is what older builds know of an alert's row.
type formerAlert struct {
	Deal *Deal `json:"deal,omitempty"`
	Next int64 `json:"next"`
}

// What is encoded by hand is what encoding/json makes of it.
func TestEncoding(t *testing.T) {
	text := rapid.OneOf(rapid.StringMatching(`[0-9]{0,40}`), rapid.String())
	address := rapid.Custom(func(t *rapid.T) common.Address {
		return common.BytesToAddress(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "address"))
	})
	number := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64())
	rapid.Check(t, func(t *rapid.T) {
		same := func(got []byte, v any) {
			want, err := json.Marshal(v)
			if err != nil || string(got) != string(want) {
				t.Fatalf("%s, want %s, %v", got, want, err)
			}
		}
		deal := Deal{
			text.Draw(t, "id"), address.Draw(t, "borrower"), address.Draw(t, "lender"), address.Draw(t, "token"), text.Draw(t, "amount"),
			rapid.Bool().Draw(t, "position"), text.Draw(t, "cap"), text.Draw(t, "price"), number.Draw(t, "fundedAt"), number.Draw(t, "expiry"),
			number.Draw(t, "graceEnd"), rapid.Bool().Draw(t, "open"),
		}
		same(deal.encode(), &deal)
		row := openDeal{Deal: deal, After: number.Draw(t, "after"), Ended: number.Draw(t, "ended"), Armed: number.Draw(t, "armed")}
		row.Published = rapid.Uint32().Draw(t, "published")
		row.json = deal.encode()
		same(row.appendRow(nil), &row)
		var read openDeal
		if err := read.decode(row.appendRow(nil)); err != nil || !reflect.DeepEqual(read, row) {
			t.Fatalf("%+v, want %+v, %v", read, row, err)
		}
		alert := Alert{Terms: deal.terms(), Stage: Stage(rapid.IntRange(0, int(dealStages)-1).Draw(t, "stage")), Due: number.Draw(t, "due"), FiredAt: number.Draw(t, "firedAt"), Next: rapid.Int64().Draw(t, "next")}
		same(alert.appendFired(nil), &alert)
		former, err := json.Marshal(formerAlert{Deal: &deal, Next: alert.Next})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{alert.appendFired(nil), former} {
			var due dueRow
			if _, err := decodeRow(&due, text); err != nil || due.Next != alert.Next || due.Terms != *alert.Terms {
				t.Fatalf("%+v of %s, %v", due, text, err)
			}
		}
	})
}
