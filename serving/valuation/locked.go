package valuation

import (
	"context"
	"math/big"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts/ammv4"
)

// deadAddress is where positions are sent that nobody shall ever have again. The PositionManager itself sends none to zero.
var deadAddress = common.HexToAddress("0x000000000000000000000000000000000000dEaD")

// lockedBps is the part of a pool's liquidity at its reference price that nobody can take out, at least: of a locker with
// thousands of positions only the oldest count. Nil: unknown, because there is no such liquidity.
func (s *Service) lockedBps(ctx context.Context, st *state, pools []*pool) (*int64, error) {
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
	if fair == nil || fair.Liquidity.IsZero() {
		return nil, nil //nolint:nilnil // the fact cannot be had
	}
	locked := new(big.Int)
	for i := range answer.Value {
		if p := &answer.Value[i]; p.TickLower <= fair.Tick && fair.Tick < p.TickUpper {
			locked.Add(locked, p.Liquidity.ToBig())
		}
	}
	locked.Mul(locked, big.NewInt(bpsOfAll))
	return new(min(locked.Quo(locked, fair.Liquidity.ToBig()).Int64(), bpsOfAll)), nil
}
