package indexer

import (
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// The encoders of the resources. Fields are in the order of the description; now is the timestamp of the
// block that the answer is true as of, for what depends on time.

func appendDeal(b []byte, d *query.DealWithBids, _ uint64) []byte {
	deal := &d.Deal
	b = httpapi.AppendAmount(append(b, `{"id":`...), &deal.ID)
	b = httpapi.AppendAddress(append(b, `,"borrower":`...), &deal.Borrower)
	b = appendName(append(b, `,"kind":`...), contracts.KindNames[deal.Kind])
	b = httpapi.AppendAddress(append(b, `,"token":`...), &deal.Token)
	b = httpapi.AppendAmount(append(b, `,"amountOrTokenId":`...), &deal.AmountOrTokenID)
	b = httpapi.AppendAmount(append(b, `,"cap":`...), &deal.Cap)
	b = strconv.AppendUint(append(b, `,"term":`...), uint64(deal.Term), 10)
	b = strconv.AppendUint(append(b, `,"listingExpiry":`...), deal.ListingExpiry, 10)
	b = httpapi.AppendAmount(append(b, `,"minPrice":`...), &deal.MinPrice)
	b = strconv.AppendUint(append(b, `,"feeBps":`...), uint64(deal.FeeBps), 10)
	b = httpapi.AppendHash(append(b, `,"termsHash":`...), &deal.TermsHash)
	if f := deal.Funding; f != nil {
		b = httpapi.AppendAddress(append(b, `,"lender":`...), &f.Lender)
		b = httpapi.AppendAmount(append(b, `,"price":`...), &f.Price)
		b = httpapi.AppendAmount(append(b, `,"fee":`...), &f.Fee)
		b = strconv.AppendUint(append(b, `,"fundedAt":`...), f.FundedAt, 10)
		b = strconv.AppendUint(append(b, `,"expiry":`...), f.Expiry, 10)
		b = strconv.AppendUint(append(b, `,"graceEnd":`...), f.GraceEnd, 10)
	} else {
		b = append(b, `,"lender":null,"price":null,"fee":null,"fundedAt":null,"expiry":null,"graceEnd":null`...)
	}
	b = appendName(append(b, `,"state":`...), contracts.DealStateNames[deal.State])
	b = appendName(append(b, `,"lane":`...), contracts.LaneNames[deal.Lane])
	b = httpapi.AppendHash(append(b, `,"txs":{"listed":`...), &deal.TxListed)
	b = append(b, `,"funded":`...)
	if deal.Funding != nil {
		b = httpapi.AppendHash(b, &deal.Funding.Tx)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"settled":`...)
	if deal.TxSettled != (common.Hash{}) {
		b = httpapi.AppendHash(b, &deal.TxSettled)
	} else {
		b = append(b, "null"...)
	}
	b = strconv.AppendUint(append(b, `},"listedAt":`...), deal.ListedAt, 10)

	b = strconv.AppendUint(append(b, `,"openBidCount":`...), d.Acceptable.Count, 10)
	b = append(b, `,"bestBid":`...)
	if best := d.Acceptable.Best; best != nil {
		b = appendBid(b, best)
	} else {
		b = append(b, "null"...)
	}
	return append(b, '}')
}

func appendBid(b []byte, bid *topics.Bid) []byte {
	b = httpapi.AppendAmount(append(b, `{"id":`...), &bid.ID)
	b = httpapi.AppendAmount(append(b, `,"dealId":`...), &bid.DealID)
	b = httpapi.AppendAddress(append(b, `,"lender":`...), &bid.Lender)
	b = httpapi.AppendAmount(append(b, `,"price":`...), &bid.Price)
	b = strconv.AppendUint(append(b, `,"expiry":`...), bid.Expiry, 10)
	b = appendName(append(b, `,"state":`...), contracts.BidStateNames[bid.State])
	b = strconv.AppendUint(append(b, `,"placedAt":`...), bid.PlacedAt, 10)
	b = httpapi.AppendHash(append(b, `,"termsHash":`...), &bid.TermsHash)
	b = httpapi.AppendHash(append(b, `,"tx":`...), &bid.Tx)
	return append(b, '}')
}

func appendAsset(b []byte, a *topics.Asset, now uint64) []byte {
	current, pending := rules.Multipliers(a, now)
	b = httpapi.AppendAddress(append(b, `{"token":`...), &a.Token)
	b = httpapi.AppendString(append(b, `,"symbol":`...), a.Symbol)
	b = httpapi.AppendString(append(b, `,"name":`...), a.Name)
	b = strconv.AppendUint(append(b, `,"decimals":`...), uint64(a.Decimals), 10)
	b = appendName(append(b, `,"lane":`...), contracts.LaneNames[a.Lane])
	b = strconv.AppendBool(append(b, `,"allowed":`...), a.Allowed)
	b = httpapi.AppendAmount(append(b, `,"minAmount":`...), &a.MinAmount)
	b = httpapi.AppendAmount(append(b, `,"maxDealRaw":`...), &a.MaxDealRaw)
	b = httpapi.AppendAmount(append(b, `,"maxOpenRaw":`...), &a.MaxOpenRaw)
	b = httpapi.AppendAmount(append(b, `,"openRaw":`...), &a.OpenRaw)
	b = appendNullable(append(b, `,"uiMultiplier":`...), current)
	b = appendNullable(append(b, `,"pendingMultiplier":`...), pending)
	b = append(b, `,"effectiveAt":`...)
	if a.EffectiveAt != nil {
		b = strconv.AppendUint(b, *a.EffectiveAt, 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"paused":`...)
	if a.Paused != nil {
		b = strconv.AppendBool(b, *a.Paused)
	} else {
		b = append(b, "null"...)
	}
	return append(b, '}')
}

func appendNullable(b []byte, n *uint256.Int) []byte {
	if n == nil {
		return append(b, "null"...)
	}
	return httpapi.AppendAmount(b, n)
}

// appendName appends a text that is known to need no escaping.
func appendName(b []byte, name string) []byte {
	b = append(append(b, '"'), name...)
	return append(b, '"')
}

func appendList[T any](b []byte, items []T, item func([]byte, *T) []byte) []byte {
	b = append(b, '[')
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = item(b, &items[i])
	}
	return append(b, ']')
}

// appendField appends the name of a field, with the comma that is before all but the first, then an amount.
func appendField(b []byte, name string, n *uint256.Int) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = appendName(b, name)
	return appendNullable(append(b, ':'), n)
}

// appendInteger does the same with a JSON integer.
func appendInteger[T ~int | ~int32 | ~uint16 | ~uint32 | ~uint64](b []byte, name string, n T) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(appendName(b, name), ':')
	if n < 0 {
		return strconv.AppendInt(b, int64(n), 10)
	}
	return strconv.AppendUint(b, uint64(n), 10)
}

// appendBool does the same with a boolean.
func appendBool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(append(appendName(append(b, ','), name), ':'), v)
}

// appendPrice appends a price per whole token, or null.
func appendPrice(b []byte, p *query.Price) []byte {
	if p == nil {
		return append(b, "null"...)
	}
	return appendName(b, p.String())
}

// appendNullableInteger appends a JSON integer, or null.
func appendNullableInteger(b []byte, n *uint256.Int) []byte {
	if n == nil {
		return append(b, "null"...)
	}
	return httpapi.AppendDecimal(b, n)
}
