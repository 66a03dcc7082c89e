package x402

import (
	"fmt"
	"strings"

	"github.com/ethereum/go-ethereum/common"
)

// Reason is the reason of a refusal, as the protocol names it.
type Reason string

// The reasons.
const (
	ReasonPayload             Reason = "invalid_payload"
	ReasonVersion             Reason = "invalid_x402_version"
	ReasonRequirements        Reason = "invalid_payment_requirements"
	ReasonScheme              Reason = "invalid_exact_evm_scheme"
	ReasonNetwork             Reason = "invalid_exact_evm_network_mismatch"
	ReasonRecipient           Reason = "invalid_exact_evm_recipient_mismatch"
	ReasonValue               Reason = "invalid_exact_evm_payload_authorization_value_mismatch"
	ReasonValidAfter          Reason = "invalid_exact_evm_payload_authorization_valid_after"
	ReasonValidBefore         Reason = "invalid_exact_evm_payload_authorization_valid_before"
	ReasonSignature           Reason = "invalid_exact_evm_signature"
	ReasonNonceUsed           Reason = "invalid_exact_evm_nonce_already_used"
	ReasonInsufficientBalance Reason = "invalid_exact_evm_insufficient_balance"
	ReasonSimulation          Reason = "invalid_exact_evm_transaction_simulation_failed"
	ReasonTransaction         Reason = "invalid_exact_evm_transaction_failed"
	ReasonTransfer            Reason = "invalid_exact_evm_transfer_event_mismatch"
)

// shown is a facilitator's reason if it looks like one of the protocol. Others are not shown: they may repeat what was
// sent.
func (r Reason) shown() string {
	if words := strings.ReplaceAll(string(r), "x402", ""); len(r) > 80 || strings.Trim(words, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "not of the protocol"
	}
	return string(r)
}

// Refusal is a refused payment: nothing is charged, and the client may send another.
type Refusal struct {
	Reason Reason
	Detail string         // for people
	Payer  common.Address // if known
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Detail }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// by sets the payer.
func (r *Refusal) by(payer common.Address) *Refusal {
	r.Payer = payer
	return r
}
