package notifier

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// What is decoded encodes to the same, and nothing that comes from the network brings the decoder down.
func FuzzCommand(f *testing.F) {
	for _, c := range []Command{
		{Subscribe: &Subscribe{ID: ID{1}, Wallet: common.Address{2}, Channel: Push, Sealed: []byte{3}, Mask: "m", Prefs: 5, Unix: 6}},
		{Fact: &Fact{Wallet: common.Address{2}, Deal: Deal{ID: "1", Open: true}}, Removed: true},
		{Asset: &Asset{Token: common.Address{2}, Symbol: "T", Decimals: 6}},
		{Tick: &Tick{From: 1, Block: 2, Time: 3}},
		{Report: &Delivery{Row: []byte{1}, Result: Sent}},
		{Ask: &Subscribe{ID: ID{1}, Wallet: common.Address{2}, Channel: Email, Since: 7}},
		{Confirm: &Confirmation{ID: ID{1}, Wallet: common.Address{2}, Channel: Telegram, Unix: 8}},
		{Permit: &Permit{ID: ID{1}, Place: common.Address{3}, Mail: &Request{Wallet: common.Address{1}, Sealed: []byte{9}}}},
		{Await: &Subscribe{ID: ID{1}, Wallet: common.Address{1}, Channel: Email, Sealed: []byte{9}, Mask: "m", Unix: 5, Mail: &Permit{ID: ID{2}, Place: common.Address{3}, Mail: &Request{Wallet: common.Address{1}, Sealed: []byte{8}}}}},
		{Reseal: &Reseal{Wallet: common.Address{2}, Channel: Email, Was: []byte{1}, Sealed: []byte{2}}},
		{Unsubscribe: &Unsubscribe{ID: ID{1}, Wallet: common.Address{2}, Channel: Email, Since: 9, Of: 10}},
	} {
		value, err := c.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		c, err := decodeCommand(value)
		if err != nil {
			return
		}
		again, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeCommand(again); err != nil || !reflect.DeepEqual(c, back) {
			t.Fatalf("%+v came back as %+v: %v", c, back, err)
		}
	})
}

// An address opens for its own wallet and channel only, also under a key that is no longer the first.
func TestKeys(t *testing.T) {
	one, two := "1:"+strings.Repeat("11", keyBytes), "2:"+strings.Repeat("22", keyBytes)
	old, err := ParseKeys(one)
	if err != nil {
		t.Fatal(err)
	}
	wallet := common.Address{7}
	sealed, err := old.Seal(wallet, Email, "a@example.com")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("example")) {
		t.Fatal("the address is in the clear")
	}
	link := old.Link(wallet, Email, 5, "a@example.com")
	rotated, err := ParseKeys(two + "," + one)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := rotated.Open(wallet, Email, sealed); err != nil || got != "a@example.com" {
		t.Fatalf("opened %q, %v", got, err)
	}
	if !rotated.GoodLink(link, wallet, Email, 5, "a@example.com") || rotated.GoodLink(link, wallet, Email, 6, "a@example.com") ||
		rotated.GoodLink(link, wallet, Push, 5, "a@example.com") || rotated.GoodLink(link, wallet, Email, 5, "b@example.com") {
		t.Fatal("a link is good for one subscription only")
	}
	fresh, err := rotated.Seal(wallet, Email, "a@example.com")
	if err != nil || fresh[0] != 2 {
		t.Fatalf("sealed with key %d, %v", fresh[0], err)
	}
	for name, open := range map[string]func() (string, error){
		"another wallet":  func() (string, error) { return rotated.Open(common.Address{8}, Email, sealed) },
		"another channel": func() (string, error) { return rotated.Open(wallet, Push, sealed) },
		"no key":          func() (string, error) { return old.Open(wallet, Email, fresh) },
		"cut":             func() (string, error) { return old.Open(wallet, Email, sealed[:9]) },
	} {
		if _, err := open(); !errors.Is(err, ErrSealed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"", "x", "0:" + strings.Repeat("11", keyBytes), "1:zz", one + "," + one} {
		if _, err := ParseKeys(bad); err == nil || strings.Contains(err.Error(), strings.Repeat("11", 4)) {
			t.Errorf("keys %q: %v", bad, err)
		}
	}
}
