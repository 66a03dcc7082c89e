package topics

// AppendDrip appends the message of a drip.
func AppendDrip(b []byte, d *Drip, at BlockRef) []byte {
	b = appendDecimal(AppendHeader(b, SchemaDrip), &d.ID)
	b = append(b, d.Account[:]...)
	b = appendLong(b, int64(d.Source))
	b = appendOptDecimal(b, nonZero(&d.DealID))
	b = appendOptDecimal(b, nonZero(&d.TokenID))
	b = appendUint(b, uint64(d.Epoch))
	b = appendDecimal(b, &d.Granted)
	b = appendDecimal(b, &d.Total)
	b = appendDecimal(b, &d.Claimed)
	b = appendUint(b, d.Start)
	b = appendUint(b, d.Length)
	b = appendUint(b, d.Cliff)
	if d.CutAt == 0 {
		b = append(b, unionNull)
	} else {
		b = appendUint(append(b, unionSome), d.CutAt)
	}
	return appendRef(b, &at)
}

// AppendReward appends the message of a deal's reward.
func AppendReward(b []byte, r *Reward, at BlockRef) []byte {
	b = appendDecimal(AppendHeader(b, SchemaReward), &r.DealID)
	b = appendUint(b, uint64(r.Epoch))
	b = appendUint(b, uint64(r.Term))
	b = appendDecimal(b, &r.Wanted)
	b = appendDecimal(b, &r.Granted)
	b = appendDecimal(b, &r.LenderAmount)
	b = appendDecimal(b, &r.BorrowerAmount)
	b = appendDecimal(b, &r.Returned)
	b = appendBool(b, r.BudgetExhausted)
	return appendRef(b, &at)
}

// AppendEpoch appends the message of an epoch.
func AppendEpoch(b []byte, e *Epoch, at BlockRef) []byte {
	b = appendUint(AppendHeader(b, SchemaEpoch), uint64(e.N))
	b = appendUint(b, e.StartsAt)
	b = appendUint(b, e.EndsAt)
	b = appendDecimal(b, &e.Weekly)
	b = appendDecimal(b, &e.RolledOver)
	b = appendDecimal(b, &e.DealBudget7)
	b = appendDecimal(b, &e.DealBudget21)
	b = appendDecimal(b, &e.LiquidityBudget)
	b = appendDecimal(b, &e.Reserved7)
	b = appendDecimal(b, &e.Reserved21)
	b = appendDecimal(b, &e.Released)
	if r := e.Rates; r != nil {
		b = appendDecimal(append(b, unionSome), &r.Rate7)
		b = appendDecimal(append(b, unionSome), &r.Rate21)
		b = appendDecimal(append(b, unionSome), &r.PriceUSDGPerSTKN)
		b = appendUint(append(b, unionSome), uint64(r.LenderShareBps))
	} else {
		b = append(b, nulls[:4]...)
	}
	b = appendOptDecimal(b, e.Unspent)
	return appendRef(b, &at)
}

// AppendBurn appends the message of a burn.
func AppendBurn(b []byte, r *Burn, at BlockRef) []byte {
	b = append(AppendHeader(b, SchemaBurn), r.Caller[:]...)
	b = appendDecimal(b, &r.USDGSpent)
	b = appendDecimal(b, &r.TKNBought)
	b = appendDecimal(b, &r.STKNBurned)
	b = appendUint(b, r.At)
	b = append(b, r.Tx[:]...)
	b = appendUint(b, uint64(r.LogIndex))
	b = appendDecimal(b, &r.BurnedAfter)
	return appendRef(b, &at)
}
