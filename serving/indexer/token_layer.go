package indexer

import (
	"context"
	"math/big"
	"strings"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// The answers about the token layer: epochs, rewards, the pool of sTKN and TKN, burns.

func (x *Indexer) tokenLayerRoutes() []httpapi.Route {
	return []httpapi.Route{
		x.read("/pool", x.pool),
		list(x, "burns", query.Burns, appendBurn),
		list(x, "epochs", query.Epochs, appendEpoch),
	}
}

func (x *Indexer) pool(ctx context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	answer, err := x.reader.Pool(ctx)
	if err != nil {
		return readError("the pool", err)
	}
	answered(x, res, &answer)
	res.Body = appendPoolOverview(res.Body, &answer.Value)
	return nil
}

func (x *Indexer) rewards(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	wallet := req.Path("wallet").Address()
	if err := req.Err(); err != nil {
		return err
	}
	answer, err := x.reader.Rewards(ctx, *wallet)
	if err != nil {
		return readError("rewards", err)
	}
	answered(x, res, &answer)
	r := &answer.Value
	b := appendList(append(res.Body, `{"drips":`...), r.Drips, appendDrip)
	b = appendField(b, "claimableNow", &r.ClaimableNow)
	b = appendField(b, "stillDripping", &r.StillDripping)
	b = appendNullableEpoch(append(b, `,"epoch":`...), r.Epoch)
	b = appendNullablePool(append(b, `,"pool":`...), r.Pool)
	b = appendField(b, "burnedThisWeek", r.BurnedThisWeek)
	res.Body = append(appendTruncated(b, r.MoreDrips), '}')
	return nil
}

func appendReward(b []byte, r *query.Reward) []byte {
	b = appendField(append(b, '{'), "total", &r.Granted)
	b = appendField(b, "lender", &r.LenderAmount)
	b = appendField(b, "borrower", &r.BorrowerAmount)
	b = appendInteger(b, "epoch", r.Epoch)
	b = appendBool(b, "budgetExhausted", r.BudgetExhausted)
	b = appendList(append(b, `,"drips":`...), r.Drips, appendDrip)
	return append(appendTruncated(b, r.Truncated), '}')
}

// dripSources are the texts of contracts.DripSource, in the order of its numbers.
var dripSources = func() (texts []string) {
	for _, name := range contracts.DripSourceNames {
		texts = append(texts, strings.ToLower(name))
	}
	return texts
}()

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
	b = appendField(b, "granted", &d.Granted)
	b = appendField(b, "total", &d.Total)
	b = appendField(b, "claimed", &d.Claimed)
	b = appendInteger(b, "start", d.Start)
	b = appendInteger(b, "length", d.Length)
	if d.CutAt == 0 {
		b = append(b, `,"cutAt":null`...)
	} else {
		b = appendInteger(b, "cutAt", d.CutAt)
	}
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
	return append(appendTruncated(b, o.Truncated), '}')
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
