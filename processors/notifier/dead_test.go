package notifier

import (
	"fmt"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// dies has a new deal of the wallet come due at n, and its alert given up.
func (d *desk) dies(wallet common.Address, n uint64, reason string) {
	d.t.Helper()
	d.due(wallet, n)
	row := Address{wallet, Telegram, common.Hash{31: 1}, Before1}.Row()
	d.do(wallet, Command{Report: &Delivery{Wallet: wallet, Row: row, FiredAt: n*1_000_000 + 3600, Result: Dead, Reason: reason}})
}

// reasons are those of the dead letters, the oldest first.
func (d *desk) reasons() (all []string) {
	d.t.Helper()
	err := d.w.Scan(dead, nil, nil, func(key, value []byte) bool {
		var a Alert
		if err := getRow(row(value), dead, key, &a); err != nil {
			d.t.Fatal(err)
		}
		all = append(all, a.Reason)
		return true
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return all
}

// A request to confirm an address that was given up keeps its reason and no address: what is sealed with a former key would need that
// key, or be read with it, for a month.
func TestADeadLetterHasNoAddress(t *testing.T) {
	d, place := newDesk(t), common.Address{0xaa}
	for _, result := range []Result{Dead, Gone} {
		d.want("asked", d.do(place, Command{Permit: &Permit{Place: place, Mail: &Request{Wallet: common.Address{1}, Sealed: []byte("sealed address"), Stranger: true}}}), Accepted)
		row := Address{place, Email, askSubject((&ID{d.ids})[:]), ToConfirm}.Row()
		d.do(place, Command{Report: &Delivery{Wallet: place, Row: row, FiredAt: uint64(d.at.Unix()), Result: result, Reason: fmt.Sprint(result)}})
	}
	d.want("dead letters", fmt.Sprint(d.reasons()), "[3 4]")
	err := d.w.Scan(dead, nil, nil, func(key, value []byte) bool {
		var a Alert
		if err := getRow(row(value), dead, key, &a); err != nil || a.Request == nil || a.Request.Wallet != (common.Address{1}) || len(a.Request.Sealed) > 0 {
			t.Errorf("%s: %v", value, err)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
}

// row reads as itself.
type row []byte

func (r row) Get(*state.Table, []byte) ([]byte, error) { return r, nil }

// An alert that was given up is kept with its reason, for a month, and of a wallet only so many are, the last ones: those of others,
// however many, push out none.
func TestDeadLetters(t *testing.T) {
	d, ann := newDesk(t), common.Address{1}
	d.subscribe(ann, Telegram, 0x7f)
	former := Address{common.Address{0xf0}, Push, common.Hash{9}, AtExpiry}.Row()
	if err := putRow(d.w, dead, former, &Alert{Reason: "of a former build"}); err != nil {
		t.Fatal(err)
	}
	d.dies(ann, 1, "one")
	d.want("dead letters", fmt.Sprint(d.reasons()), "[one]")
	d.at = d.at.Add(time.Hour)
	d.dies(ann, 2, "two")
	d.want("dead letters", fmt.Sprint(d.reasons()), "[one two]")
	d.want("what is sent", d.sendable(), "")
	d.at = d.at.Add(deadTime - time.Hour)
	d.tick(2_100_000)
	d.want("after a month less a moment", fmt.Sprint(d.reasons()), "[one two]")
	d.at = d.at.Add(time.Millisecond)
	d.tick(2_200_000)
	d.want("after a month", fmt.Sprint(d.reasons()), "[two]")
	d.at = d.at.Add(time.Hour)
	d.tick(2_300_000)
	d.want("and an hour", fmt.Sprint(d.reasons()), "[]")

	for n := range uint64(maxDead + 5) {
		d.at = d.at.Add(time.Second)
		d.dies(ann, 3+n, fmt.Sprint(n))
	}
	all := d.reasons()
	d.want("the number that is kept", len(all), maxDead)
	d.want("the first of them", all[0], "5")

	const strangers = maxForgotten + 100
	for i := range strangers {
		d.at = d.at.Add(time.Second)
		other := common.Address{2, byte(i >> 8), byte(i)}
		d.subscribe(other, Telegram, 0x7f)
		d.dies(other, uint64(100+i), "of a stranger")
	}
	all = d.reasons()
	d.want("hers, and those of strangers", len(all), maxDead+strangers)
	d.want("the first of them, still", all[0], "5")
	d.at = d.at.Add(2 * deadTime)
	for i := range uint64(3) { // the first fires, and each other forgets so many
		d.tick(2_000_000_000 + i)
	}
	d.want("at last", len(d.reasons()), 0)
	d.want("what is left of the wallets'", d.rows(tallies, []byte(lettersPrefix)), 0)
}
