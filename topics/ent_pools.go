package topics

import "github.com/holiman/uint256"

// nonZero is nil for zero: what an event says by 0 a message says by null.
func nonZero(v *uint256.Int) *uint256.Int {
	if v.IsZero() {
		return nil
	}
	return v
}

// AppendPool appends the message of a pool.
func AppendPool(b []byte, p *Pool, at BlockRef) []byte {
	b = append(AppendHeader(b, SchemaPool), p.ID[:]...)
	b = appendBool(b, p.Initialized)
	b = append(b, p.Currency0[:]...)
	b = append(b, p.Currency1[:]...)
	b = appendUint(b, uint64(p.Fee))
	b = appendLong(b, int64(p.TickSpacing))
	b = append(b, p.Hooks[:]...)
	b = appendDecimal(b, &p.SqrtPriceX96)
	b = appendLong(b, int64(p.Tick))
	b = appendDecimal(b, &p.Liquidity)
	if l := p.Limits; l != nil {
		b = appendBool(append(b, unionSome), l.Allowed)
		b = appendDecimal(append(b, unionSome), &l.MinLiquidity)
		b = appendDecimal(append(b, unionSome), &l.MaxLiquidity)
	} else {
		b = append(b, nulls[:3]...)
	}
	return appendRef(b, &at)
}

// AppendObservation appends the message of a price observation.
func AppendObservation(b []byte, o *Observation, at BlockRef) []byte {
	b = append(AppendHeader(b, SchemaObservation), o.PoolID[:]...)
	b = appendUint(b, o.At)
	b = appendDecimal(b, &o.SqrtPriceX96)
	b = appendLong(b, int64(o.Tick))
	return appendRef(b, &at)
}

// AppendPosition appends the message of a position's holder.
func AppendPosition(b []byte, p *Position, at BlockRef) []byte {
	b = appendDecimal(AppendHeader(b, SchemaPosition), &p.TokenID)
	b = append(b, p.Owner[:]...)
	return appendRef(b, &at)
}

// AppendPositionLiquidity appends the message of what a position has in its pool.
func AppendPositionLiquidity(b []byte, p *PositionLiquidity, at BlockRef) []byte {
	b = appendDecimal(AppendHeader(b, SchemaPositionLiquidity), &p.TokenID)
	b = append(b, p.PoolID[:]...)
	b = appendLong(b, int64(p.TickLower))
	b = appendLong(b, int64(p.TickUpper))
	b = appendDecimal(b, &p.Liquidity)
	return appendRef(b, &at)
}

// AppendStaking appends the message of what all stakes of a pool share.
func AppendStaking(b []byte, s *Staking, at BlockRef) []byte {
	b = append(AppendHeader(b, SchemaStaking), s.PoolID[:]...)
	b = appendDecimal(b, &s.TotalWeight)
	b = appendUint(b, uint64(s.Epoch))
	b = appendDecimal(b, &s.RatePerSecond)
	b = appendUint(b, s.PeriodFinish)
	b = appendDecimal(b, &s.EmissionsNotified)
	b = appendDecimal(b, &s.CreatorFees)
	return appendRef(b, &at)
}

// AppendStake appends the message of a staked position.
func AppendStake(b []byte, s *Stake, at BlockRef) []byte {
	b = append(AppendHeader(b, SchemaStake), s.PoolID[:]...)
	b = appendDecimal(b, &s.TokenID)
	b = append(b, s.Owner[:]...)
	b = appendLong(b, int64(s.TickLower))
	b = appendLong(b, int64(s.TickUpper))
	b = appendDecimal(b, &s.Liquidity)
	b = appendDecimal(b, &s.Weight)
	b = appendBool(b, s.InRange)
	b = appendDecimal(b, &s.EmissionsEarned)
	b = appendDecimal(b, &s.CreatorFeeEarned)
	b = appendUint(b, s.StakedAt)
	b = appendUint(b, s.LastCheckpoint)
	b = appendBool(b, s.IsSeed)
	return appendRef(b, &at)
}
