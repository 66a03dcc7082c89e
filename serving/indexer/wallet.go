package indexer

import (
	"context"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// Responses about one wallet.

func (x *Indexer) portfolio(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	wallet := req.Path("wallet").Address()
	if err := req.Err(); err != nil {
		return err
	}
	answer, err := x.reader.Portfolio(ctx, *wallet)
	if err != nil {
		return readError("a portfolio", err)
	}
	answered(x, res, &answer)
	p := &answer.Value
	deal := func(b []byte, d *query.DealWithBids) []byte { return appendDeal(b, d, answer.At.Timestamp) }
	b := appendList(append(res.Body, `{"asBorrower":`...), p.AsBorrower, deal)
	b = appendList(append(b, `,"asLender":`...), p.AsLender, deal)
	b = appendList(append(b, `,"bids":`...), p.Bids, appendBid)
	b = appendList(append(b, `,"balances":`...), p.Balances, appendBalance)
	b = appendList(append(b, `,"drips":`...), p.Drips, appendDrip)
	b = appendField(append(b, `,"summary":{`...), "receivedAlready", &p.Summary.ReceivedAlready)
	b = appendField(b, "stillAtStake", &p.Summary.StillAtStake)
	b = appendField(b, "paidOut", &p.Summary.PaidOut)
	b = appendField(b, "awaitingExpiry", &p.Summary.AwaitingExpiry)
	res.Body = append(appendTruncated(append(b, '}'), p.Truncated), '}')
	return nil
}

// appendTruncated appends that a list was truncated; a complete response has no such field.
func appendTruncated(b []byte, truncated bool) []byte {
	if !truncated {
		return b
	}
	return appendBool(b, "truncated", true)
}

func (x *Indexer) stakes(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	wallet := req.Path("wallet").Address()
	q := query.StakesQuery{Limit: req.Limit(), After: req.After()}
	if err := req.Err(); err != nil {
		return err
	}
	q.Owner = *wallet
	answer, err := x.reader.Stakes(ctx, q)
	if err != nil {
		return readError("staked positions", err)
	}
	writePage(x, req, res, "positions", answer, appendStake)
	return nil
}

func (x *Indexer) positions(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	wallet := req.Path("address").Address()
	q := query.PositionsQuery{Limit: req.Limit(), After: req.After()}
	if err := req.Err(); err != nil {
		return err
	}
	q.Owner = *wallet
	answer, err := x.reader.Positions(ctx, q)
	if err != nil {
		return readError("positions", err)
	}
	writePage(x, req, res, "positions", answer, appendPosition)
	return nil
}

func appendBalance(b []byte, v *topics.Balance) []byte {
	b = httpapi.AppendAddress(append(b, `{"account":`...), &v.Account)
	b = httpapi.AppendAddress(append(b, `,"asset":`...), &v.Asset)
	b = appendField(b, "amount", &v.Amount)
	b = appendName(append(b, `,"kind":`...), contracts.BalanceKindNames[v.Kind])
	return append(b, '}')
}

func appendStake(b []byte, s *query.Stake, _ uint64) []byte {
	b = appendField(append(b, '{'), "tokenId", &s.TokenID)
	b = httpapi.AppendAddress(append(b, `,"owner":`...), &s.Owner)
	b = appendInteger(b, "tickLower", s.TickLower)
	b = appendInteger(b, "tickUpper", s.TickUpper)
	b = appendField(b, "liquidity", &s.Liquidity)
	b = appendField(b, "weight", &s.Weight)
	b = appendBool(b, "inRange", s.InRangeNow)
	b = appendField(b, "valueTKN", &s.ValueTKN)
	b = appendField(b, "emissionsEarned", &s.EmissionsEarned)
	b = appendField(b, "creatorFeeEarned", &s.CreatorFeeEarned)
	b = appendInteger(b, "lastCheckpoint", s.LastCheckpoint)
	b = appendBool(b, "isSeed", s.IsSeed)
	return append(b, '}')
}

func appendPosition(b []byte, p *query.Position, _ uint64) []byte {
	b = appendField(append(b, '{'), "tokenId", &p.TokenID)
	b = httpapi.AppendHash(append(b, `,"poolId":`...), &p.PoolID)
	b = httpapi.AppendAddress(append(b, `,"token0":`...), &p.Currency0)
	b = httpapi.AppendAddress(append(b, `,"token1":`...), &p.Currency1)
	b = appendInteger(b, "fee", p.Fee)
	b = appendInteger(b, "tickLower", p.TickLower)
	b = appendInteger(b, "tickUpper", p.TickUpper)
	b = appendField(b, "liquidity", &p.Liquidity)
	b = appendBool(b, "inRange", p.InRange)
	b = appendField(b, "amount0", &p.Amount0)
	b = appendField(b, "amount1", &p.Amount1)
	b = appendBool(b, "allowed", p.Refusal == query.RefusalNone)
	b = append(b, `,"reason":`...)
	if p.Refusal == query.RefusalNone {
		b = append(b, "null"...)
	} else {
		b = appendName(b, string(p.Refusal))
	}
	return append(b, '}')
}
