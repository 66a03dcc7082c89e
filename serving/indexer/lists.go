package indexer

import (
	"context"
	"errors"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// The lists of which other answers have only a part.

func (x *Indexer) bids(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	return writeOfDeal(ctx, x, req, res, "bids", x.reader.Bids, appendBid)
}

func (x *Indexer) dealDrips(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	return writeOfDeal(ctx, x, req, res, "drips", x.reader.DealDrips, appendDrip)
}

// writeOfDeal writes a page of what belongs to a deal.
func writeOfDeal[T any](
	ctx context.Context, x *Indexer, req *httpapi.Request, res *httpapi.Response, key string,
	list func(context.Context, query.DealListQuery) (query.Answer[query.Page[T]], error), item func([]byte, *T) []byte,
) error {
	id := req.Path("id").Uint256()
	q := query.DealListQuery{Limit: req.Limit(), After: req.After()}
	if err := req.Err(); err != nil {
		return err
	}
	q.Deal = *id
	answer, err := list(ctx, q)
	if errors.Is(err, query.ErrNotFound) {
		x.asOf(res.Header, answer.At)
		return &httpapi.Error{Code: dealNotFound, Message: "there is no deal " + id.Dec()}
	}
	if err != nil {
		return readError(key+" of deal "+id.Dec(), err)
	}
	writePage(x, req, res, key, answer, func(b []byte, v *T, _ uint64) []byte { return item(b, v) })
	return nil
}

func (x *Indexer) walletBids(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	return writeOfWallet(ctx, x, req, res, "bids", x.reader.WalletBids, appendBid)
}

func (x *Indexer) walletBalances(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	return writeOfWallet(ctx, x, req, res, "balances", x.reader.WalletBalances, appendBalance)
}

func (x *Indexer) walletDrips(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	return writeOfWallet(ctx, x, req, res, "drips", x.reader.WalletDrips, appendDrip)
}

// writeOfWallet writes a page of a list of a wallet.
func writeOfWallet[T any](
	ctx context.Context, x *Indexer, req *httpapi.Request, res *httpapi.Response, key string,
	list func(context.Context, query.WalletListQuery) (query.Answer[query.Page[T]], error), item func([]byte, *T) []byte,
) error {
	wallet := req.Path("wallet").Address()
	q := query.WalletListQuery{Limit: req.Limit(), After: req.After()}
	if err := req.Err(); err != nil {
		return err
	}
	q.Wallet = *wallet
	answer, err := list(ctx, q)
	if err != nil {
		return readError(key+" of a wallet", err)
	}
	writePage(x, req, res, key, answer, func(b []byte, v *T, _ uint64) []byte { return item(b, v) })
	return nil
}

// list is a route that answers with the pages of a list, under its name.
func list[T any](x *Indexer, name string, of query.List[T], item func([]byte, *T) []byte) httpapi.Route {
	return x.read("/"+name, func(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
		q := query.PageQuery{Limit: req.Limit(), After: req.After()}
		if err := req.Err(); err != nil {
			return err
		}
		answer, err := of.Page(ctx, x.reader, q)
		if err != nil {
			return readError(name, err)
		}
		writePage(x, req, res, name, answer, func(b []byte, v *T, _ uint64) []byte { return item(b, v) })
		return nil
	}, "limit", "cursor")
}
