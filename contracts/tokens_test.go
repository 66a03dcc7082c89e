package contracts

import (
	"crypto/ecdsa"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
)

// authorization is an EIP-3009 transfer, as it is signed.
type authorization struct {
	primary                 string // TransferWithAuthorization or ReceiveWithAuthorization
	from, to                common.Address
	value                   int64
	validAfter, validBefore uint64
	nonce                   common.Hash
}

// sign is the EIP-712 signature that a wallet makes, by go-ethereum's own implementation.
func (a authorization) sign(t *testing.T, key *ecdsa.PrivateKey, usdg common.Address) (v uint8, r, s [32]byte) {
	t.Helper()
	fields := []apitypes.Type{
		{Name: "from", Type: "address"},
		{Name: "to", Type: "address"},
		{Name: "value", Type: "uint256"},
		{Name: "validAfter", Type: "uint256"},
		{Name: "validBefore", Type: "uint256"},
		{Name: "nonce", Type: "bytes32"},
	}
	return sign712(t, key, usdg, a.primary, fields, apitypes.TypedDataMessage{
		"from": a.from.Hex(), "to": a.to.Hex(), "value": big.NewInt(a.value), "nonce": a.nonce.Hex(),
		"validAfter": new(big.Int).SetUint64(a.validAfter), "validBefore": new(big.Int).SetUint64(a.validBefore),
	})
}

func sign712(t *testing.T, key *ecdsa.PrivateKey, usdg common.Address, primary string, fields []apitypes.Type, message apitypes.TypedDataMessage) (v uint8, r, s [32]byte) {
	t.Helper()
	digest, _, err := apitypes.TypedDataAndHash(apitypes.TypedData{
		Types: apitypes.Types{
			"EIP712Domain": {
				{Name: "name", Type: "string"},
				{Name: "version", Type: "string"},
				{Name: "chainId", Type: "uint256"},
				{Name: "verifyingContract", Type: "address"},
			},
			primary: fields,
		},
		PrimaryType: primary,
		Domain: apitypes.TypedDataDomain{
			Name: "Global Dollar", Version: "1", ChainId: math.NewHexOrDecimal256(testChainID), VerifyingContract: usdg.Hex(),
		},
		Message: message,
	})
	if err != nil {
		t.Fatal(err)
	}
	signature, err := crypto.Sign(digest, key)
	if err != nil {
		t.Fatal(err)
	}
	return signature[64] + 27, [32]byte(signature[:32]), [32]byte(signature[32:64])
}

