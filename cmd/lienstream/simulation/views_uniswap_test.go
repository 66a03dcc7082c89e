package simulation

import (
	"context"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
)

// uniswap asks for the pools, and for each position that somebody holds.
func (a *asking) uniswap(ctx context.Context) error {
	const registry, manager, state = "AssetRegistry", "PositionManager", "StateView"
	var next any
	allowed := false // positions at all
	asks := []viewCall{
		{of: manager, method: "nextTokenId", out: func(o map[string]any) { next = o[""] }},
		{of: registry, method: "asset", args: []any{a.deployment.PositionManager}, out: func(o map[string]any) {
			allowed = o["allowed"].(bool) && kindNames[o["kind"].(uint8)] == "AMMV4_POSITION"
		}},
	}
	for id := range a.logged.pools {
		var p poolView
		asks = append(asks,
			viewCall{of: state, method: "getSlot0", args: []any{id}, out: func(o map[string]any) {
				p.sqrtPrice, p.tick = o["sqrtPriceX96"].(*big.Int), o["tick"].(*big.Int).Int64()
			}},
			viewCall{of: state, method: "getLiquidity", args: []any{id}, out: func(o map[string]any) { p.liquidity = o["liquidity"].(*big.Int) }},
			viewCall{of: registry, method: "pools", args: []any{id}, out: func(o map[string]any) {
				p.allowed, p.least, p.most = o["allowed"].(bool), o["minLiquidity"].(*big.Int), o["maxLiquidity"].(*big.Int)
				a.pools[id] = p
			}})
	}
	if err := a.calls(ctx, asks); err != nil {
		return err
	}
	asks = nil
	for _, id := range ids(next) {
		asks = append(asks, viewCall{of: manager, method: "ownerOf", args: []any{id}, may: true, out: func(o map[string]any) {
			a.positions[id.String()] = fields{"tokenId": id.String()}
			a.holders[id.String()] = printed(o["owner"])
		}})
	}
	if err := a.calls(ctx, asks); err != nil { // those that were burned have no owner
		return err
	}
	asks = nil
	for id, position := range a.positions {
		token := []any{bigOf(id)}
		asks = append(asks,
			viewCall{of: manager, method: "getPositionLiquidity", args: token, out: func(o map[string]any) { position["liquidity"] = printed(o["liquidity"]) }},
			viewCall{of: manager, method: "positionInfo", args: token, out: func(o map[string]any) { a.position(id, o["info"].(*big.Int), allowed) }})
	}
	return a.calls(ctx, asks)
}

// position takes apart what the manager packs: 25 bytes of the pool's ID, then the upper and the lower tick and a byte.
func (a *asking) position(id string, info *big.Int, allowed bool) {
	word := info.FillBytes(make([]byte, common.HashLength))
	tick := func(b []byte) int64 {
		n := int64(b[0])<<16 | int64(b[1])<<8 | int64(b[2])
		if n >= 1<<23 {
			n -= 1 << 24
		}
		return n
	}
	upper, lower := tick(word[25:28]), tick(word[28:31])
	f := a.positions[id]
	for pool, key := range a.logged.pools {
		if string(pool[:25]) != string(word[:25]) {
			continue
		}
		p := a.pools[pool]
		f["poolId"], f["token0"], f["token1"], f["fee"] = pool.Hex(), key["currency0"], key["currency1"], key["fee"]
		f["tickLower"], f["tickUpper"] = fmt.Sprint(lower), fmt.Sprint(upper)
		f["inRange"] = fmt.Sprint(lower <= p.tick && p.tick < upper)
		liquidity := bigOf(f["liquidity"])
		f["reason"] = none
		switch { // as the registry judges a listing
		case !allowed:
			f["reason"] = "ASSET_NOT_ALLOWED"
		case !p.allowed:
			f["reason"] = "POOL_NOT_ALLOWED"
		case key["fee"] == fmt.Sprint(1<<23):
			f["reason"] = "POOL_FEE_DYNAMIC"
		case key["hooks"] != printed(common.Address{}):
			f["reason"] = "POOL_HAS_HOOKS"
		case liquidity.Cmp(p.least) < 0 || liquidity.Cmp(p.most) > 0:
			f["reason"] = "LIQUIDITY_OUT_OF_RANGE"
		}
		f["allowed"] = fmt.Sprint(f["reason"] == none)
		amount0, amount1 := amountsIn(p.sqrtPrice, lower, upper, liquidity)
		a.inPositions[id] = [2]position{{key["currency0"], amount0}, {key["currency1"], amount1}}
	}
}

