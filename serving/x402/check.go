package x402

import (
	"bytes"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
)

// Bounds of an authorization's expiry, besides the requirement's own timeout.
const (
	minValidity  = 30 * time.Second // otherwise it may expire before it is mined
	clockSkew    = 60 * time.Second // of a client's clock
	signatureLen = 65
)

// magic6492 ends the signature of an undeployed wallet (ERC-6492).
var magic6492 = bytes.Repeat([]byte{0x64, 0x92}, 16)

// Check makes every check that needs no chain, in the order of the protocol: network, the echo of our
// requirement, payee and value, the validity window, the signature. An invalid payment is a *Refusal. If
// Contract is set in the result, the signature must still be checked by Token.CheckSignature.
func (t *Terms) Check(p *Payment, now time.Time) (*Signed, error) {
	return t.check(p, func(a *Authorization) *Refusal { return t.checkWindow(a, now) })
}

// CheckAnyTime is Check without the validity window: for a payment that was accepted while it was valid.
func (t *Terms) CheckAnyTime(p *Payment) (*Signed, error) {
	return t.check(p, func(*Authorization) *Refusal { return nil })
}

func (t *Terms) check(p *Payment, window func(*Authorization) *Refusal) (*Signed, error) {
	if p.X402Version != Version {
		return nil, refuse(ReasonVersion, "x402Version is %d, not %d", p.X402Version, Version)
	}
	if p.Accepted.Scheme != t.Scheme {
		return nil, refuse(ReasonScheme, "the scheme is %q, not %q", p.Accepted.Scheme, t.Scheme)
	}
	if p.Accepted.Network != t.Network {
		return nil, refuse(ReasonNetwork, "the network is %q, not %q", p.Accepted.Network, t.Network)
	}
	if !t.echoed(&p.Accepted) {
		return nil, refuse(ReasonRequirements, "accepted does not match this resource's payment requirement")
	}
	signed, err := p.Signed()
	if err != nil {
		return nil, err
	}
	if signed.To != t.Payee {
		return nil, refuse(ReasonRecipient, "the transfer does not go to %s", t.Payee).by(signed.From)
	}
	if signed.Value.Cmp(t.Value) != 0 {
		return nil, refuse(ReasonValue, "the value is not %s", t.Amount).by(signed.From)
	}
	if err := window(&signed.Authorization); err != nil {
		return nil, err.by(signed.From)
	}
	if err := t.checkSignature(signed); err != nil {
		return nil, err.by(signed.From)
	}
	return signed, nil
}

// echoed compares the client's accepted requirement with ours. Addresses may differ in case.
func (t *Terms) echoed(r *Requirement) bool {
	echo := *r
	if !strings.EqualFold(echo.Asset, t.Asset) || !strings.EqualFold(echo.PayTo, t.PayTo) {
		return false
	}
	echo.Asset, echo.PayTo = t.Asset, t.PayTo
	return echo == t.Requirement
}

// Signed turns the client's spelling into an authorization, and checks nothing else.
func (p *Payment) Signed() (*Signed, error) {
	var (
		a      = &p.Payload.Authorization
		signed Signed
		err    error
	)
	if signed.From, err = parseAddress(a.From); err != nil {
		return nil, refuse(ReasonPayload, "authorization.from: %v", err)
	}
	if signed.To, err = parseAddress(a.To); err != nil {
		return nil, refuse(ReasonPayload, "authorization.to: %v", err)
	}
	if signed.Value, err = parseDecimal(a.Value); err != nil {
		return nil, refuse(ReasonPayload, "authorization.value: %v", err)
	}
	if signed.ValidAfter, err = parseSeconds(a.ValidAfter); err != nil {
		return nil, refuse(ReasonValidAfter, "authorization.validAfter: %v", err).by(signed.From)
	}
	if signed.ValidBefore, err = parseSeconds(a.ValidBefore); err != nil {
		return nil, refuse(ReasonValidBefore, "authorization.validBefore: %v", err).by(signed.From)
	}
	nonce, err := parseHex(a.Nonce, common.HashLength, common.HashLength)
	if err != nil {
		return nil, refuse(ReasonPayload, "authorization.nonce: %v", err)
	}
	signed.Nonce = common.Hash(nonce)
	if signed.Signature, err = parseHex(p.Payload.Signature, 1, maxSignatureBytes); err != nil {
		return nil, refuse(ReasonSignature, "signature: %v", err).by(signed.From)
	}
	return &signed, nil
}

var errSeconds = errors.New("it exceeds 64 bits")

func parseSeconds(text string) (uint64, error) {
	n, err := parseDecimal(text)
	if err != nil {
		return 0, err
	}
	if !n.IsUint64() {
		return 0, errSeconds
	}
	return n.Uint64(), nil
}

// Ending is a refusal of an authorization that may expire before it is mined; nil: there is time.
func Ending(a *Authorization, now time.Time) *Refusal {
	if a.ValidBefore >= uint64(max(now.Unix(), 0))+uint64(minValidity.Seconds()) {
		return nil
	}
	return refuse(ReasonValidBefore, "the authorization expires within %s", minValidity).by(a.From)
}

func (t *Terms) checkWindow(a *Authorization, now time.Time) *Refusal {
	at := uint64(max(now.Unix(), 0))
	latest := at + uint64(t.MaxTimeoutSeconds) + uint64(clockSkew.Seconds())
	switch {
	case a.ValidAfter >= at:
		return refuse(ReasonValidAfter, "the authorization is not valid yet")
	case a.ValidBefore > latest:
		return refuse(ReasonValidBefore, "the authorization expires more than %d s from now", latest-at)
	}
	return Ending(a, now)
}

// checkSignature recovers the payer. A signature that is no key's may be a contract wallet's.
func (t *Terms) checkSignature(s *Signed) *Refusal {
	if bytes.HasSuffix(s.Signature, magic6492) {
		return refuse(ReasonSignature, "undeployed wallets (ERC-6492) cannot pay")
	}
	if signer := t.signer(s); signer != s.From || signer == (common.Address{}) {
		s.Contract = true
	}
	return nil
}

// signer is the address that signed; zero: no key did. Like the token, it accepts only low s, and v of 27 or
// 28.
func (t *Terms) signer(signed *Signed) common.Address {
	if len(signed.Signature) != signatureLen {
		return common.Address{}
	}
	v := signed.Signature[64]
	r, s := new(big.Int).SetBytes(signed.Signature[:32]), new(big.Int).SetBytes(signed.Signature[32:64])
	if v != 27 && v != 28 || !crypto.ValidateSignatureValues(v-27, r, s, true) {
		return common.Address{}
	}
	digest := t.Digest(&signed.Authorization)
	key, err := crypto.SigToPub(digest[:], append(bytes.Clone(signed.Signature[:64]), v-27))
	if err != nil {
		return common.Address{}
	}
	return crypto.PubkeyToAddress(*key)
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// Payment is the JSON form of s, for facilitators and tests.
func (t *Terms) Payment(s *Signed, resource Resource) *Payment {
	return &Payment{
		X402Version: Version,
		Payload: Payload{
			Authorization: PayloadAuthorization{
				From: s.From.Hex(), To: s.To.Hex(), Value: s.Value.String(),
				ValidAfter: decimal(s.ValidAfter), ValidBefore: decimal(s.ValidBefore), Nonce: s.Nonce.Hex(),
			},
			Signature: hexutil.Encode(s.Signature),
		},
		Resource: &resource,
		Accepted: t.Requirement,
	}
}
