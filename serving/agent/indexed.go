package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// The limits of lists.
const (
	defaultLimit = 25
	maxLimit     = 100
)

// page is a page of an indexed list.
type page[T any] struct {
	Items      []T             `json:"items"`
	NextCursor json.RawMessage `json:"nextCursor"`
	Checkpoint Checkpoint      `json:"checkpoint"`
	Evidence   Evidence        `json:"evidence"`
}

// assets lists the stocks that may be collateral. Assets that the registry does not allow are left out, so a
// page may be empty and still have a cursor.
func (a *Agent) assets(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	lane := contracts.LaneStock
	q := query.AssetsQuery{Lane: &lane, Limit: req.LimitWithin(defaultLimit, maxLimit), After: req.After()}
	if err := req.Err(); err != nil {
		return inputError(err)
	}
	head, err := a.ground(ctx)
	if err != nil {
		return err
	}
	answer, err := a.index.Assets(ctx, q)
	if err != nil {
		return indexError(err)
	}
	return writePage(ctx, a, req, res, head, answer.At, answer.Value.Next, answer.Value.Items, func(v *topics.Asset) (Asset, bool) {
		return asset(v, answer.At.Timestamp), v.Allowed
	})
}

// listings lists the open listings of stocks.
func (a *Agent) listings(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	lane := contracts.LaneStock
	q := query.ListingsQuery{
		Sort: httpapi.Sort[query.Sort](req, query.SortNames), Lane: &lane,
		Term: req.Query("term").Seconds(), Asset: req.Query("asset").Address(),
	}
	if err := req.Err(); err == nil && q.Term != nil && !supported(*q.Term) {
		return invalid(fmt.Sprintf(`"term" must be %d or %d`, contracts.ShortTerm, contracts.LongTerm))
	}
	q.Limit, q.After = req.LimitWithin(defaultLimit, maxLimit), req.After()
	if err := req.Err(); err != nil {
		return inputError(err)
	}
	head, err := a.ground(ctx)
	if err != nil {
		return err
	}
	answer, err := a.index.Listings(ctx, q)
	if err != nil {
		return indexError(err)
	}
	return writePage(ctx, a, req, res, head, answer.At, answer.Value.Next, answer.Value.Items, func(d *query.DealWithBids) (IndexedDeal, bool) {
		return indexedDeal(d), supported(d.Deal.Term)
	})
}

// terms are those in the specification of /v1/listings. The vault has the same ones; capabilities reads them
// there.
var terms = []uint32{contracts.ShortTerm, contracts.LongTerm}

func supported(term uint32) bool { return term == terms[0] || term == terms[1] }

func writePage[In, Out any](ctx context.Context, a *Agent, req *httpapi.Request, res *httpapi.Response, head chain.Block, at topics.BlockRef, next []byte, items []In, show func(*In) (Out, bool)) error {
	checkpoint, err := a.checkpoint(ctx, head, at)
	if err != nil {
		return err
	}
	p := page[Out]{Items: []Out{}, NextCursor: req.AppendNextCursor(nil, next), Checkpoint: checkpoint}
	for i := range items {
		if v, ok := show(&items[i]); ok {
			p.Items = append(p.Items, v)
		}
	}
	p.Evidence = a.evidence(head)
	return a.writeIndexed(res, head, at, p.Evidence, p)
}

// Portfolio is everything that a wallet has in the market.
type Portfolio struct {
	Wallet     string        `json:"wallet"`
	AsBorrower []IndexedDeal `json:"asBorrower"`
	AsLender   []IndexedDeal `json:"asLender"`
	Bids       []IndexedBid  `json:"bids"`
	Balances   []Balance     `json:"balances"`
	Summary    Summary       `json:"summary"`
	USDGCredit string        `json:"usdgCredit"` // as the vault has it at the block of the evidence
	Truncated  bool          `json:"truncated"`  // a list has more than query.MaxPortfolio
	Checkpoint Checkpoint    `json:"checkpoint"`
	Evidence   Evidence      `json:"evidence"`
}

// Balance is a credit of the vault.
type Balance struct {
	Account string `json:"account"`
	Asset   string `json:"asset"`
	Amount  string `json:"amount"`
	Kind    string `json:"kind"`
}

// Summary sums up all deals of a wallet, in raw USDG.
type Summary struct {
	ReceivedAlready string `json:"receivedAlready"`
	StillAtStake    string `json:"stillAtStake"`
	PaidOut         string `json:"paidOut"`
	AwaitingExpiry  string `json:"awaitingExpiry"`
}

// portfolio reads a wallet's portfolio from the index, and its USDG credit from the chain.
func (a *Agent) portfolio(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	wallet := req.Path("wallet").Address()
	if err := req.Err(); err != nil {
		return err
	}
	head, err := a.head()
	if err != nil {
		return err
	}
	credit, err := readAt(ctx, a, head, "credit "+wallet.Hex(), func(r *reads, credit **big.Int) {
		r.call(a.contracts.dep.DealVault, &a.contracts.vault, "credits", func(v []any) error {
			*credit = v[0].(*big.Int)
			return nil
		}, *wallet, a.contracts.dep.USDG)
	})
	if err != nil {
		return err
	}
	if err := a.fresh(head); err != nil {
		return err
	}
	answer, err := a.index.Portfolio(ctx, *wallet)
	if err != nil {
		return indexError(err)
	}
	checkpoint, err := a.checkpoint(ctx, head, answer.At)
	if err != nil {
		return err
	}
	p := &answer.Value
	deals := func(all []query.DealWithBids) []IndexedDeal {
		shown := make([]IndexedDeal, len(all))
		for i := range all {
			shown[i] = indexedDeal(&all[i])
		}
		return shown
	}
	v := Portfolio{
		Wallet: lower(*wallet), AsBorrower: deals(p.AsBorrower), AsLender: deals(p.AsLender),
		Bids: make([]IndexedBid, len(p.Bids)), Balances: make([]Balance, len(p.Balances)),
		Summary: Summary{
			ReceivedAlready: p.Summary.ReceivedAlready.Dec(), StillAtStake: p.Summary.StillAtStake.Dec(),
			PaidOut: p.Summary.PaidOut.Dec(), AwaitingExpiry: p.Summary.AwaitingExpiry.Dec(),
		},
		USDGCredit: decimal(credit), Truncated: p.Truncated, Checkpoint: checkpoint, Evidence: a.evidence(head),
	}
	for i := range p.Bids {
		v.Bids[i] = indexedBid(&p.Bids[i])
	}
	for i, b := range p.Balances {
		v.Balances[i] = Balance{Account: lower(b.Account), Asset: lower(b.Asset), Amount: b.Amount.Dec(), Kind: contracts.BalanceKindNames[b.Kind]}
	}
	return a.writeIndexed(res, head, answer.At, v.Evidence, v)
}