// precise is a number for what is about right.
func precise(n *big.Int) *big.Float { return new(big.Float).SetPrec(512).SetInt(n) }

// sqrtPriceAt is the square root of a tick's price.
func sqrtPriceAt(tick int64) *big.Float {
	one := precise(big.NewInt(1))
	root := new(big.Float).Quo(precise(big.NewInt(10001)), precise(big.NewInt(10000)))
	root.Sqrt(root)
	p := precise(big.NewInt(1))
	for n := max(tick, -tick); n > 0; n >>= 1 {
		if n&1 == 1 {
			p.Mul(p, root)
		}
		root = new(big.Float).Mul(root, root)
	}
	if tick < 0 {
		p.Quo(one, p)
	}
	return p
}

// amountsIn are what liquidity is of both tokens, by the formulas of Uniswap's white paper.
func amountsIn(sqrtPrice *big.Int, lower, upper int64, liquidity *big.Int) (amount0, amount1 *big.Float) {
	at, from, to, l := new(big.Float).Quo(precise(sqrtPrice), precise(new(big.Int).Lsh(big.NewInt(1), 96))), sqrtPriceAt(lower), sqrtPriceAt(upper), precise(liquidity)
	if at.Cmp(from) < 0 {
		at = from
	}
	if at.Cmp(to) > 0 {
		at = to
	}
	one := precise(big.NewInt(1))
	inverse := func(p *big.Float) *big.Float { return new(big.Float).Quo(one, p) }
	amount0 = new(big.Float).Sub(inverse(at), inverse(to))
	amount1 = new(big.Float).Sub(at, from)
	return amount0.Mul(amount0, l), amount1.Mul(amount1, l)
}

// staking asks for the stakes: the staking contract holds their positions.
func (a *asking) staking(ctx context.Context) error {
	const staking = "LiquidityStaking"
	said := map[string]any{}
	var asks []viewCall
	for _, method := range []string{"totalWeight", "ratePerSecond", "periodFinish", "epoch", "poolId"} {
		asks = append(asks, viewCall{of: staking, method: method, out: func(o map[string]any) { said[method] = o[""] }})
	}
	asks = append(asks, viewCall{of: "STKN", method: "totalSupply", out: func(o map[string]any) { a.layer.supply = o[""].(*big.Int) }})
	for id, p := range a.positions {
		if a.holders[id] != lower(a.deployment.LiquidityStaking) {
			continue
		}
		asks = append(asks, viewCall{of: staking, method: "stakes", args: []any{bigOf(id)}, out: func(o map[string]any) {
			if o["owner"] == (common.Address{}) {
				return // sent there by mistake
			}
			s := only(o, "owner", "tickLower", "tickUpper", "isSeed", "liquidity", "weight", "emissionsEarned")
			s["tokenId"], s["creatorFeeEarned"], s["inRange"] = id, printed(o["feesEarned"]), p["inRange"]
			s["lastCheckpoint"] = a.logged.checkpoints[id]
			a.stakes[id] = s
		}})
	}
	if err := a.calls(ctx, asks); err != nil {
		return err
	}
	switch {
	case said["epoch"].(uint32) == 0:
		a.layer.rate = none
	case a.time >= said["periodFinish"].(*big.Int).Uint64():
		a.layer.rate = "0"
	default:
		a.layer.rate = printed(said["ratePerSecond"])
	}
	id := common.Hash(said["poolId"].([32]byte))
	pool, is := a.pools[id]
	if !is || pool.sqrtPrice.Sign() == 0 {
		return nil // nobody gave it a price
	}
	key := a.logged.pools[id]
	square := new(big.Int).Mul(pool.sqrtPrice, pool.sqrtPrice)
	num, den := new(big.Int).Lsh(big.NewInt(1), 192), square
	if key["currency0"] == lower(a.deployment.STKN) {
		num, den = den, num
	}
	a.layer.staking = fields{
		"poolId": id.Hex(), "currency0": key["currency0"], "currency1": key["currency1"], "fee": key["fee"], "tickSpacing": key["tickSpacing"],
		"sqrtPriceX96": pool.sqrtPrice.String(), "tick": fmt.Sprint(pool.tick), "liquidity": pool.liquidity.String(),
		"priceSTKNinTKN": decimal(num, den), "totalWeight": printed(said["totalWeight"]),
	}
	return nil
}
