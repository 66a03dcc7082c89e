package x402

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxHeaderBytes bounds the header: a payment takes about 1 KiB, one of a contract wallet a little more.
const maxHeaderBytes = 12 << 10

// maxSignatureBytes bounds the signature passed to a contract wallet.
const maxSignatureBytes = 2 << 10

// wirePayment has the fields that are checked before the rest is decoded.
type wirePayment struct {
	X402Version int            `json:"x402Version"`
	Payload     jsontext.Value `json:"payload"`
	Resource    jsontext.Value `json:"resource"`
	Accepted    jsontext.Value `json:"accepted"`
	Extensions  jsontext.Value `json:"extensions"`
}

// Decode decodes the header PAYMENT-SIGNATURE strictly: no unknown or duplicate fields, no trailing data. An
// invalid header is a *Refusal.
func Decode(header string) (*Payment, error) {
	if len(header) > maxHeaderBytes {
		return nil, refuse(ReasonPayload, "the header exceeds %d bytes", maxHeaderBytes)
	}
	text, err := base64.StdEncoding.Strict().DecodeString(header)
	if err != nil || strings.ContainsAny(header, "\r\n") { // which the decoder ignores
		return nil, refuse(ReasonPayload, "the header is not padded standard base64")
	}
	var wire wirePayment
	if err := strictly(text, &wire); err != nil {
		return nil, refuse(ReasonPayload, "the header is not a payment: %v", err)
	}
	if wire.X402Version != Version {
		return nil, refuse(ReasonVersion, "x402Version is %d, not %d", wire.X402Version, Version)
	}
	p := &Payment{X402Version: wire.X402Version}
	if err := strictly(wire.Accepted, &p.Accepted); err != nil {
		return nil, refuse(ReasonPayload, "accepted: %v", err)
	}
	if p.Accepted.Scheme != SchemeExact {
		return nil, refuse(ReasonScheme, "the scheme is %q, not %q", p.Accepted.Scheme, SchemeExact)
	}
	if err := strictly(wire.Payload, &p.Payload); err != nil {
		return nil, refuse(ReasonPayload, "payload: %v", err)
	}
	return p, nil
}

func strictly(text []byte, v any) error {
	if len(text) == 0 {
		return errors.New("it is missing")
	}
	if err := json.Unmarshal(text, v, json.RejectUnknownMembers(true)); err != nil {
		return errors.New("malformed JSON, an unknown field or a wrong type") // the detail would quote the caller
	}
	return nil
}

// parseAddress parses an address in one case, or with a valid EIP-55 checksum.
func parseAddress(text string) (common.Address, error) {
	raw, err := parseHex(text, common.AddressLength, common.AddressLength)
	if err != nil {
		return common.Address{}, err
	}
	address := common.Address(raw)
	digits := text[2:]
	if digits != strings.ToLower(digits) && digits != strings.ToUpper(digits) && text != address.Hex() {
		return common.Address{}, errors.New("its checksum is wrong")
	}
	return address, nil
}

func parseHex(text string, least, most int) ([]byte, error) {
	digits, ok := strings.CutPrefix(text, "0x")
	if !ok {
		return nil, errors.New("it does not begin with 0x")
	}
	if len(digits) > 2*most {
		return nil, fmt.Errorf("it exceeds %d bytes", most)
	}
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) < least {
		return nil, fmt.Errorf("it is not %d to %d bytes of hex", least, most)
	}
	return raw, nil
}

const maxDecimalDigits = 78 // of 2^256

// parseDecimal parses a number below 2^256 in canonical form.
func parseDecimal(text string) (*big.Int, error) {
	if text == "" || len(text) > maxDecimalDigits || text[0] == '0' && text != "0" {
		return new(big.Int), errors.New("it is not a decimal number")
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return new(big.Int), errors.New("it is not a decimal number")
		}
	}
	n, _ := new(big.Int).SetString(text, 10)
	if n.BitLen() > 256 {
		return new(big.Int), errors.New("it exceeds 256 bits")
	}
	return n, nil
}
