package topics

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"
)

// An alert is what its schema says, field by field, and its ID is that of consumers for good.
func TestAlertEqualsTheLibrary(t *testing.T) {
	schemas := libraries(t)
	rapid.Check(t, func(t *rapid.T) {
		text, number := rapid.String(), rapid.Uint64Max(1<<62)
		a := Alert{
			Wallet: common.BytesToAddress(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "wallet")), Channel: text.Draw(t, "channel"), Kind: text.Draw(t, "kind"),
			DealID: text.Draw(t, "deal"), Role: text.Draw(t, "role"), Due: number.Draw(t, "due"), FiredAt: number.Draw(t, "fired"),
			Expiry: number.Draw(t, "expiry"), GraceEnd: number.Draw(t, "grace"), Epoch: number.Draw(t, "epoch"), Term: number.Draw(t, "term"),
		}
		value := AppendAlert(nil, a.ID(), &a)
		fields, again := reencode(t, schemas, value)
		if !bytes.Equal(value, again) {
			t.Fatalf("written\n%x, by the library\n%x", value, again)
		}
		id := a.ID()
		for name, want := range map[string]any{
			"id": id[:], "wallet": a.Wallet[:], "channel": a.Channel, "kind": a.Kind, "deal_id": a.DealID, "role": a.Role,
			"due": a.Due, "fired_at": a.FiredAt, "expiry": a.Expiry, "grace_end": a.GraceEnd, "epoch": a.Epoch, "term": a.Term,
		} {
			if got := fmt.Sprint(fields[name]); got != fmt.Sprint(want) {
				t.Errorf("%s is %s, want %v", name, got, want)
			}
		}
	})
	a := Alert{Wallet: common.Address{1}, Channel: "email", Kind: "t1", DealID: "7", Due: 5, FiredAt: 6}
	if got, want := a.ID().Hex(), "0xb5004887c821e7e3bd8190e02dd72e8a4f0ef284f293f0b3646f3d0546dfc5c8"; got != want {
		t.Errorf("its ID is %s, consumers have it as %s", got, want)
	}
}
