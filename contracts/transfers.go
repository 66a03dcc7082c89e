package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// Reasons why the holders of a token are unknown. Its contract can emit any log.
const (
	FaultMalformed = "malformed transfer"
	FaultBelowZero = "transfer exceeds what the sender holds"
	FaultBeyond    = "minted beyond 256 bits"
)

// Holdings are the balances of a token.
type Holdings interface {
	// Held is the balance of an account.
	Held(account common.Address) (uint256.Int, error)
	// SetHeld sets the balance, which differs from before. Zero: the account is no holder.
	SetHeld(account common.Address, before, amount *uint256.Int) error
}

// Move moves the amount from one account to another. The zero address holds nothing: it mints and burns. The supply is
// the sum of all holdings. The ingester sums up a token's history by it, and the processors what follows. After a
// fault, supply and holdings mean nothing.
func (e *TokenTransferred) Move(supply *uint256.Int, of Holdings) (fault string, err error) {
	if e.Amount.IsZero() {
		return "", nil
	}
	if e.From == (common.Address{}) {
		if _, over := supply.AddOverflow(supply, &e.Amount); over {
			return FaultBeyond, nil
		}
	} else {
		before, err := of.Held(e.From)
		if err != nil {
			return "", err
		}
		after, below := new(uint256.Int).SubOverflow(&before, &e.Amount)
		if below {
			return FaultBelowZero, nil
		}
		if err := of.SetHeld(e.From, &before, after); err != nil {
			return "", err
		}
	}
	if e.To == (common.Address{}) {
		supply.Sub(supply, &e.Amount)
		return "", nil
	}
	before, err := of.Held(e.To)
	if err != nil {
		return "", err
	}
	return "", of.SetHeld(e.To, &before, new(uint256.Int).Add(&before, &e.Amount)) // at most the supply
}
