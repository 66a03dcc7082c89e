package devchain

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

// dealTuple and bidTuple are the contracts' structs, with the fields in ABI order.
type (
	dealTuple struct {
		Borrower        common.Address
		ListedAt        *big.Int
		Term            uint32
		Kind            uint8
		State           uint8
		Lane            uint8
		FeeBps          uint16
		Token           common.Address
		ListingExpiry   *big.Int
		FundedAt        *big.Int
		AmountOrTokenId *big.Int //nolint:revive // the ABI's name
		Cap             *big.Int
		MinPrice        *big.Int
		Lender          common.Address
		Price           *big.Int
		Fee             *big.Int
	}
	bidTuple struct {
		DealId    *big.Int //nolint:revive // the ABI's name
		Lender    common.Address
		Expiry    *big.Int
		PlacedAt  *big.Int
		State     uint8
		Price     *big.Int
		TermsHash [32]byte
	}
)

// view reads one value from a contract at the head.
func view[T any](t *testing.T, m *Market, c callee, method string, args ...any) T {
	t.Helper()
	data, err := c.abi.Pack(method, args...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.backend.Client().CallContract(t.Context(), ethereum.CallMsg{To: &c.address, Data: data}, nil)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	values, err := c.abi.Unpack(method, out)
	if err != nil {
		t.Fatal(err)
	}
	return *abi.ConvertType(values[0], new(T)).(*T)
}

// equalsChain compares what the actors believe with what the contracts say at the head.
func equalsChain(t *testing.T, s *Scenario) {
	t.Helper()
	m := s.market
	nextDeal, nextBid := view[*big.Int](t, m, m.vault, "nextDealId"), view[*big.Int](t, m, m.vault, "nextBidId")
	openDeals, openBids := 0, 0
	for id := uint64(1); id < nextDeal.Uint64(); id++ {
		d := view[dealTuple](t, m, m.vault, "deals", bigTime(id))
		if d.State > uint8(contracts.DealFundedState) {
			continue
		}
		openDeals++
		known := s.model.deal(uint256.NewInt(id))
		if known == nil || known.lender != d.Lender || known.Cap.ToBig().Cmp(d.Cap) != 0 || known.Term != d.Term {
			t.Fatalf("deal %d is %+v, known as %+v", id, d, known)
		}
	}
	for id := uint64(1); id < nextBid.Uint64(); id++ {
		if b := view[bidTuple](t, m, m.vault, "bids", bigTime(id)); b.State == uint8(contracts.BidOpen) {
			openBids++
		}
	}
	if openDeals != len(s.model.deals) || openBids != len(s.model.bids) {
		t.Fatalf("%d deals and %d bids are open, %d and %d known", openDeals, openBids, len(s.model.deals), len(s.model.bids))
	}
	for _, c := range s.model.credits {
		if c.nft {
			continue
		}
		amount := view[*big.Int](t, m, m.vault, "credits", c.account, c.asset)
		if amount.Cmp(c.value.ToBig()) != 0 {
			t.Fatalf("%s may withdraw %d of %s, known as %s", c.account, amount, c.asset, c.value.Dec())
		}
	}
	for _, p := range s.model.positions {
		owner := view[common.Address](t, m, m.positions, "ownerOf", p.tokenID.ToBig())
		liquidity := view[*big.Int](t, m, m.positions, "getPositionLiquidity", p.tokenID.ToBig())
		if owner != p.owner || liquidity.Cmp(p.liquidity.ToBig()) != 0 {
			t.Fatalf("position %s is %s's with liquidity %d, known as %+v", p.tokenID.Dec(), owner, liquidity, p)
		}
	}
}
