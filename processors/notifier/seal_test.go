package notifier

import (
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// Mails are counted by mailbox: other spellings of it count, other mailboxes do not.
func TestPlaces(t *testing.T) {
	keys, err := ParseKeys("1:" + strings.Repeat("11", 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{"ann@example.com", "Ann@Example.COM", true},
		{"ann@example.com", "a.nn@example.com", false},
		{"ann@gmail.com", "a.n.n@GoogleMail.com", true},
		{"ann+a@gmail.com", "a.nn+b@gmail.com", true},
		{"ann+a@example.com", "ann+b@example.com", true},
		{"ann+a@example.com", "ann@example.com", false}, // strangers' tags take no turn of the address itself
		{"ann+a@example.com", "a.nn+a@example.com", false},
		{"kate@example.com", "\u212aate@example.com", false}, // the Kelvin sign, which has kate's lower case and no mailbox
		{"ann@bücher.de", "ann@BÜCHER.de", true},
		{"ann@bücher.de", "ann@xn--bcher-kva.de", true},
		{"ann@bücher.de", "ann@bucher.de", false},
		{"ann@gmail.com", "a.nn@ｇ\U0001d5c6ail。com", true},
		{"ann@example.com", "ann@example.com。", true},
		{"ann@e_x.example.com", "Ann@E_X.example.com", true}, // which IDNA does not take
	} {
		if same := keys.Place(c.one) == keys.Place(c.other); same != c.same {
			t.Errorf("%s and %s: the same place is %v", c.one, c.other, same)
		}
		const at = 5
		if good := keys.GoodMailCode(keys.MailCode(c.one, at), c.other, at); good != c.same {
			t.Errorf("the code of %s is good for %s: %v", c.one, c.other, good)
		}
		if keys.GoodMailCode(keys.MailCode(c.one, at), c.one, at+1) {
			t.Error("a code is good at another time")
		}
	}
	if !keys.GoodMailCode(keys.MailCode("ann@example.com", 5), "ann+a@example.com", 5) {
		t.Error("who reads a mailbox does not read what its tags get")
	}
}

// TestTakers: an address that got an alert is recognised in any spelling. A tag is part of it: outside Gmail a plus
// sign may belong to another mailbox's name.
func TestTakers(t *testing.T) {
	k, err := ParseKeys("1:1111111111111111111111111111111111111111111111111111111111111111")
	if err != nil {
		t.Fatal(err)
	}
	wallet := common.Address{1}
	taker := k.Taker(wallet, Email, "Ops+News@example.com")
	for address, same := range map[string]bool{
		"ops+news@EXAMPLE.com": true, "ops+wrong@example.com": false, "ops@example.com": false, "ops+news@example.org": false,
	} {
		if k.GoodTaker(taker, wallet, Email, address) != same {
			t.Errorf("%s: the taker is another one: %v", address, same)
		}
	}
	former := k.all[0].sum("taker " + wallet.Hex() + " email ann@example.com")
	if !k.GoodTaker(former, wallet, Email, "Ann@example.com") {
		t.Error("the taker of a former build is not known")
	}
}
