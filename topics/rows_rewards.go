package topics

import "github.com/lienstream/lienstream/contracts"

// AppendBinary appends the row. The error is always nil.
func (d *Drip) AppendBinary(b []byte) ([]byte, error) {
	b = appendWord(append(b, rowVersion), &d.ID)
	b = append(append(b, d.Account[:]...), byte(d.Source))
	b = appendWord(b, &d.DealID)
	b = appendWord(b, &d.TokenID)
	b = appendVarint(b, uint64(d.Epoch))
	b = appendWord(b, &d.Granted)
	b = appendWord(b, &d.Total)
	b = appendWord(b, &d.Claimed)
	b = appendVarint(b, d.Start)
	b = appendVarint(b, d.Length)
	b = appendVarint(b, d.Cliff)
	return appendVarint(b, d.CutAt), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (d *Drip) UnmarshalBinary(data []byte) error {
	in, err := openRow("drip", data)
	if err != nil {
		return err
	}
	*d = Drip{
		ID: in.word(), Account: in.address(), Source: contracts.DripSource(in.byte()), DealID: in.word(), TokenID: in.word(),
		Epoch: uint32(in.bounded(1<<32 - 1)), Granted: in.word(), Total: in.word(), Claimed: in.word(),
		Start: in.varint(), Length: in.varint(), Cliff: in.varint(), CutAt: in.varint(),
	}
	return in.closeRow("drip")
}

// AppendBinary appends the row. The error is always nil.
func (r *Reward) AppendBinary(b []byte) ([]byte, error) {
	b = appendWord(append(b, rowVersion), &r.DealID)
	b = appendVarint(b, uint64(r.Epoch))
	b = appendVarint(b, uint64(r.Term))
	b = appendWord(b, &r.Wanted)
	b = appendWord(b, &r.Granted)
	b = appendWord(b, &r.LenderAmount)
	b = appendWord(b, &r.BorrowerAmount)
	b = appendWord(b, &r.Returned)
	return appendBool(b, r.BudgetExhausted), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (r *Reward) UnmarshalBinary(data []byte) error {
	in, err := openRow("reward", data)
	if err != nil {
		return err
	}
	*r = Reward{
		DealID: in.word(), Epoch: uint32(in.bounded(1<<32 - 1)), Term: uint32(in.bounded(1<<32 - 1)), Wanted: in.word(), Granted: in.word(),
		LenderAmount: in.word(), BorrowerAmount: in.word(), Returned: in.word(), BudgetExhausted: in.bool(),
	}
	return in.closeRow("reward")
}

// AppendBinary appends the row. The error is always nil.
func (e *Epoch) AppendBinary(b []byte) ([]byte, error) {
	b = appendVarint(append(b, rowVersion), uint64(e.N))
	b = appendVarint(b, e.StartsAt)
	b = appendVarint(b, e.EndsAt)
	b = appendWord(b, &e.Weekly)
	b = appendWord(b, &e.RolledOver)
	b = appendWord(b, &e.DealBudget7)
	b = appendWord(b, &e.DealBudget21)
	b = appendWord(b, &e.LiquidityBudget)
	b = appendWord(b, &e.Reserved7)
	b = appendWord(b, &e.Reserved21)
	b = appendWord(b, &e.Released)
	b = appendBool(b, e.Rates != nil)
	if r := e.Rates; r != nil {
		b = appendWord(b, &r.Rate7)
		b = appendWord(b, &r.Rate21)
		b = appendWord(b, &r.PriceUSDGPerSTKN)
		b = appendVarint(b, uint64(r.LenderShareBps))
	}
	return appendOptWord(b, e.Unspent), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (e *Epoch) UnmarshalBinary(data []byte) error {
	in, err := openRow("epoch", data)
	if err != nil {
		return err
	}
	*e = Epoch{
		N: uint32(in.bounded(1<<32 - 1)), StartsAt: in.varint(), EndsAt: in.varint(), Weekly: in.word(), RolledOver: in.word(),
		DealBudget7: in.word(), DealBudget21: in.word(), LiquidityBudget: in.word(),
		Reserved7: in.word(), Reserved21: in.word(), Released: in.word(),
	}
	if in.bool() {
		e.Rates = &EpochRates{
			Rate7: in.word(), Rate21: in.word(), PriceUSDGPerSTKN: in.word(), LenderShareBps: uint16(in.bounded(1<<16 - 1)),
		}
	}
	e.Unspent = in.optWord()
	return in.closeRow("epoch")
}

// AppendBinary appends the row. The error is always nil.
func (r *Burn) AppendBinary(b []byte) ([]byte, error) {
	b = append(append(b, rowVersion), r.Caller[:]...)
	b = appendWord(b, &r.USDGSpent)
	b = appendWord(b, &r.TKNBought)
	b = appendWord(b, &r.STKNBurned)
	b = appendVarint(b, r.At)
	b = append(b, r.Tx[:]...)
	b = appendVarint(b, r.Block)
	b = appendVarint(b, uint64(r.LogIndex))
	return appendWord(b, &r.BurnedAfter), nil
}

// UnmarshalBinary reads a row. Nothing of it aliases data.
func (r *Burn) UnmarshalBinary(data []byte) error {
	in, err := openRow("burn", data)
	if err != nil {
		return err
	}
	*r = Burn{
		Caller: in.address(), USDGSpent: in.word(), TKNBought: in.word(), STKNBurned: in.word(),
		At: in.varint(), Tx: in.hash(), Block: in.varint(), LogIndex: uint32(in.bounded(1<<32 - 1)), BurnedAfter: in.word(),
	}
	return in.closeRow("burn")
}
