// Package x402 is the server side of x402 v2 on EVM chains with the scheme "exact" (EIP-3009): headers, the
// checks of a payment, and its settlement, verified by the chain's logs. It must not know what is sold, store
// payments, or import other packages of this module, so that others can use it.
//
//	x402.go         the content of the three headers
//	decode.go       decodes a client's header, strictly
//	check.go        the checks that need no chain, in order
//	eip712.go       the digest that a payer signs
//	token.go        checks of the token on its chain
//	outcome.go      the outcome of an authorization; search.go finds its log
//	settle.go       how a payment is submitted; facilitator.go and relayer.go implement it
//
// Non-obvious:
//   - An authorization moves money at most once, however often it is submitted and by any sender: the token stores its
//     nonce. So submitting twice is safe, but forgetting one that may still be used is not.
//   - Anyone who has seen an authorization can submit it. Only the token's logs decide whether it is paid,
//     never the receipt of our transaction or the answer of a facilitator.
//   - A settled authorization is public. A server that accepts replays must compare more than its nonce.
package x402

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"
)

// Version of the protocol.
const Version = 2

// SchemeExact is the only supported scheme: exactly the requested amount.
const SchemeExact = "exact"

// The headers. Each holds JSON in padded standard base64.
const (
	HeaderRequired  = "PAYMENT-REQUIRED"
	HeaderSignature = "PAYMENT-SIGNATURE"
	HeaderResponse  = "PAYMENT-RESPONSE"
)

// Requirement is a way to pay.
type Requirement struct {
	Scheme            string `json:"scheme"`
	Network           string `json:"network"` // CAIP-2: "eip155:8453"
	Amount            string `json:"amount"`  // of the asset's smallest unit, decimal
	Asset             string `json:"asset"`   // address of the token
	PayTo             string `json:"payTo"`
	MaxTimeoutSeconds int64  `json:"maxTimeoutSeconds"`
	Extra             Domain `json:"extra"`
}

// Domain is the part of the token's EIP-712 domain that a payer cannot derive.
type Domain struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Resource is what is paid for.
type Resource struct {
	URL         string `json:"url"`
	Description string `json:"description"`
	MimeType    string `json:"mimeType"`
}

// Required is the content of PAYMENT-REQUIRED.
type Required struct {
	X402Version int           `json:"x402Version"`
	Error       string        `json:"error"`
	Resource    Resource      `json:"resource"`
	Accepts     []Requirement `json:"accepts"`
}

// Payment is the content of PAYMENT-SIGNATURE.
type Payment struct {
	X402Version int         `json:"x402Version"`
	Payload     Payload     `json:"payload"`
	Resource    *Resource   `json:"resource,omitempty"`
	Accepted    Requirement `json:"accepted"`
}

// Payload is an authorized transfer.
type Payload struct {
	Authorization PayloadAuthorization `json:"authorization"`
	Signature     string               `json:"signature"` // 0x, hex
}

// PayloadAuthorization is an EIP-3009 authorization in JSON.
type PayloadAuthorization struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Value       string `json:"value"`       // decimal
	ValidAfter  string `json:"validAfter"`  // unix seconds, decimal
	ValidBefore string `json:"validBefore"` // unix seconds, decimal
	Nonce       string `json:"nonce"`       // 0x, 32 bytes in hex
}

// Settlement is the content of PAYMENT-RESPONSE.
type Settlement struct {
	Success     bool   `json:"success"`
	ErrorReason Reason `json:"errorReason,omitempty"`
	Payer       string `json:"payer,omitempty"`
	Transaction string `json:"transaction"`
	Network     string `json:"network"`
}

// EncodeHeader encodes the value of one of the three headers.
func EncodeHeader(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode x402 header: %w", err)
	}
	return base64.StdEncoding.EncodeToString(text), nil
}

// Terms are a parsed requirement.
type Terms struct {
	Requirement
	ChainID   uint64
	Token     common.Address
	Payee     common.Address
	Value     *big.Int
	separator common.Hash
}

// NewTerms parses our own requirement, and returns all errors, which name the flags.
func NewTerms(r Requirement) (*Terms, error) {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	t := &Terms{Requirement: r}
	fault(r.Scheme != SchemeExact, "scheme: %q is not %q", r.Scheme, SchemeExact)
	reference, ok := strings.CutPrefix(r.Network, "eip155:")
	chainID, err := strconv.ParseUint(reference, 10, 64)
	fault(!ok || err != nil || chainID == 0 || reference != strconv.FormatUint(chainID, 10), "payment-network: %q is not eip155:<chain ID>", r.Network)
	t.ChainID = chainID
	for _, a := range []struct {
		name, text string
		into       *common.Address
	}{{"payment-asset", r.Asset, &t.Token}, {"payment-to", r.PayTo, &t.Payee}} {
		address, err := parseAddress(a.text)
		fault(err != nil || address == (common.Address{}), "%s: %q is not an address", a.name, a.text)
		*a.into = address
	}
	value, err := parseDecimal(r.Amount)
	fault(err != nil || value.Sign() == 0, "payment-amount: %q is not a positive decimal", r.Amount)
	t.Value = value
	fault(r.MaxTimeoutSeconds <= int64(minValidity.Seconds()), "maxTimeoutSeconds: %d does not exceed %s", r.MaxTimeoutSeconds, minValidity)
	fault(r.Extra.Name == "", "payment-token-name: required")
	fault(r.Extra.Version == "", "payment-token-version: required")
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	t.separator = DomainSeparator(r.Extra, t.ChainID, t.Token)
	return t, nil
}

// Of returns the terms that an authorization meets: the same token with its own payee and value, whatever else was
// asked for when it was signed.
func (t *Terms) Of(a *Authorization) *Terms {
	if a.To == t.Payee && a.Value.Cmp(t.Value) == 0 {
		return t
	}
	of := *t
	of.Payee, of.PayTo, of.Value, of.Amount = a.To, a.To.Hex(), a.Value, a.Value.String()
	return &of
}

// Required is the response to a request without a payment, or with a refused one.
func (t *Terms) Required(resource Resource, reason string) Required {
	if reason == "" {
		reason = "Payment required"
	}
	return Required{X402Version: Version, Error: reason, Resource: resource, Accepts: []Requirement{t.Requirement}}
}

// Settled is the response to a payment that is on the chain.
func (t *Terms) Settled(payer common.Address, transaction common.Hash) Settlement {
	return Settlement{Success: true, Payer: payer.Hex(), Transaction: transaction.Hex(), Network: t.Network}
}

// Refused is the response to a refused payment.
func (t *Terms) Refused(r *Refusal) Settlement {
	s := Settlement{ErrorReason: r.Reason, Network: t.Network}
	if r.Payer != (common.Address{}) {
		s.Payer = r.Payer.Hex()
	}
	return s
}
