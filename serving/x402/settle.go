package x402

import (
	"context"
	"errors"

	"github.com/ethereum/go-ethereum/common"
)

// Attempt is a transaction that submits an authorization.
type Attempt struct {
	Hash  common.Hash
	Raw   []byte // signed transaction, to be resent unchanged
	Nonce uint64 // of its sender
}

// Record stores an attempt before it is broadcast. If it fails, the attempt is not broadcast.
type Record func(ctx context.Context, a Attempt) error

// Settler submits payments to the chain. Its result does not decide whether a payment is paid: only
// Token.AuthorizationState does. The same payment may be settled again.
type Settler interface {
	// Settle submits s. Attempts of our own are recorded before they leave.
	Settle(ctx context.Context, s *Signed, record Record) error
	// Resume sends an attempt that was recorded, and may or may not have left.
	Resume(ctx context.Context, s *Signed, a Attempt, record Record) error
}

// Errors that say what an operator can do. The payment is pending all the same.
var (
	ErrNoGas       = errors.New("the relayer cannot pay for gas")
	ErrFeeCeiling  = errors.New("the gas price exceeds the relayer's ceiling")
	ErrFacilitator = errors.New("the facilitator gave no valid response")
)
