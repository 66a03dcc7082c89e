package valuation

import (
	"bytes"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// TestNobodyKnowsTheBuyer: a token cannot let those alone sell who find out whether it can be sold: neither the account nor the
// code that it sells through is ever the same.
func TestNobodyKnowsTheBuyer(t *testing.T) {
	s := newStage(t)
	simulated := func() (buyer common.Address, created []byte) {
		calls, err := newSale(meme, s.direct).calls(common.Address{1})
		if err != nil {
			t.Fatal(err)
		}
		return calls[saleSell].From, calls[saleCreate].Data
	}
	buyer, created := simulated()
	other, createdToo := simulated()
	if buyer == other || buyer == (common.Address{}) {
		t.Errorf("%s buys in two simulations", buyer)
	}
	if len(created) != len(createdToo) || bytes.Equal(created, createdToo) {
		t.Error("the same contract is created in two simulations")
	}
}