func TestUSDGAuthorizations(t *testing.T) {
	m := newMarket(t)
	key, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	payer := crypto.PubkeyToAddress(key.PublicKey)
	m.must(t, owner, m.USDG, "mint", payer, 1_000)
	valid := authorization{
		primary: "TransferWithAuthorization", from: payer, to: bob, value: 300,
		validAfter: m.now - 1, validBefore: m.now + 60, nonce: common.HexToHash("0x01"),
	}
	arguments := func(a authorization) []any {
		v, r, s := a.sign(t, key, m.USDG)
		return []any{a.from, a.to, a.value, a.validAfter, a.validBefore, a.nonce, v, r, s}
	}
	changed := func(change func(*authorization)) []any {
		a := valid
		change(&a)
		return arguments(a)
	}
	for _, test := range []struct {
		name string
		args []any
		want string
	}{
		{"not yet", changed(func(a *authorization) { a.validAfter = m.now }), "AuthorizationNotYetValid("},
		{"no longer", changed(func(a *authorization) { a.validBefore = m.now }), "AuthorizationExpired("},
		{"another's money", changed(func(a *authorization) { a.from = alice }), "InvalidSignature()"},
		{"signed for the other method", changed(func(a *authorization) { a.primary = "ReceiveWithAuthorization" }), "InvalidSignature()"},
		{"too much", changed(func(a *authorization) { a.value = 1_001 }), "ERC20InsufficientBalance("},
		{"another amount", append([]any{payer, bob, 301}, arguments(valid)[3:]...), "InvalidSignature()"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m.fork().refused(t, test.want, carol, m.USDG, "transferWithAuthorization", test.args...)
		})
	}

	before := m.number(t, m.USDG, "balanceOf", bob)
	m.must(t, carol, m.USDG, "transferWithAuthorization", arguments(valid)...)
	if after := m.number(t, m.USDG, "balanceOf", bob); after.Sub(after, before).Int64() != 300 {
		t.Errorf("bob got %s", after)
	}
	m.refused(t, "AuthorizationUsedOrCanceled(", carol, m.USDG, "transferWithAuthorization", arguments(valid)...)

	receive := changed(func(a *authorization) { a.primary, a.nonce = "ReceiveWithAuthorization", common.HexToHash("0x02") })
	m.refused(t, "CallerMustBePayee(", carol, m.USDG, "receiveWithAuthorization", receive...)
	m.must(t, bob, m.USDG, "receiveWithAuthorization", receive...)

	nonce := common.HexToHash("0x03")
	cancelFields := []apitypes.Type{{Name: "authorizer", Type: "address"}, {Name: "nonce", Type: "bytes32"}}
	v, r, s := sign712(t, key, m.USDG, "CancelAuthorization", cancelFields, apitypes.TypedDataMessage{"authorizer": payer.Hex(), "nonce": nonce.Hex()})
	m.refused(t, "InvalidSignature()", carol, m.USDG, "cancelAuthorization", alice, nonce, v, r, s)
	m.must(t, carol, m.USDG, "cancelAuthorization", payer, nonce, v, r, s)
	if m.view(t, m.USDG, "authorizationState", payer, nonce) != true {
		t.Error("the nonce can still be used")
	}
	m.refused(t, "AuthorizationUsedOrCanceled(", carol, m.USDG, "transferWithAuthorization", changed(func(a *authorization) { a.nonce = nonce })...)
}

func TestUSDGControls(t *testing.T) {
	m := newMarket(t)
	if got := m.view(t, m.USDG, "decimals"); got != uint8(6) {
		t.Errorf("decimals %v", got)
	}
	for method, args := range map[string][]any{"mint": {alice, 1}, "pause": nil, "unpause": nil, "freeze": {bob}, "unfreeze": {bob}} {
		m.refused(t, "OwnableUnauthorizedAccount(", alice, m.USDG, method, args...)
	}
	m.must(t, owner, m.USDG, "freeze", bob)
	m.refused(t, "AddressFrozen(", bob, m.USDG, "transfer", alice, 1)
	m.refused(t, "AddressFrozen(", alice, m.USDG, "transfer", bob, 1)
	m.must(t, alice, m.USDG, "approve", bob, 1)
	m.refused(t, "AddressFrozen(", bob, m.USDG, "transferFrom", alice, carol, 1)
	m.must(t, owner, m.USDG, "unfreeze", bob)
	m.must(t, bob, m.USDG, "transfer", alice, 1)
	emitted(t, m.must(t, owner, m.USDG, "pause"), &TokenPaused{Token: m.USDG})
	m.refused(t, "EnforcedPause()", bob, m.USDG, "transfer", alice, 1)
	emitted(t, m.must(t, owner, m.USDG, "unpause"), &TokenUnpaused{Token: m.USDG})
}

