package indexer

import (
	"math/big"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// The encoders of the token layer, the pool and the statistics.

func appendReward(b []byte, r *query.Reward) []byte {
	b = appendField(append(b, '{'), "total", &r.Granted)
	b = appendField(b, "lender", &r.LenderAmount)
	b = appendField(b, "borrower", &r.BorrowerAmount)
	b = appendInteger(b, "epoch", r.Epoch)
	b = appendBool(b, "budgetExhausted", r.BudgetExhausted)
	b = appendList(append(b, `,"drips":`...), r.Drips, appendDrip)
	return append(b, '}')
}

func appendDrip(b []byte, d *query.Drip) []byte {
	b = appendField(append(b, '{'), "id", &d.ID)
	b = httpapi.AppendAddress(append(b, `,"account":`...), &d.Account)
	b = appendName(append(b, `,"source":`...), dripSources[d.Source])
	var deal, token *uint256.Int
	if d.Source == contracts.DripDeal {
		deal = &d.DealID
	} else {
		token = &d.TokenID
	}
	b = appendField(b, "dealId", deal)
	b = appendField(b, "tokenId", token)
	b = appendField(b, "total", &d.Total)
	b = appendField(b, "claimed", &d.Claimed)
	b = appendInteger(b, "start", d.Start)
	b = appendInteger(b, "length", d.Length)
	b = appendField(b, "unlockedNow", &d.UnlockedNow)
	b = appendField(b, "claimableNow", &d.ClaimableNow)
	b = appendList(append(b, `,"curve":`...), d.Curve, func(b []byte, p *query.CurvePoint) []byte {
		b = appendField(appendInteger(append(b, '{'), "t", p.T), "unlocked", &p.Unlocked)
		return append(b, '}')
	})
	return append(b, '}')
}

func appendEpoch(b []byte, e *topics.Epoch) []byte {
	b = appendInteger(append(b, '{'), "n", e.N)
	b = appendInteger(b, "startsAt", e.StartsAt)
	b = appendInteger(b, "endsAt", e.EndsAt)
	b = appendField(b, "weekly", &e.Weekly)
	b = appendField(b, "dealBudget7", &e.DealBudget7)
	b = appendField(b, "dealBudget21", &e.DealBudget21)
	b = appendField(b, "reserved7", &e.Reserved7)
	b = appendField(b, "reserved21", &e.Reserved21)
	b = appendField(b, "liquidityBudget", &e.LiquidityBudget)
	if r := e.Rates; r != nil {
		b = appendField(b, "rate7", &r.Rate7)
		b = appendField(b, "rate21", &r.Rate21)
		b = appendPrice(append(b, `,"priceUSDGPerSTKN":`...), &query.Price{Num: r.PriceUSDGPerSTKN.ToBig(), Den: big.NewInt(1e18)})
		b = appendInteger(b, "lenderShareBps", r.LenderShareBps)
	} else {
		b = append(b, `,"rate7":null,"rate21":null,"priceUSDGPerSTKN":null,"lenderShareBps":null`...)
	}
	b = appendField(b, "released", &e.Released)
	b = appendField(b, "rolledOver", &e.RolledOver)
	return append(b, '}')
}

func appendNullableEpoch(b []byte, e *topics.Epoch) []byte {
	if e == nil {
		return append(b, "null"...)
	}
	return appendEpoch(b, e)
}

func appendNullablePool(b []byte, p *query.PoolSummary) []byte {
	if p == nil {
		return append(b, "null"...)
	}
	b = httpapi.AppendHash(append(b, `{"poolId":`...), &p.ID)
	b = httpapi.AppendAddress(append(b, `,"currency0":`...), &p.Currency0)
	b = httpapi.AppendAddress(append(b, `,"currency1":`...), &p.Currency1)
	b = appendInteger(b, "fee", p.Fee)
	b = appendInteger(b, "tickSpacing", p.TickSpacing)
	b = appendField(b, "sqrtPriceX96", &p.SqrtPriceX96)
	b = appendInteger(b, "tick", p.Tick)
	b = appendField(b, "liquidity", &p.Liquidity)
	b = appendPrice(append(b, `,"priceSTKNinTKN":`...), &p.PriceSTKNinTKN)
	b = appendField(b, "totalWeight", &p.TotalWeight)
	b = appendField(b, "depthTKN", &p.DepthTKN)
	return append(b, '}')
}

func appendPoolOverview(b []byte, o *query.PoolOverview) []byte {
	b = appendNullablePool(append(b, `{"pool":`...), o.Pool)
	b = appendNullableEpoch(append(b, `,"epoch":`...), o.Epoch)
	b = appendField(b, "burnedThisWeek", o.BurnedThisWeek)
	b = appendList(append(b, `,"burns":`...), o.Burns, appendBurn)
	b = appendField(b, "emissionsRatePerSecond", o.EmissionsRatePerSecond)
	b = append(b, `,"budgets":`...)
	if e := o.Epoch; e != nil {
		b = appendBudget(append(b, `{"deal7":`...), "reserved", &e.DealBudget7, &e.Reserved7)
		b = appendBudget(append(b, `,"deal21":`...), "reserved", &e.DealBudget21, &e.Reserved21)
		b = appendBudget(append(b, `,"liquidity":`...), "released", &e.LiquidityBudget, &e.Released)
		b = append(b, '}')
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"floor":`...)
	if f := o.Floor; f != nil {
		b = appendInteger(append(b, '{'), "tick", f.Tick)
		b = appendPrice(append(b, `,"priceSTKNinTKN":`...), &f.PriceSTKNinTKN)
		b = append(b, '}')
	} else {
		b = append(b, "null"...)
	}
	return append(b, '}')
}

// appendBudget appends a budget, what of it is taken under that name, and the rest.
func appendBudget(b []byte, name string, budget, taken *uint256.Int) []byte {
	var available uint256.Int
	if taken.Lt(budget) {
		available.Sub(budget, taken)
	}
	b = appendField(append(b, '{'), "budget", budget)
	b = appendField(b, name, taken)
	b = appendField(b, "available", &available)
	return append(b, '}')
}

func appendBurn(b []byte, v *topics.Burn) []byte {
	b = appendInteger(append(b, '{'), "at", v.At)
	b = appendField(b, "usdgSpent", &v.USDGSpent)
	b = appendField(b, "tknBought", &v.TKNBought)
	b = appendField(b, "stknBurned", &v.STKNBurned)
	b = httpapi.AppendAddress(append(b, `,"caller":`...), &v.Caller)
	b = httpapi.AppendHash(append(b, `,"tx":`...), &v.Tx)
	return append(b, '}')
}

func appendStats(b []byte, s *query.Stats, now uint64) []byte {
	b = appendField(append(b, `{"tvl":{`...), "usdg", &s.TVL.USDG)
	b = append(b, `,"byLane":{`...)
	for lane := range s.TVL.ByLane {
		b = appendField(b, rules.LaneNames[lane], &s.TVL.ByLane[lane])
	}
	b = appendList(append(b, `},"byAsset":`...), s.TVL.ByAsset, func(b []byte, v *query.AssetValue) []byte {
		b = httpapi.AppendAddress(append(b, `{"token":`...), &v.Token)
		b = appendName(append(b, `,"lane":`...), rules.LaneNames[v.Lane])
		b = appendField(b, "raw", &v.Raw)
		return append(appendField(b, "usdg", v.USDG), '}')
	})
	b = appendList(append(b, `,"unpriced":`...), s.TVL.Unpriced, httpapi.AppendAddress)
	b = appendWindows(append(b, `},"fees":`...), &s.Fees)
	b = appendInteger(append(b, `,"deals":{`...), "total", s.Deals.Total)
	b = appendInteger(b, "active", s.Deals.Active)
	b = append(b, `,"byState":{`...)
	for state, n := range s.Deals.ByState {
		b = appendInteger(b, rules.DealStateNames[state], n)
	}
	b = appendWindows(append(b, `}},"volume":`...), &s.Volume)
	b = appendNullableInteger(append(b, `,"medians":{"costBps7d":`...), s.Medians.CostBps7d)
	b = appendNullableInteger(append(b, `,"costBps21d":`...), s.Medians.CostBps21d)
	b = appendNullableInteger(append(b, `,"timeToFundSeconds":`...), s.Medians.TimeToFundSeconds)
	b = appendField(append(b, `},"emissions":{`...), "ratePerSecond", s.Emissions.RatePerSecond)
	b = appendField(b, "releasedThisEpoch", s.Emissions.ReleasedThisEpoch)
	b = appendList(append(b, `},"priceHistory":`...), s.PriceHistory, func(b []byte, p *query.PricePoint) []byte {
		b = appendInteger(append(b, '{'), "t", p.T)
		b = appendPrice(append(b, `,"priceSTKNinTKN":`...), &p.PriceSTKNinTKN)
		b = appendPrice(append(b, `,"priceUSDGPerSTKN":`...), p.PriceUSDGPerSTKN)
		return append(b, '}')
	})
	return append(appendInteger(b, "asOf", now), '}')
}

func appendWindows(b []byte, w *query.Windows) []byte {
	b = appendField(append(b, '{'), "total", &w.Total)
	b = appendField(b, "last24h", &w.Last24h)
	b = appendField(b, "last7d", &w.Last7d)
	return append(b, '}')
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
