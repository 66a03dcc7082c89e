// Package liquidity applies Uniswap v4 and the staking of its positions: pools with price and liquidity in
// range, ticks, positions of the PositionManager, stakes. It must depend on nothing but the given state and
// event: no clock, no chain, no other family.
package liquidity

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// Invariants that an event may violate. The rest of the event is then not applied; the caller counts
// violations.
const (
	InitializedTwice = "pool initialised twice"
	NoPool           = "no such pool"
	BelowZero        = "removed liquidity exceeds the position's liquidity"
	OtherRange       = "position changed its range or pool"
	NoPosition       = "no such position"
	StakedTwice      = "position staked twice"
	NoStake          = "no such stake"
	NotCheckpointed  = "claim differs from the last checkpoint"
	Overflow         = "sum exceeds 256 bits"
)

// Family describes this family; manager is the PositionManager. Positions of other contracts count only in
// their pools' liquidity.
func Family(manager common.Address) family.Family {
	return family.Family{
		Name: "liquidity", Tables: []*state.Table{Pools, Positions, PositionLiquidities, Stakings, Stakes, Ticks},
		Events: []contracts.Event{
			&contracts.Swapped{}, &contracts.PoolInitialized{}, &contracts.LiquidityModified{}, &contracts.PoolSet{},
			&contracts.PositionTransferred{}, &contracts.PositionStaked{}, &contracts.PositionCheckpointed{},
			&contracts.PositionUnstaked{}, &contracts.EmissionsNotified{}, &contracts.CreatorFeesNotified{},
			&contracts.EmissionsClaimed{}, &contracts.CreatorFeeClaimed{},
		},
		Apply: func(w state.Writer, _ topics.EventMeta, event contracts.Event) (string, error) {
			return apply(w, manager, event)
		},
	}
}

// apply applies an event, and returns the invariant that it violates, if any.
func apply(w state.Writer, manager common.Address, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.Swapped:
		violation, err = change(w, e.PoolID, func(p *topics.Pool) string {
			p.SqrtPriceX96, p.Tick, p.Liquidity = e.SqrtPriceX96, e.Tick, e.Liquidity
			return ""
		})
	case *contracts.LiquidityModified:
		violation, err = modified(w, manager, e)
	case *contracts.PositionTransferred:
		violation, err = transferred(w, e)
	case *contracts.PoolInitialized:
		violation, err = initialized(w, e)
	case *contracts.PoolSet:
		err = set(w, e)
	default:
		violation, err = applyStaking(w, event)
	}
	return violation, err
}

func initialized(w state.Writer, e *contracts.PoolInitialized) (string, error) {
	var p topics.Pool
	if found, err := family.Get(w, Pools, e.PoolID[:], &p); err != nil || found && p.Initialized {
		return InitializedTwice, err
	}
	p = topics.Pool{
		ID: e.PoolID, Initialized: true, Currency0: e.Currency0, Currency1: e.Currency1, Fee: e.Fee, TickSpacing: e.TickSpacing,
		Hooks: e.Hooks, SqrtPriceX96: e.SqrtPriceX96, Tick: e.Tick, Limits: p.Limits, InitializedAt: w.Block().Timestamp,
	}
	return "", family.Put(w, Pools, p.ID[:], &p)
}

// set applies the registry's entry, even before the pool is initialised.
func set(w state.Writer, e *contracts.PoolSet) error {
	var p topics.Pool
	if _, err := family.Get(w, Pools, e.PoolID[:], &p); err != nil {
		return err
	}
	p.ID = e.PoolID
	p.Limits = &topics.PoolLimits{Allowed: e.Allowed, MinLiquidity: e.MinLiquidity, MaxLiquidity: e.MaxLiquidity}
	return family.Put(w, Pools, p.ID[:], &p)
}

// change edits a pool, which must be initialised.
func change(w state.Writer, id common.Hash, edit func(*topics.Pool) string) (string, error) {
	var p topics.Pool
	if found, err := family.Get(w, Pools, id[:], &p); err != nil || !found || !p.Initialized {
		return NoPool, err
	}
	if violation := edit(&p); violation != "" {
		return violation, nil
	}
	return "", family.Put(w, Pools, id[:], &p)
}

// modified adds liquidity to a range, or removes it. A change of zero only collects fees.
func modified(w state.Writer, manager common.Address, e *contracts.LiquidityModified) (string, error) {
	var p topics.Pool
	if found, err := family.Get(w, Pools, e.PoolID[:], &p); err != nil || !found || !p.Initialized {
		return NoPool, err
	}
	if e.Sender == manager {
		if violation, err := modifyPosition(w, e); err != nil || violation != "" {
			return violation, err
		}
	}
	if e.LiquidityDelta.IsZero() {
		return "", nil
	}
	if e.TickLower <= p.Tick && p.Tick < e.TickUpper {
		if !addSigned(&p.Liquidity, &e.LiquidityDelta) {
			return BelowZero, nil
		}
		if err := family.Put(w, Pools, e.PoolID[:], &p); err != nil {
			return "", err
		}
	}
	if violation, err := moveTick(w, e.PoolID, e.TickLower, &e.LiquidityDelta, false); err != nil || violation != "" {
		return violation, err
	}
	return moveTick(w, e.PoolID, e.TickUpper, &e.LiquidityDelta, true)
}

// modifyPosition updates the liquidity of a position of the manager. The salt is its token ID.
func modifyPosition(w state.Writer, e *contracts.LiquidityModified) (string, error) {
	p := topics.PositionLiquidity{PoolID: e.PoolID, TickLower: e.TickLower, TickUpper: e.TickUpper}
	p.TokenID.SetBytes32(e.Salt[:])
	var before topics.PositionLiquidity
	found, err := family.Get(w, PositionLiquidities, e.Salt[:], &before)
	switch {
	case err != nil:
		return "", err
	case found && (before.PoolID != p.PoolID || before.TickLower != p.TickLower || before.TickUpper != p.TickUpper):
		return OtherRange, nil
	case found && e.LiquidityDelta.IsZero():
		return "", nil
	}
	p.Liquidity = before.Liquidity
	if !addSigned(&p.Liquidity, &e.LiquidityDelta) {
		return BelowZero, nil
	}
	return "", family.Put(w, PositionLiquidities, e.Salt[:], &p)
}

// transferred updates the owner of a position. A position sent to zero is gone; its range remains in the
// pool's partition, which does not get this event.
func transferred(w state.Writer, e *contracts.PositionTransferred) (string, error) {
	key := e.TokenID.Bytes32()
	if e.To != (common.Address{}) {
		return "", family.Put(w, Positions, key[:], &topics.Position{TokenID: e.TokenID, Owner: e.To})
	}
	if row, err := w.Get(Positions, key[:]); err != nil || row == nil {
		return NoPosition, err
	}
	w.Delete(Positions, key[:])
	return "", nil
}

// addSigned adds a two's complement number; false: the sum overflows.
func addSigned(to, delta *uint256.Int) bool {
	if delta.Sign() >= 0 {
		_, over := to.AddOverflow(to, delta)
		return !over
	}
	_, below := to.SubOverflow(to, new(uint256.Int).Neg(delta))
	return !below
}