// TestStockSplit: a multiplier is announced, comes into force by itself, and moves no raw balance.
func TestStockSplit(t *testing.T) {
	m := newMarket(t)
	const one = uint64(1e18)
	multipliers := func(want, wantNew uint64) {
		t.Helper()
		if got, next := m.number(t, m.stock, "uiMultiplier").Uint64(), m.number(t, m.stock, "newUIMultiplier").Uint64(); got != want || next != wantNew {
			t.Errorf("multiplier %d and then %d, want %d and %d", got, next, want, wantNew)
		}
	}
	multipliers(one, one)
	balance := m.number(t, m.stock, "balanceOf", alice)
	at := m.now + day
	emitted(t, m.must(t, owner, m.stock, "setUIMultiplier", 2*one, at), &UIMultiplierUpdated{
		Token: m.stock, OldMultiplier: u256(one), NewMultiplier: u256(2 * one), EffectiveAt: u256(at),
	})
	multipliers(one, 2*one)
	m.now = at - 1
	multipliers(one, 2*one)
	m.now = at
	multipliers(2*one, 2*one)
	if got := m.number(t, m.stock, "balanceOf", alice); got.Cmp(balance) != 0 {
		t.Errorf("the split made %s of %s", got, balance)
	}
	m.must(t, owner, m.stock, "setUIMultiplier", 4*one, m.now+day)
	emitted(t, m.must(t, owner, m.stock, "setUIMultiplier", 3*one, m.now+week), &UIMultiplierUpdated{ // instead
		Token: m.stock, OldMultiplier: u256(2 * one), NewMultiplier: u256(3 * one), EffectiveAt: u256(m.now + week),
	})
	multipliers(2*one, 3*one)

	m.refused(t, "InvalidMultiplier()", owner, m.stock, "setUIMultiplier", 0, m.now+day)
	m.refused(t, "InvalidMultiplier()", owner, m.stock, "setUIMultiplier", one, m.now-1)
	m.refused(t, "OwnableUnauthorizedAccount(", alice, m.stock, "setUIMultiplier", one, m.now)
	m.refused(t, "OwnableUnauthorizedAccount(", alice, m.stock, "mint", alice, 1)
	m.refused(t, "OwnableUnauthorizedAccount(", alice, m.stock, "pause")
	m.refused(t, "OwnableUnauthorizedAccount(", alice, m.stock, "unpause")
	emitted(t, m.must(t, owner, m.stock, "pause"), &TokenPaused{Token: m.stock})
	m.refused(t, "EnforcedPause()", alice, m.stock, "transfer", bob, 1)
	emitted(t, m.must(t, owner, m.stock, "unpause"), &TokenUnpaused{Token: m.stock})
	m.must(t, alice, m.stock, "transfer", bob, 1)
}

func TestOtherTokens(t *testing.T) {
	m := newMarket(t)
	wei := m.state.GetBalance(alice).Uint64()
	m.must(t, alice, m.weth, "withdraw", 1_000)
	if got := m.state.GetBalance(alice).Uint64(); got != wei+1_000 {
		t.Errorf("alice has %d wei, want %d", got, wei+1_000)
	}
	if _, _, _, err := m.transact(alice, &m.weth, nil, 500); err != nil { // plain ether is wrapped
		t.Fatal(err)
	}
	if got := m.number(t, m.weth, "balanceOf", alice).Uint64(); got != 1e18-500 {
		t.Errorf("alice has %d WETH", got)
	}
	m.refused(t, "ERC20InsufficientBalance(", fees, m.weth, "withdraw", 1)
	m.refused(t, "OwnableUnauthorizedAccount(", alice, m.TKN, "mint", alice, 1)

	m.refused(t, "NotMinter()", owner, m.STKN, "mint", alice, 1)
	m.refused(t, "OwnableUnauthorizedAccount(", alice, m.STKN, "setMinter", alice, true)
	m.refused(t, "ERC20Insufficient", fees, m.STKN, "stake", 1)
	m.must(t, owner, m.STKN, "setMinter", owner, true)
	m.must(t, owner, m.STKN, "mint", fees, 7)
	m.must(t, fees, m.STKN, "burn", 7)
	m.refused(t, "ERC20InsufficientBalance(", fees, m.STKN, "burn", 1)
	if staked := m.number(t, m.TKN, "balanceOf", m.STKN); staked.Uint64() != 5e18 {
		t.Errorf("%s TKN are staked", staked)
	}
}
