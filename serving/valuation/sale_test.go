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
		blocks, err := newSale(meme, s.direct, nil).blocks(common.Address{1}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return blocks[0].Calls[saleSell].From, blocks[0].Calls[saleCreate].Data
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
