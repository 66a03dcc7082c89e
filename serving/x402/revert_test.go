package x402

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/params"

	"github.com/lienstream/lienstream/ingest/devchain/paychain"
)

// deploy puts code on the chain as it is.
func (w *world) deploy(t *testing.T, code []byte) common.Address {
	t.Helper()
	// PUSH the length, DUP, PUSH where it begins, PUSH 0, CODECOPY; PUSH 0, RETURN
	init := append([]byte{0x60, byte(len(code)), 0x80, 0x60, 11, 0x60, 0, 0x39, 0x60, 0, 0xf3}, code...)
	nonce := nonceOf(t, w, "owner")
	tx, err := types.SignNewTx(w.Key("owner"), types.LatestSignerForChainID(big.NewInt(paychain.ChainID)), &types.DynamicFeeTx{
		ChainID: big.NewInt(paychain.ChainID), Nonce: nonce, GasTipCap: big.NewInt(params.GWei), GasFeeCap: big.NewInt(100 * params.GWei),
		Gas: 1_000_000, Data: init,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Mine(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	return crypto.CreateAddress(w.Address("owner"), nonce)
}

// A wallet that breaks off, or that goes on for ever, has not signed: it is refused, and no failure of the node.
func TestHostileWallets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, code := range map[string][]byte{
		"reverts":              {0x60, 0, 0x80, 0xfd},
		"invalid opcode":       {0xfe},
		"underflows the stack": {0x50},
		"overflows the stack":  {0x5b, 0x60, 0, 0x60, 0, 0x56},
		"jumps nowhere":        {0x60, 9, 0x56},
		"goes on for ever":     {0x5b, 0x60, 0, 0x56},
		"answers nothing":      {0x00},
		"answers 64 bytes":     {0x60, 64, 0x60, 0, 0xf3},
	} {
		s := w.payment(t, w.payer, 100)
		s.From, s.Contract = w.deploy(t, code), true
		if err := w.token.CheckSignature(t.Context(), s); reasonOf(err) != ReasonSignature {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a node says tells a contract's refusal from a failure of the node.
func TestWhatNodesSay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code    int
		message string
		data    any
		want    bool
	}{
		{3, "execution reverted: FiatTokenV2: invalid signature", "0x08c379a0", true},
		{3, "", nil, true},
		{-32000, "execution reverted", nil, true},
		{-32000, "out of gas", nil, true},
		{-32000, "stack underflow (0 <=> 1)", nil, true},
		{-32015, "VM execution error.", "Reverted 0x", true},
		{-32003, "EVM error: OutOfGas", nil, true},
		{-32000, "EVM error: InvalidFEOpcode", nil, true},
		{-32005, "daily request count exceeded", map[string]any{"rate": 1}, false},
		{-32005, "limit exceeded", "see the dashboard", false},
		{-32000, "header not found", nil, false},
		{-32000, "missing trie node", nil, false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			var request struct{ ID json.RawMessage }
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
				t.Error(err)
			}
			fault, err := json.Marshal(map[string]any{"code": c.code, "message": c.message, "data": c.data})
			if err != nil {
				t.Error(err)
			}
			rw.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"error":%s}`, request.ID, fault)
		}))
		client, err := ethclient.DialContext(t.Context(), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewToken(newTerms(t, requirement()), client).Balance(t.Context(), common.Address{1})
		if got := isRevert(err); err == nil || got != c.want {
			t.Errorf("%d %q: %v, want %v: %v", c.code, c.message, got, c.want, err)
		}
		client.Close()
		server.Close()
	}
}

// A price that has changed since, or a refund, is asked for as it was signed.
func TestTermsOfAnAuthorization(t *testing.T) {
	t.Parallel()
	terms := newTerms(t, requirement())
	same := terms.Of(&Authorization{To: terms.Payee, Value: terms.Value})
	if same.Requirement != terms.Requirement {
		t.Errorf("%+v, want it as it is spelt", same.Requirement)
	}
	other := terms.Of(&Authorization{To: common.Address{7}, Value: big.NewInt(1)})
	if other.PayTo != (common.Address{7}).Hex() || other.Amount != "1" || other.Payee != (common.Address{7}) || other.separator != terms.separator {
		t.Errorf("%+v", other.Requirement)
	}
	if terms.Amount == "1" {
		t.Error("the terms themselves were changed")
	}
}

// A facilitator's words are logged: those that may be a secret of ours are not repeated.
func TestAReasonIsShownAsFarAsItIsOne(t *testing.T) {
	t.Parallel()
	for reason, want := range map[Reason]string{
		ReasonNonceUsed: string(ReasonNonceUsed), ReasonVersion: string(ReasonVersion), "insufficient_funds": "insufficient_funds",
		"bad key sk-1234": "not of the protocol", "Bearer": "not of the protocol", "": "",
	} {
		if got := reason.shown(); got != want {
			t.Errorf("%q is shown as %q", reason, got)
		}
	}
}
