package liquidity

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// applyStaking applies an event of LiquidityStaking.
func applyStaking(w state.Writer, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.PositionStaked:
		violation, err = staked(w, e)
	case *contracts.PositionCheckpointed:
		violation, err = changeStake(w, e.PoolID, &e.TokenID, func(s *topics.Stake) string {
			s.Liquidity, s.Weight, s.InRange = e.Liquidity, e.Weight, e.InRange
			s.EmissionsEarned, s.CreatorFeeEarned, s.LastCheckpoint = e.EmissionsEarned, e.CreatorFeeEarned, e.At
			return ""
		})
		if err == nil && violation == "" {
			err = changeStaking(w, e.PoolID, func(s *topics.Staking) { s.TotalWeight = e.TotalWeight })
		}
	case *contracts.PositionUnstaked:
		key := stakeKey(e.PoolID, &e.TokenID)
		row, err := w.Get(Stakes, key)
		if err != nil || row == nil {
			return NoStake, err
		}
		w.Delete(Stakes, key)
		return "", changeStaking(w, e.PoolID, func(s *topics.Staking) { s.TotalWeight = e.TotalWeight })
	case *contracts.EmissionsNotified:
		err = changeStaking(w, e.PoolID, func(s *topics.Staking) {
			s.Epoch, s.RatePerSecond, s.PeriodFinish = e.Epoch, e.RatePerSecond, e.PeriodFinish
			violation = add(&s.EmissionsNotified, &e.Amount)
		})
	case *contracts.CreatorFeesNotified:
		err = changeStaking(w, e.PoolID, func(s *topics.Staking) { violation = add(&s.CreatorFees, &e.Amount) })
	case *contracts.EmissionsClaimed:
		violation, err = changeStake(w, e.PoolID, &e.TokenID, func(s *topics.Stake) string {
			return paid(&s.EmissionsEarned, &e.Amount)
		})
	case *contracts.CreatorFeeClaimed:
		violation, err = changeStake(w, e.PoolID, &e.TokenID, func(s *topics.Stake) string {
			return paid(&s.CreatorFeeEarned, &e.Amount)
		})
	}
	return violation, err
}

func staked(w state.Writer, e *contracts.PositionStaked) (string, error) {
	key := stakeKey(e.PoolID, &e.TokenID)
	if row, err := w.Get(Stakes, key); err != nil || row != nil {
		return StakedTwice, err
	}
	err := family.Put(w, Stakes, key, &topics.Stake{
		PoolID: e.PoolID, TokenID: e.TokenID, Owner: e.Owner, TickLower: e.TickLower, TickUpper: e.TickUpper,
		Liquidity: e.Liquidity, Weight: e.Weight, InRange: e.InRange, StakedAt: e.At, LastCheckpoint: e.At, IsSeed: e.IsSeed,
	})
	if err != nil {
		return "", err
	}
	return "", changeStaking(w, e.PoolID, func(s *topics.Staking) { s.TotalWeight = e.TotalWeight })
}

// paid resets what was earned: right after a checkpoint the contract pays out all of it.
func paid(earned, amount *uint256.Int) string {
	same := earned.Eq(amount)
	earned.Clear()
	if !same {
		return NotCheckpointed
	}
	return ""
}

func add(to, amount *uint256.Int) string {
	sum, over := new(uint256.Int).AddOverflow(to, amount)
	if over {
		return Overflow
	}
	to.Set(sum)
	return ""
}

func changeStake(w state.Writer, pool common.Hash, tokenID *uint256.Int, edit func(*topics.Stake) string) (string, error) {
	key := stakeKey(pool, tokenID)
	var s topics.Stake
	if found, err := family.Get(w, Stakes, key, &s); err != nil || !found {
		return NoStake, err
	}
	violation := edit(&s)
	return violation, family.Put(w, Stakes, key, &s)
}

func changeStaking(w state.Writer, pool common.Hash, edit func(*topics.Staking)) error {
	var s topics.Staking
	if _, err := family.Get(w, Stakings, pool[:], &s); err != nil {
		return err
	}
	s.PoolID = pool
	edit(&s)
	return family.Put(w, Stakings, pool[:], &s)
}
