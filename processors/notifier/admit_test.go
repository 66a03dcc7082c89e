package notifier

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// In no hour and in no day do more mails go to a domain, nor to all domains, than may: whichever wallets ask. What the
// one bound refuses the other has not counted.
func TestAdmission(t *testing.T) {
	const most = 4
	d := newDesk(t)
	wallets, began := byte(0), d.at
	asks := func(domain byte, n int) (admitted int) {
		for range n {
			wallets++
			wallet := common.Address{wallets}
			switch got := d.do(wallet, Command{Admit: &Admission{Wallet: wallet, Domain: common.Address{1, domain}, Most: most}}); got {
			case Accepted:
				admitted++
			case Limited:
			default:
				t.Fatalf("outcome %d", got)
			}
		}
		return admitted
	}
	d.want("to a domain", asks(1, most+3), most)
	d.want("to another", asks(2, most-1), most-1)
	d.at = d.at.Add(2 * time.Minute) // of the next hour of the clock
	d.want("to the first within the hour", asks(1, 1), 0)
	d.want("to the other", asks(2, 2), 1)
	for domain := range byte(3) { // what was refused was not counted among all
		d.want("to a third", asks(3+domain, most+1), most)
	}
	d.want("to all", asks(9, 1), 0)
	d.at = d.at.Add(2 * time.Hour)
	d.want("to the one that all had no room for", asks(9, most+1), most)
	d.want("to the first in the next hour", asks(1, most+1), most)
	for d.at = d.at.Add(2 * time.Hour); d.at.Sub(began) < 24*time.Hour; d.at = d.at.Add(2 * time.Hour) {
		asks(1, most)
	}
	var day int
	for hour := range int64(30) {
		var n int
		if err := getRow(d.w, tallies, askedKey(began.Unix()/3600+hour, common.Address{1, 1}), &n); err != nil {
			t.Fatal(err)
		}
		day += n
	}
	d.want("to the first in a day", day, dailyAdmitted*most)
	d.at = began.Add(30 * time.Hour)
	d.want("to the first in the next day", asks(1, 1), 1)
	d.at = d.at.Add((keptAsked + 1) * time.Hour)
	d.do(common.Address{1}, Command{Tick: &Tick{Time: 1}})
	d.want("counts that stay", d.rows(tallies, []byte(askedPrefix)), 0)
}

// Domain is the registered domain, in any spelling.
func TestDomainOfAnAddress(t *testing.T) {
	keys, err := ParseKeys("1:" + "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20")
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range [][]string{
		{"ann@example.com", "bob@example.com", "b.ob+1@EXAMPLE.com", "eve@mail.example.com", "eve@a.b.example.com"},
		{"ann@example.co.uk", "bob@x.example.co.uk"},
		{"ann@gmail.com", "bob@googlemail.com", "b@GoogleMail.com"},
		{"ann@bücher.de", "bob@BÜCHER.de", "bob@xn--bcher-kva.de", "bob@x.xn--bcher-kva.de"},
		{"ann@com.de", "bob@com.de"},
	} {
		for _, email := range same[1:] {
			if keys.Domain(email) != keys.Domain(same[0]) {
				t.Errorf("%s and %s are counted apart", same[0], email)
			}
		}
	}
	for _, other := range [][2]string{{"ann@example.com", "ann@example.org"}, {"ann@a.co.uk", "ann@b.co.uk"}, {"ann@gmail.com", "ann@gmail.co"}} {
		if keys.Domain(other[0]) == keys.Domain(other[1]) {
			t.Errorf("%s and %s are counted together", other[0], other[1])
		}
	}
	if keys.Domain("ann@example.com") == keys.Place("ann@example.com") {
		t.Error("a domain is counted as a mailbox")
	}
}
