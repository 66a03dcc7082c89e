package x402

import (
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
	"github.com/google/go-cmp/cmp"
)

// exchange is one between the reference server and the reference client: testdata/exchanges.json.
type exchange struct {
	Status    int    `json:"status"`
	Date      string `json:"date"`
	Signature string `json:"signature"`
	Required  string `json:"required"`
	Response  string `json:"response"`
}

func exchanges(t testing.TB) map[string]exchange {
	t.Helper()
	text, err := os.ReadFile("testdata/exchanges.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]exchange
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func requirement() Requirement {
	return Requirement{
		Scheme: SchemeExact, Network: "eip155:8453", Amount: "15000000", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", MaxTimeoutSeconds: 120, Extra: Domain{Name: "USD Coin", Version: "2"},
	}
}

func newTerms(t testing.TB, r Requirement) *Terms {
	t.Helper()
	terms, err := NewTerms(r)
	if err != nil {
		t.Fatal(err)
	}
	return terms
}

// The reference server's headers are ours, byte for byte, and the reference client's payments pass.
func TestReferenceExchanges(t *testing.T) {
	t.Parallel()
	terms := newTerms(t, requirement())
	resource := Resource{URL: "http://127.0.0.1:4030/reports", Description: "Refundable bug-report deposit", MimeType: "application/json"}
	payer := common.HexToAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
	var transaction common.Hash
	for i := range transaction {
		transaction[i] = 0xab
	}
	payments := 0
	for name, x := range exchanges(t) {
		if x.Required != "" {
			var reason struct{ Error string }
			text, err := base64.StdEncoding.DecodeString(x.Required)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &reason); err != nil {
				t.Fatal(err)
			}
			got, err := EncodeHeader(terms.Required(resource, reason.Error))
			if err != nil || got != x.Required {
				t.Errorf("%s: PAYMENT-REQUIRED is %s, the reference's %s (%v)", name, got, x.Required, err)
			}
		}
		if x.Response != "" {
			if got, err := EncodeHeader(terms.Settled(payer, transaction)); err != nil || got != x.Response {
				t.Errorf("%s: PAYMENT-RESPONSE is %s, the reference's %s (%v)", name, got, x.Response, err)
			}
		}
		if x.Signature == "" {
			continue
		}
		payments++
		at, err := time.Parse(time.RFC1123, x.Date)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Decode(x.Signature)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		signed, err := terms.Check(p, at)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if signed.From != payer || signed.Contract {
			t.Errorf("%s: payer %s, contract %v; want %s by its key", name, signed.From, signed.Contract, payer)
		}
		again, err := EncodeHeader(terms.Payment(signed, resource))
		if err != nil || again != x.Signature {
			t.Errorf("%s: encoded again it is %s (%v)", name, again, err)
		}
	}
	if payments != 4 {
		t.Errorf("%d payments were checked, want 4", payments)
	}
}

// go-ethereum's own typed data comes to the same digest.
func TestDigestIsThatOfTypedData(t *testing.T) {
	t.Parallel()
	terms := newTerms(t, requirement())
	a := Authorization{
		From: common.HexToAddress("0x01"), To: terms.Payee, Value: big.NewInt(15_000_000),
		ValidAfter: 7, ValidBefore: 1_795_198_333, Nonce: crypto.Keccak256Hash([]byte("nonce")),
	}
	data := apitypes.TypedData{
		Types: apitypes.Types{
			"EIP712Domain": {{Name: "name", Type: "string"}, {Name: "version", Type: "string"}, {Name: "chainId", Type: "uint256"}, {Name: "verifyingContract", Type: "address"}},
			"TransferWithAuthorization": {
				{Name: "from", Type: "address"},
				{Name: "to", Type: "address"},
				{Name: "value", Type: "uint256"},
				{Name: "validAfter", Type: "uint256"},
				{Name: "validBefore", Type: "uint256"},
				{Name: "nonce", Type: "bytes32"},
			},
		},
		PrimaryType: "TransferWithAuthorization",
		Domain:      apitypes.TypedDataDomain{Name: "USD Coin", Version: "2", ChainId: math.NewHexOrDecimal256(8453), VerifyingContract: terms.Asset},
		Message: apitypes.TypedDataMessage{
			"from": a.From.Hex(), "to": a.To.Hex(), "value": a.Value.String(), "validAfter": "7", "validBefore": "1795198333", "nonce": a.Nonce.Hex(),
		},
	}
	want, _, err := apitypes.TypedDataAndHash(data)
	if err != nil {
		t.Fatal(err)
	}
	if got := terms.Digest(&a); got != common.Hash(want) {
		t.Errorf("digest is %s, go-ethereum's %x", got, want)
	}
}

// sign authorizes a as its payer's wallet would.
func sign(t testing.TB, terms *Terms, key *ecdsa.PrivateKey, a Authorization) *Signed {
	t.Helper()
	digest := terms.Digest(&a)
	signature, err := crypto.Sign(digest[:], key)
	if err != nil {
		t.Fatal(err)
	}
	signature[64] += 27
	return &Signed{Authorization: a, Signature: signature}
}

func TestHostilePayments(t *testing.T) {
	t.Parallel()
	terms := newTerms(t, requirement())
	key, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	at := uint64(now.Unix())
	good := Authorization{
		From: crypto.PubkeyToAddress(key.PublicKey), To: terms.Payee, Value: big.NewInt(15_000_000),
		ValidBefore: at + 120, Nonce: crypto.Keccak256Hash([]byte("nonce")),
	}
	for _, c := range []struct {
		name     string
		alter    func(*Authorization)
		tamper   func(*Payment)
		want     Reason // empty: it passes
		contract bool   // it is for the chain to say whether the signature is right
	}{
		{name: "good"},
		{name: "valid since ten minutes ago", alter: func(a *Authorization) { a.ValidAfter = at - 600 }},
		{name: "ends at the earliest", alter: func(a *Authorization) { a.ValidBefore = at + 30 }},
		{name: "ends at the latest", alter: func(a *Authorization) { a.ValidBefore = at + 180 }},
		{name: "lower-case echo", tamper: func(p *Payment) { p.Accepted.Asset = strings.ToLower(p.Accepted.Asset) }},
		{name: "another payee", alter: func(a *Authorization) { a.To = common.HexToAddress("0x02") }, want: ReasonRecipient},
		{name: "a unit less", alter: func(a *Authorization) { a.Value = big.NewInt(14_999_999) }, want: ReasonValue},
		{name: "a unit more", alter: func(a *Authorization) { a.Value = big.NewInt(15_000_001) }, want: ReasonValue},
		{name: "not yet valid", alter: func(a *Authorization) { a.ValidAfter = at }, want: ReasonValidAfter},
		{name: "expired", alter: func(a *Authorization) { a.ValidBefore = at - 1 }, want: ReasonValidBefore},
		{name: "ends too soon", alter: func(a *Authorization) { a.ValidBefore = at + 29 }, want: ReasonValidBefore},
		{name: "ends too late", alter: func(a *Authorization) { a.ValidBefore = at + 181 }, want: ReasonValidBefore},
		{name: "version 1", tamper: func(p *Payment) { p.X402Version = 1 }, want: ReasonVersion},
		{name: "another scheme", tamper: func(p *Payment) { p.Accepted.Scheme = "upto" }, want: ReasonScheme},
		{name: "another network", tamper: func(p *Payment) { p.Accepted.Network = "eip155:1" }, want: ReasonNetwork},
		{name: "another asset", tamper: func(p *Payment) { p.Accepted.Asset = terms.PayTo }, want: ReasonRequirements},
		{name: "another payTo", tamper: func(p *Payment) { p.Accepted.PayTo = terms.Asset }, want: ReasonRequirements},
		{name: "a smaller amount", tamper: func(p *Payment) { p.Accepted.Amount = "1" }, want: ReasonRequirements},
		{name: "a longer timeout", tamper: func(p *Payment) { p.Accepted.MaxTimeoutSeconds = 9999 }, want: ReasonRequirements},
		{name: "another domain", tamper: func(p *Payment) { p.Accepted.Extra.Version = "1" }, want: ReasonRequirements},
		{name: "hexadecimal value", tamper: func(p *Payment) { p.Payload.Authorization.Value = "0xe4e1c0" }, want: ReasonPayload},
		{name: "value with a leading zero", tamper: func(p *Payment) { p.Payload.Authorization.Value = "015000000" }, want: ReasonPayload},
		{name: "signed value", tamper: func(p *Payment) { p.Payload.Authorization.Value = "+15000000" }, want: ReasonPayload},
		{name: "value beyond 256 bits", tamper: func(p *Payment) { p.Payload.Authorization.Value = strings.Repeat("9", 78) }, want: ReasonPayload},
		{name: "validBefore that wraps", tamper: func(p *Payment) { p.Payload.Authorization.ValidBefore = "18446744073709551616" }, want: ReasonValidBefore},
		{name: "short nonce", tamper: func(p *Payment) { p.Payload.Authorization.Nonce = "0x01" }, want: ReasonPayload},
		{name: "wrong checksum", tamper: func(p *Payment) {
			p.Payload.Authorization.To = "0x209693bC6afc0C5328bA36FaF03C514EF312287C"
		}, want: ReasonPayload},
		{name: "no signature", tamper: func(p *Payment) { p.Payload.Signature = "0x" }, want: ReasonSignature},
		{name: "huge signature", tamper: func(p *Payment) { p.Payload.Signature = "0x" + strings.Repeat("00", maxSignatureBytes+1) }, want: ReasonSignature},
		{name: "undeployed wallet", tamper: func(p *Payment) {
			p.Payload.Signature = "0x" + strings.Repeat("00", 64) + common.Bytes2Hex(magic6492)
		}, want: ReasonSignature},
		{name: "malleated", tamper: func(p *Payment) { p.Payload.Signature = malleate(p.Payload.Signature) }, contract: true},
		{name: "v of 0 or 1", tamper: func(p *Payment) {
			s := common.FromHex(p.Payload.Signature)
			s[64] -= 27
			p.Payload.Signature = "0x" + common.Bytes2Hex(s)
		}, contract: true},
		{name: "another's wallet", tamper: func(p *Payment) { p.Payload.Authorization.From = common.HexToAddress("0x03").Hex() }, contract: true},
		{name: "another nonce than was signed", tamper: func(p *Payment) {
			p.Payload.Authorization.Nonce = common.Hash{}.Hex()
		}, contract: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := good
			if c.alter != nil {
				c.alter(&a)
			}
			p := terms.Payment(sign(t, terms, key, a), Resource{})
			if c.tamper != nil {
				c.tamper(p)
			}
			signed, err := terms.Check(p, now)
			var refusal *Refusal
			switch {
			case c.want == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case c.want == "" && signed.Contract != c.contract:
				t.Errorf("contract is %v, want %v", signed.Contract, c.contract)
			case c.want != "" && !errors.As(err, &refusal):
				t.Fatalf("err is %v, want a refusal for %s", err, c.want)
			case c.want != "" && refusal.Reason != c.want:
				t.Errorf("refused for %s, want %s", refusal.Reason, c.want)
			}
		})
	}
}

