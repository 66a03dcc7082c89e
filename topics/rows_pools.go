package topics

import "math"

// AppendBinary appends the row. The error is always nil.
func (p *Pool) AppendBinary(b []byte) ([]byte, error) {
	b = append(append(b, rowVersion), p.ID[:]...)
	b = appendBool(b, p.Initialized)
	b = append(b, p.Currency0[:]...)
	b = append(b, p.Currency1[:]...)
	b = appendVarint(b, uint64(p.Fee))
	b = appendLong(b, int64(p.TickSpacing))
	b = append(b, p.Hooks[:]...)
	b = appendWord(b, &p.SqrtPriceX96)
	b = appendLong(b, int64(p.Tick))
	b = appendWord(b, &p.Liquidity)
	b = appendBool(b, p.Limits != nil)
	if l := p.Limits; l != nil {
		b = appendBool(b, l.Allowed)
		b = appendWord(b, &l.MinLiquidity)
		b = appendWord(b, &l.MaxLiquidity)
	}
	return b, nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (p *Pool) UnmarshalBinary(data []byte) error {
	in, err := openRow("pool", data)
	if err != nil {
		return err
	}
	*p = Pool{
		ID: in.hash(), Initialized: in.bool(), Currency0: in.address(), Currency1: in.address(),
		Fee: uint32(in.bounded(1<<32 - 1)), TickSpacing: in.tick(), Hooks: in.address(),
		SqrtPriceX96: in.word(), Tick: in.tick(), Liquidity: in.word(),
	}
	if in.bool() {
		p.Limits = &PoolLimits{Allowed: in.bool(), MinLiquidity: in.word(), MaxLiquidity: in.word()}
	}
	return in.closeRow("pool")
}

// tick reads a signed number of 32 bits.
func (in *input) tick() int32 {
	v := in.long()
	if v < math.MinInt32 || v > math.MaxInt32 {
		in.bad = true
	}
	return int32(v)
}

// AppendBinary appends the row. The error is always nil.
func (o *Observation) AppendBinary(b []byte) ([]byte, error) {
	b = append(append(b, rowVersion), o.PoolID[:]...)
	b = appendVarint(b, o.At)
	b = appendWord(b, &o.SqrtPriceX96)
	return appendLong(b, int64(o.Tick)), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (o *Observation) UnmarshalBinary(data []byte) error {
	in, err := openRow("observation", data)
	if err != nil {
		return err
	}
	*o = Observation{PoolID: in.hash(), At: in.varint(), SqrtPriceX96: in.word(), Tick: in.tick()}
	return in.closeRow("observation")
}

// AppendBinary appends the row. The error is always nil.
func (p *Position) AppendBinary(b []byte) ([]byte, error) {
	b = appendWord(append(b, rowVersion), &p.TokenID)
	return append(b, p.Owner[:]...), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (p *Position) UnmarshalBinary(data []byte) error {
	in, err := openRow("position", data)
	if err != nil {
		return err
	}
	*p = Position{TokenID: in.word(), Owner: in.address()}
	return in.closeRow("position")
}

// AppendBinary appends the row. The error is always nil.
func (p *PositionLiquidity) AppendBinary(b []byte) ([]byte, error) {
	b = appendWord(append(b, rowVersion), &p.TokenID)
	b = append(b, p.PoolID[:]...)
	b = appendLong(b, int64(p.TickLower))
	b = appendLong(b, int64(p.TickUpper))
	return appendWord(b, &p.Liquidity), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (p *PositionLiquidity) UnmarshalBinary(data []byte) error {
	in, err := openRow("position liquidity", data)
	if err != nil {
		return err
	}
	*p = PositionLiquidity{TokenID: in.word(), PoolID: in.hash(), TickLower: in.tick(), TickUpper: in.tick(), Liquidity: in.word()}
	return in.closeRow("position liquidity")
}

// AppendBinary appends the row. The error is always nil.
func (s *Staking) AppendBinary(b []byte) ([]byte, error) {
	b = append(append(b, rowVersion), s.PoolID[:]...)
	b = appendWord(b, &s.TotalWeight)
	b = appendVarint(b, uint64(s.Epoch))
	b = appendWord(b, &s.RatePerSecond)
	b = appendVarint(b, s.PeriodFinish)
	b = appendWord(b, &s.EmissionsNotified)
	return appendWord(b, &s.CreatorFees), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (s *Staking) UnmarshalBinary(data []byte) error {
	in, err := openRow("staking", data)
	if err != nil {
		return err
	}
	*s = Staking{
		PoolID: in.hash(), TotalWeight: in.word(), Epoch: uint32(in.bounded(1<<32 - 1)), RatePerSecond: in.word(),
		PeriodFinish: in.varint(), EmissionsNotified: in.word(), CreatorFees: in.word(),
	}
	return in.closeRow("staking")
}

// AppendBinary appends the row. The error is always nil.
func (s *Stake) AppendBinary(b []byte) ([]byte, error) {
	b = append(append(b, rowVersion), s.PoolID[:]...)
	b = appendWord(b, &s.TokenID)
	b = append(b, s.Owner[:]...)
	b = appendLong(b, int64(s.TickLower))
	b = appendLong(b, int64(s.TickUpper))
	b = appendWord(b, &s.Liquidity)
	b = appendWord(b, &s.Weight)
	b = appendBool(b, s.InRange)
	b = appendWord(b, &s.EmissionsEarned)
	b = appendWord(b, &s.CreatorFeeEarned)
	b = appendVarint(b, s.StakedAt)
	b = appendVarint(b, s.LastCheckpoint)
	return appendBool(b, s.IsSeed), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (s *Stake) UnmarshalBinary(data []byte) error {
	in, err := openRow("stake", data)
	if err != nil {
		return err
	}
	*s = Stake{
		PoolID: in.hash(), TokenID: in.word(), Owner: in.address(), TickLower: in.tick(), TickUpper: in.tick(),
		Liquidity: in.word(), Weight: in.word(), InRange: in.bool(), EmissionsEarned: in.word(), CreatorFeeEarned: in.word(),
		StakedAt: in.varint(), LastCheckpoint: in.varint(), IsSeed: in.bool(),
	}
	return in.closeRow("stake")
}
