package indexer

import (
	"context"
	"errors"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
)

func (x *Indexer) listings(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	q := query.ListingsQuery{
		Sort:  httpapi.Sort[query.Sort](req, query.SortNames),
		Lane:  httpapi.Enum[contracts.Lane](req.Query("lane"), contracts.LaneNames),
		Term:  req.Query("term").Seconds(),
		Asset: req.Query("asset").Address(),
	}
	q.Limit = req.Limit()
	q.After = req.After()
	if err := req.Err(); err != nil {
		return err
	}
	answer, err := x.reader.Listings(ctx, q)
	if err != nil {
		return readError("listings", err)
	}
	writeDeals(x, req, res, answer)
	return nil
}

func (x *Indexer) deals(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	q := query.DealsQuery{
		Wallet: req.Query("wallet").Address(),
		State:  httpapi.Enum[contracts.DealState](req.Query("state"), contracts.DealStateNames),
		Limit:  req.Limit(),
		After:  req.After(),
	}
	if err := req.Err(); err != nil {
		return err
	}
	answer, err := x.reader.Deals(ctx, q)
	if err != nil {
		return readError("deals", err)
	}
	writeDeals(x, req, res, answer)
	return nil
}

func writeDeals(x *Indexer, req *httpapi.Request, res *httpapi.Response, answer query.Answer[query.Page[query.DealWithBids]]) {
	writePage(x, req, res, "items", answer, appendDeal)
}

// writePage writes a page of a list; now is the timestamp of its block.
func writePage[T any](x *Indexer, req *httpapi.Request, res *httpapi.Response, key string, answer query.Answer[query.Page[T]], item func(b []byte, v *T, now uint64) []byte) {
	answered(x, res, &answer)
	b := appendName(append(res.Body, '{'), key)
	b = appendList(append(b, ':'), answer.Value.Items, func(b []byte, v *T) []byte { return item(b, v, answer.At.Timestamp) })
	b = req.AppendNextCursor(append(b, `,"nextCursor":`...), answer.Value.Next)
	res.Body = append(b, '}')
}

func (x *Indexer) deal(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	id := req.Path("id").Uint256()
	if err := req.Err(); err != nil {
		return err
	}
	answer, err := x.reader.DealWithReward(ctx, id)
	if errors.Is(err, query.ErrNotFound) {
		x.asOf(res.Header, answer.At)
		return &httpapi.Error{Code: dealNotFound, Message: "there is no deal " + id.Dec()}
	}
	if err != nil {
		return readError("deal "+id.Dec(), err)
	}
	answered(x, res, &answer)
	b := appendDeal(append(res.Body, `{"deal":`...), &answer.Value.DealWithBids, answer.At.Timestamp)
	b = appendList(append(b, `,"bids":`...), answer.Value.Bids, appendBid)
	b = append(b, `,"reward":`...)
	if r := answer.Value.Reward; r != nil {
		b = appendReward(b, r)
	} else {
		b = append(b, "null"...)
	}
	res.Body = append(appendTruncated(b, answer.Value.Truncated), '}')
	return nil
}

func (x *Indexer) assets(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	q := query.AssetsQuery{
		Lane:  httpapi.Enum[contracts.Lane](req.Query("lane"), contracts.LaneNames),
		Limit: req.Limit(),
		After: req.After(),
	}
	if err := req.Err(); err != nil {
		return err
	}
	answer, err := x.reader.Assets(ctx, q)
	if err != nil {
		return readError("assets", err)
	}
	writePage(x, req, res, "assets", answer, appendAsset)
	return nil
}

func (x *Indexer) assetDeals(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	token := req.Path("token").Address()
	q := query.AssetDealsQuery{Limit: req.Limit(), After: req.After()}
	if err := req.Err(); err != nil {
		return err
	}
	q.Token = *token
	answer, err := x.reader.AssetDeals(ctx, q)
	if errors.Is(err, query.ErrNotFound) {
		x.asOf(res.Header, answer.At)
		return &httpapi.Error{Code: assetNotFound, Message: "the registry has no asset " + token.Hex()}
	}
	if err != nil {
		return readError("deals of an asset", err)
	}
	writeDeals(x, req, res, answer)
	return nil
}
