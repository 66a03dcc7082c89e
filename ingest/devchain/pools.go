package devchain

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// poolKey is Uniswap's PoolKey, with the fields in ABI order. Every pool here has a static fee, and only the one
// whose positions are staked has a hook: the staking contract.
type poolKey struct {
	Currency0   common.Address
	Currency1   common.Address
	Fee         *big.Int
	TickSpacing *big.Int
	Hooks       common.Address
}

// swapParams is Uniswap's SwapParams.
type swapParams struct {
	ZeroForOne        bool
	AmountSpecified   *big.Int // negative: exactly this much is paid in
	SqrtPriceLimitX96 *big.Int
}

// testSettings is the TestSettings of PoolSwapTest: take and pay tokens, not claims on them.
type testSettings struct {
	TakeClaims      bool
	SettleUsingBurn bool
}

// pool is a v4 pool of the market.
type pool struct {
	key       poolKey
	id        common.Hash
	sqrtPrice *big.Int // Q64.96, when initialised
	liquidity *big.Int // of the deployer's position over the full range
	tick      int32    // when initialised
}

func (p pool) spacing() int32 { return int32(p.key.TickSpacing.Int64()) }

// token is an ERC20 of the market with what it is worth at first.
type token struct {
	address   common.Address
	decimals  int64
	centsEach int64 // USD cents for a whole token
}

// unit is the raw amount of a whole token.
func (t token) unit() *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(t.decimals), nil) }

// worth is the raw amount of the token that dollars buy at first.
func (t token) worth(dollars int64) *big.Int {
	raw := new(big.Int).Mul(big.NewInt(dollars*100), t.unit())
	return raw.Div(raw, big.NewInt(t.centsEach))
}

// newPool describes the pool of two tokens at their prices, with poolDollars of each in it over the full range.
func newPool(a, b token, fee, tickSpacing int64) pool {
	if a.address.Cmp(b.address) > 0 {
		a, b = b, a
	}
	key := poolKey{Currency0: a.address, Currency1: b.address, Fee: big.NewInt(fee), TickSpacing: big.NewInt(tickSpacing)}
	// price = amount of 1 per amount of 0, raw; sqrtPrice = sqrt(price) · 2^96 = sqrt(price · 2^192)
	price := new(big.Int).Mul(big.NewInt(a.centsEach), b.unit())
	price.Lsh(price, 192)
	price.Div(price, new(big.Int).Mul(big.NewInt(b.centsEach), a.unit()))
	// Over the full range liquidity² = amount0 · amount1.
	square := new(big.Int).Mul(a.worth(poolDollars), b.worth(poolDollars))
	return pool{
		key: key, id: poolID(key),
		sqrtPrice: new(big.Int).Sqrt(price), liquidity: new(big.Int).Sqrt(square),
	}
}

// poolID is keccak256(abi.encode(key)).
func poolID(key poolKey) common.Hash {
	var word [32]byte
	return crypto.Keccak256Hash(
		common.LeftPadBytes(key.Currency0[:], 32), common.LeftPadBytes(key.Currency1[:], 32),
		key.Fee.FillBytes(word[:]), common.LeftPadBytes(key.TickSpacing.Bytes(), 32), common.LeftPadBytes(key.Hooks[:], 32))
}

// maxTick is the highest usable tick of a spacing; the lowest is its negative.
func maxTick(spacing int32) int32 { return 887272 / spacing * spacing }

// Actions of the PositionManager, numbered as in its Actions library.
const (
	actionDecrease   = 0x01
	actionMint       = 0x02
	actionBurn       = 0x03
	actionSettlePair = 0x0d
	actionTakePair   = 0x11
)

// sqrtPriceLimit is no limit: the last price in the swap's direction.
func sqrtPriceLimit(zeroForOne bool) *big.Int {
	if zeroForOne {
		return big.NewInt(4295128740) // TickMath.MIN_SQRT_PRICE + 1
	}
	limit, _ := new(big.Int).SetString("1461446703485210103287273052203988822378723970341", 10) // MAX_SQRT_PRICE - 1
	return limit
}
