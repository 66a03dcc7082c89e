package valuation

import (
	"context"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/topics"
)

// deadAddress is where positions are sent to be lost for good. The PositionManager does not send any to the zero
// address.
var deadAddress = common.HexToAddress("0x000000000000000000000000000000000000dEaD")

// lockedRoot is the square root of one fifth, in billionths. Liquidity is counted as locked down to a fifth of the
// price, the lowest price of a deal's scenarios.
const lockedRoot = 447_213_595

// lockedBps is the locked part of the money that a pool pays for a token until its price falls to a fifth of the
// reference. It is a lower bound: of a locker with thousands of positions only the oldest count. It compares money and
// not liquidity, because a narrow position has high liquidity for little money. Nil: unknown, because the pool pays
// nothing.
func (s *Service) lockedBps(ctx context.Context, st *state, token common.Address, pools []*pool) (*int64, error) {
	if len(pools) == 0 {
		return nil, nil //nolint:nilnil // no pool
	}
	owners := []common.Address{deadAddress}
	for _, locker := range s.cfg.Lockers {
		owners = append(owners, common.HexToAddress(locker))
	}
	answer, err := s.reader.Held(ctx, st.at, pools[0].ID, owners)
	if err != nil {
		return nil, err
	}
	root, err := ammv4.SqrtPriceAtTick(pools[0].reference.middle())
	if err != nil {
		return nil, err
	}
	fair := pools[0].moved(root, false)
	if fair == nil {
		return nil, nil //nolint:nilnil // the fact is unknown
	}
	of0 := token == fair.Currency0
	all, low, err := fair.paysUntil(lockedLimit(root, of0), of0)
	if err != nil || all.IsZero() {
		return nil, nil //nolint:nilnil,nilerr // the fact is unknown
	}
	locked := new(big.Int)
	for i := range answer.Value {
		money, err := falls(fair, low, of0, &answer.Value[i])
		if err != nil {
			return nil, err
		}
		locked.Add(locked, money)
	}
	locked.Mul(locked, big.NewInt(bpsOfAll))
	return new(min(locked.Quo(locked, all.ToBig()).Int64(), bpsOfAll)), nil
}

// lockedLimit is the root of the price at which one of a pool's currencies is worth a fifth.
func lockedLimit(root *uint256.Int, of0 bool) *uint256.Int {
	num, den := uint256.NewInt(lockedRoot), uint256.NewInt(billion)
	if !of0 {
		num, den = den, num
	}
	limit, _ := new(uint256.Int).MulDivOverflow(root, num, den)
	if !limit.Gt(ammv4.MinSqrtPrice) {
		return new(uint256.Int).AddUint64(ammv4.MinSqrtPrice, 1)
	}
	if !limit.Lt(ammv4.MaxSqrtPrice) {
		return new(uint256.Int).SubUint64(ammv4.MaxSqrtPrice, 1)
	}
	return limit
}

// paysUntil is what a pool pays for one of its currencies until its price reaches a limit, and the pool there.
func (p *pool) paysUntil(limit *uint256.Int, of0 bool) (*uint256.Int, *pool, error) {
	var r ammv4.Result
	err := p.amm.Swap(&r, &ammv4.Swap{ZeroForOne: of0, ExactIn: true, Amount: *new(uint256.Int).Lsh(uint256.NewInt(1), 126), Limit: *limit})
	return &r.Out, p.after(&r), err
}

// falls is how much of the other currency a position loses when the price moves from one state of its pool to another.
func falls(from, to *pool, of0 bool, held *topics.PositionLiquidity) (*big.Int, error) {
	var has [2]*big.Int
	for i, in := range []*pool{from, to} {
		amount0, amount1, err := ammv4.Amounts(&in.SqrtPriceX96, in.Tick, held.TickLower, held.TickUpper, &held.Liquidity)
		if err != nil {
			return nil, err
		}
		if has[i] = amount1.ToBig(); !of0 {
			has[i] = amount0.ToBig()
		}
	}
	return has[0].Sub(has[0], has[1]), nil
}
