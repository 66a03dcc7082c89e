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

// scope says whose positions and pools they are.
type scope struct {
	manager common.Address // the PositionManager: positions of other contracts count only in their pools' liquidity
	pool    common.Hash    // of the token layer; zero: there is none
}

// Family describes this family.
func Family(d contracts.Deployment) family.Family {
	s := &scope{manager: d.PositionManager, pool: d.PoolID}
	return family.Family{
		Name: "liquidity", Tables: []*state.Table{Pools, Positions, PositionLiquidities, Stakings, Stakes, Ticks, poolDays, liquidityDays, youngRanges, youngTicks, tickSums, youngSums, changes},
		Events: []contracts.Event{
			&contracts.Swapped{}, &contracts.PoolInitialized{}, &contracts.LiquidityModified{}, &contracts.PoolSet{},
			&contracts.PositionTransferred{}, &contracts.PositionStaked{}, &contracts.PositionCheckpointed{},
			&contracts.PositionUnstaked{}, &contracts.EmissionsNotified{}, &contracts.CreatorFeesNotified{},
			&contracts.EmissionsClaimed{}, &contracts.CreatorFeeClaimed{},
		},
		Apply: func(w state.Writer, _ topics.EventMeta, event contracts.Event) (string, error) {
			return s.apply(w, event)
		},
	}
}

// apply applies an event, and returns the invariant that it violates, if any.
func (s *scope) apply(w state.Writer, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.Swapped:
		violation, err = s.change(w, e.PoolID, func(p *topics.Pool) string {
			p.SqrtPriceX96, p.Tick, p.Liquidity = e.SqrtPriceX96, e.Tick, e.Liquidity
			return ""
		})
	case *contracts.LiquidityModified:
		violation, err = s.modified(w, e)
	case *contracts.PositionTransferred:
		violation, err = transferred(w, e)
	case *contracts.PoolInitialized:
		violation, err = s.initialized(w, e)
	case *contracts.PoolSet:
		err = s.set(w, e)
	default:
		violation, err = applyStaking(w, event)
	}
	return violation, err
}

func (s *scope) initialized(w state.Writer, e *contracts.PoolInitialized) (string, error) {
	var p topics.Pool
	if found, err := family.Get(w, Pools, e.PoolID[:], &p); err != nil || found && p.Initialized {
		return InitializedTwice, err
	}
	before := p
	p = topics.Pool{
		ID: e.PoolID, Initialized: true, Currency0: e.Currency0, Currency1: e.Currency1, Fee: e.Fee, TickSpacing: e.TickSpacing,
		Hooks: e.Hooks, SqrtPriceX96: e.SqrtPriceX96, Tick: e.Tick, Limits: p.Limits, InitializedAt: w.Block().Timestamp,
	}
	return "", s.putPool(w, &before, &p)
}

// set applies the registry's entry, even before the pool is initialised.
func (s *scope) set(w state.Writer, e *contracts.PoolSet) error {
	var p topics.Pool
	if _, err := family.Get(w, Pools, e.PoolID[:], &p); err != nil {
		return err
	}
	before := p
	p.ID = e.PoolID
	p.Limits = &topics.PoolLimits{Allowed: e.Allowed, MinLiquidity: e.MinLiquidity, MaxLiquidity: e.MaxLiquidity}
	return s.putPool(w, &before, &p)
}

// change edits a pool, which must be initialised.
func (s *scope) change(w state.Writer, id common.Hash, edit func(*topics.Pool) string) (string, error) {
	var p topics.Pool
	if found, err := family.Get(w, Pools, id[:], &p); err != nil || !found || !p.Initialized {
		return NoPool, err
	}
	before := p
	if violation := edit(&p); violation != "" {
		return violation, nil
	}
	return "", s.putPool(w, &before, &p)
}

// modified adds liquidity to a range, or removes it. A change of zero only collects fees.
func (s *scope) modified(w state.Writer, e *contracts.LiquidityModified) (string, error) {
	var p topics.Pool
	if found, err := family.Get(w, Pools, e.PoolID[:], &p); err != nil || !found || !p.Initialized {
		return NoPool, err
	}
	if e.Sender == s.manager {
		if violation, err := modifyPosition(w, e, p.Limits != nil); err != nil || violation != "" {
			return violation, err
		}
	}
	if e.LiquidityDelta.IsZero() {
		return "", nil
	}
	if e.TickLower <= p.Tick && p.Tick < e.TickUpper {
		before := p
		if !addSigned(&p.Liquidity, &e.LiquidityDelta) {
			return BelowZero, nil
		}
		if err := s.putPool(w, &before, &p); err != nil {
			return "", err
		}
	}
	if violation, err := moveTick(w, e.PoolID, e.TickLower, &e.LiquidityDelta, false); err != nil || violation != "" {
		return violation, err
	}
	if violation, err := moveTick(w, e.PoolID, e.TickUpper, &e.LiquidityDelta, true); err != nil || violation != "" {
		return violation, err
	}
	if p.Hooks != (common.Address{}) && p.ID != s.pool {
		return "", nil // it prices nothing
	}
	hash := w.Block().Hash
	w.Put(changes, e.PoolID[:], hash[:])
	if err := addSums(w, e); err != nil {
		return "", err
	}
	return "", age(w, e)
}

// modifyPosition updates the liquidity of a position of the manager. The salt is its token ID. What it was is kept
// where the registry has the pool: no other position can have been collateral.
func modifyPosition(w state.Writer, e *contracts.LiquidityModified, keep bool) (string, error) {
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
	if found && keep {
		if err := family.KeepFormer(w, liquidityDays, liquidityDayKey(e.Salt, family.Today(w)), &before); err != nil {
			return "", err
		}
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
