package topics

// The messages of the ent topics: a row and the block that it is true as of.

// AppendDeal appends the message of a deal.
func AppendDeal(b []byte, d *Deal, at BlockRef) []byte {
	b = AppendHeader(b, SchemaDeal)
	b = appendDecimal(b, &d.ID)
	b = append(b, d.Borrower[:]...)
	b = appendLong(b, int64(d.Kind))
	b = appendLong(b, int64(d.Lane))
	b = appendLong(b, int64(d.State))
	b = append(b, d.Token[:]...)
	b = appendDecimal(b, &d.AmountOrTokenID)
	b = appendDecimal(b, &d.Cap)
	b = appendDecimal(b, &d.MinPrice)
	b = appendUint(b, uint64(d.Term))
	b = appendUint(b, uint64(d.FeeBps))
	b = appendUint(b, d.ListingExpiry)
	b = appendUint(b, d.ListedAt)
	b = append(b, d.TermsHash[:]...)
	b = append(b, d.TxListed[:]...)
	if f := d.Funding; f != nil {
		b = append(append(b, unionSome), f.Lender[:]...)
		b = appendDecimal(append(b, unionSome), &f.Price)
		b = appendDecimal(append(b, unionSome), &f.Fee)
		b = appendUint(append(b, unionSome), f.FundedAt)
		b = appendUint(append(b, unionSome), f.Expiry)
		b = appendUint(append(b, unionSome), f.GraceEnd)
		b = append(append(b, unionSome), f.Tx[:]...)
	} else {
		b = append(b, make([]byte, 7)...) // seven nulls
	}
	b = appendOptHash(b, d.TxSettled)
	b = appendUint(b, uint64(d.OpenBids))
	return appendRef(b, &at)
}

// AppendBid appends the message of a bid.
func AppendBid(b []byte, r *Bid, at BlockRef) []byte {
	b = AppendHeader(b, SchemaBid)
	b = appendDecimal(b, &r.ID)
	b = appendDecimal(b, &r.DealID)
	b = append(b, r.Lender[:]...)
	b = appendDecimal(b, &r.Price)
	b = appendUint(b, r.Expiry)
	b = appendUint(b, r.PlacedAt)
	b = appendLong(b, int64(r.State))
	b = append(b, r.TermsHash[:]...)
	b = append(b, r.Tx[:]...)
	return appendRef(b, &at)
}

// AppendBalance appends the message of a balance.
func AppendBalance(b []byte, r *Balance, at BlockRef) []byte {
	b = AppendHeader(b, SchemaBalance)
	b = append(b, r.Account[:]...)
	b = append(b, r.Asset[:]...)
	b = appendLong(b, int64(r.Kind))
	b = appendDecimal(b, &r.Amount)
	return appendRef(b, &at)
}

// AppendAsset appends the message of an asset.
func AppendAsset(b []byte, r *Asset, at BlockRef) []byte {
	b = AppendHeader(b, SchemaAsset)
	b = append(b, r.Token[:]...)
	b = appendString(b, r.Symbol)
	b = appendString(b, r.Name)
	b = appendUint(b, uint64(r.Decimals))
	b = appendLong(b, int64(r.Kind))
	b = appendLong(b, int64(r.Lane))
	b = appendBool(b, r.Allowed)
	b = appendDecimal(b, &r.MinAmount)
	b = appendDecimal(b, &r.MaxDealRaw)
	b = appendDecimal(b, &r.MaxOpenRaw)
	b = appendDecimal(b, &r.OpenRaw)
	b = appendOptDecimal(b, r.UIMultiplier)
	b = appendOptDecimal(b, r.NewUIMultiplier)
	b = appendOptUint(b, r.EffectiveAt)
	b = appendOptBool(b, r.Paused)
	return appendRef(b, &at)
}