// malleate is the other signature that recovers the same key.
func malleate(signature string) string {
	s := common.FromHex(signature)
	high := new(big.Int).Sub(crypto.S256().Params().N, new(big.Int).SetBytes(s[32:64]))
	high.FillBytes(s[32:64])
	s[64] = 27 + 28 - s[64]
	return "0x" + common.Bytes2Hex(s)
}

func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	good := exchanges(t)["01-paid-201/2"].Signature
	text, err := base64.StdEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(from, to string) string {
		edited := strings.Replace(string(text), from, to, 1)
		if edited == string(text) {
			t.Fatalf("%q is not in the payment", from)
		}
		return base64.StdEncoding.EncodeToString([]byte(edited))
	}
	padded := good
	for space := " "; !strings.HasSuffix(padded, "="); space += " " {
		padded = edit(`"x402Version":2`, `"x402Version":`+space+"2")
	}
	for name, c := range map[string]struct {
		header string
		want   Reason
	}{
		"empty":            {"", ReasonPayload},
		"not base64":       {"{}", ReasonPayload},
		"URL alphabet":     {strings.NewReplacer("+", "-", "/", "_").Replace(base64.StdEncoding.EncodeToString([]byte("\xfb\xff\xfe"))), ReasonPayload},
		"no padding":       {strings.TrimRight(padded, "="), ReasonPayload},
		"a line feed":      {good[:10] + "\n" + good[10:], ReasonPayload},
		"too long":         {strings.Repeat("A", maxHeaderBytes+4), ReasonPayload},
		"null":             {base64.StdEncoding.EncodeToString([]byte("null")), ReasonVersion},
		"an array":         {base64.StdEncoding.EncodeToString([]byte("[]")), ReasonPayload},
		"two values":       {base64.StdEncoding.EncodeToString(append(text, '1')), ReasonPayload},
		"unknown field":    {edit(`"x402Version":2`, `"x402Version":2,"extra":1`), ReasonPayload},
		"field twice":      {edit(`"value":"15000000"`, `"value":"1","value":"15000000"`), ReasonPayload},
		"another case":     {edit(`"value"`, `"Value"`), ReasonPayload},
		"value a number":   {edit(`"value":"15000000"`, `"value":15000000`), ReasonPayload},
		"version 3":        {edit(`"x402Version":2`, `"x402Version":3`), ReasonVersion},
		"version a string": {edit(`"x402Version":2`, `"x402Version":"2"`), ReasonPayload},
		"scheme":           {edit(`"scheme":"exact"`, `"scheme":"upto"`), ReasonScheme},
		"no accepted":      {edit(`"accepted"`, `"extensions"`), ReasonPayload},
	} {
		_, err := Decode(c.header)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, x := range exchanges(f) {
		if x.Signature != "" {
			f.Add(x.Signature)
		}
	}
	f.Add("")
	f.Add("bnVsbA==")
	terms := newTerms(f, requirement())
	f.Fuzz(func(t *testing.T, header string) {
		p, err := Decode(header)
		if err != nil {
			if refusal := new(Refusal); !errors.As(err, &refusal) {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		encoded, err := EncodeHeader(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(encoded)
		if err != nil {
			t.Fatalf("decoded, encoded and decoded again: %v", err)
		}
		if diff := cmp.Diff(p, again); diff != "" {
			t.Fatalf("decoded again it differs: %s", diff)
		}
		if signed, err := terms.Check(p, time.Unix(1_795_198_300, 0)); err == nil && signed.Value.Cmp(terms.Value) != 0 {
			t.Fatalf("%s was taken for %s", signed.Value, terms.Amount)
		}
	})
}

func TestTermsNameEveryFault(t *testing.T) {
	t.Parallel()
	_, err := NewTerms(Requirement{Network: "solana:1", Amount: "-1", Asset: "0x00", PayTo: "me"})
	for _, want := range []string{"scheme", "payment-network", "payment-asset", "payment-to", "payment-amount", "maxTimeoutSeconds", "payment-token-name", "payment-token-version"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
