package deals

import (
	"encoding/binary"
	"errors"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// Indexes for sums: they are derived from the deals and need no rows.

// WalletEntry is the value in IndexWallet: a deal as seen by one of its parties. Amounts are raw USDG, of 128
// bits as in the contract; Price and Fee are 0 until the deal is funded.
type WalletEntry struct {
	State            contracts.DealState
	Borrower, Lender bool
	Cap, Price, Fee  uint256.Int
}

const (
	amountBytes = 16
	walletBytes = 2 + 3*amountBytes

	roleBorrower = 1 << 0
	roleLender   = 1 << 1
)

func (w *WalletEntry) append(b []byte) []byte {
	var role byte
	if w.Borrower {
		role |= roleBorrower
	}
	if w.Lender {
		role |= roleLender
	}
	b = append(b, byte(w.State), role)
	return appendAmounts(b, &w.Cap, &w.Price, &w.Fee)
}

// DecodeWalletEntry decodes the value of an entry of IndexWallet.
func DecodeWalletEntry(value []byte) (w WalletEntry, err error) {
	if len(value) != walletBytes {
		return w, errors.New("wallet entry has the wrong length")
	}
	w.State, w.Borrower, w.Lender = contracts.DealState(value[0]), value[1]&roleBorrower != 0, value[1]&roleLender != 0
	takeAmounts(value[2:], &w.Cap, &w.Price, &w.Fee)
	return w, nil
}

func appendAmounts(b []byte, amounts ...*uint256.Int) []byte {
	for _, a := range amounts {
		raw := a.Bytes32()
		b = append(b, raw[len(raw)-amountBytes:]...)
	}
	return b
}

func takeAmounts(b []byte, amounts ...*uint256.Int) {
	for i, a := range amounts {
		a.SetBytes(b[i*amountBytes:][:amountBytes])
	}
}

// FundedAtKey is a position in IndexFundedAt before all deals that were funded at that time or earlier.
func FundedAtKey(at uint64) []byte { return appendUint64(nil, ^at) }

// DecodeFundedAt decodes an entry of IndexFundedAt.
func DecodeFundedAt(entry, value []byte) (at uint64, price, fee uint256.Int, err error) {
	if len(entry) != 8+idBytes || len(value) != 2*amountBytes {
		return 0, price, fee, errors.New("entry of a funded deal has the wrong length")
	}
	takeAmounts(value, &price, &fee)
	return ^binary.BigEndian.Uint64(entry), price, fee, nil
}

// indexFunded adds the index entries of a funded deal.
func indexFunded(key []byte, d *topics.Deal, to *state.IndexEntries) {
	var (
		f       = d.Funding
		at      = FundedAtKey(f.FundedAt)
		amounts [2 * amountBytes]byte
	)
	to.Put(IndexFundedAsset, nil, AssetPrefix(d.Token), at, key)
	to.Put(IndexFundedAt, appendAmounts(amounts[:0], &f.Price, &f.Fee), at, key)
}
