package agent

import (
	"context"
	"math/big"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// Data read from the chain alone, at one block.

// Capabilities describe the supported actions and rules.
type Capabilities struct {
	Deployment struct {
		ChainID   uint64 `json:"chainId"`
		DealVault string `json:"dealVault"`
		Registry  string `json:"registry"`
		USDG      string `json:"usdg"`
	} `json:"deployment"`
	SupportedTerms []uint32        `json:"supportedTerms"`
	Grace          uint64          `json:"grace"`
	Paused         bool            `json:"paused"`
	USDGPaused     *bool           `json:"usdgPaused"`
	USDGDecimals   uint8           `json:"usdgDecimals"`
	FeeBps         uint16          `json:"feeBps"`
	Settlement     SettlementRules `json:"settlementRules"`
	Actions        []string        `json:"actions"`
	Evidence       Evidence        `json:"evidence"`
}

// SettlementRules are the rules of settlement in plain language.
type SettlementRules struct {
	Funding   string `json:"funding"`
	Repayment string `json:"repayment"`
	Claim     string `json:"claim"`
	Fee       string `json:"fee"`
	Credits   string `json:"credits"`
	Pause     string `json:"pause"`
}

var settlementRules = SettlementRules{
	Funding:   "The lender pays the asking price (minPrice), or a bid's price that the borrower accepts. The funding names termsHash: the funding is refused if the terms were edited in the meantime.",
	Repayment: "The borrower reclaims the collateral for the cap, whatever the price was, until fundedAt + term + grace, that second included.",
	Claim:     "The lender may claim the collateral after fundedAt + term + grace. There is no liquidation before, and no other remedy.",
	Fee:       "The market keeps price * feeBps / 10000, rounded down, of the proceeds; the cap bears no fee.",
	Credits:   "Proceeds, repayments, refunds and collateral are credits in the vault until their owner withdraws them.",
	Pause:     "A paused vault refuses to list, fund, bid and accept. Reclaiming, claiming, cancelling, withdrawing bids and credits go on.",
}

func (a *Agent) capabilities(ctx context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	head, err := a.head()
	if err != nil {
		return err
	}
	m, dep := a.contracts, &a.contracts.dep
	v, err := readAt(ctx, a, head, readCapabilities, func(r *reads, v *Capabilities) {
		v.Settlement, v.Actions = settlementRules, actionNames()
		v.Deployment.ChainID, v.Deployment.DealVault, v.Deployment.Registry, v.Deployment.USDG = dep.ChainID, lower(dep.DealVault), lower(dep.AssetRegistry), lower(dep.USDG)
		r.call(dep.DealVault, &m.vault, "supportedTerms", func(x []any) error { v.SupportedTerms = x[0].([]uint32); return nil })
		r.call(dep.DealVault, &m.vault, "GRACE", func(x []any) error { v.Grace = x[0].(*big.Int).Uint64(); return nil })
		r.call(dep.DealVault, &m.vault, "paused", func(x []any) error { v.Paused = x[0].(bool); return nil })
		r.call(dep.DealVault, &m.vault, "feeBps", func(x []any) error { v.FeeBps = x[0].(uint16); return nil })
		r.call(dep.USDG, &m.token, "decimals", func(x []any) error { v.USDGDecimals = x[0].(uint8); return nil })
		r.probe(dep.USDG, &m.token, "paused", func(x []any) { v.USDGPaused = asBool(x) })
	})
	if err != nil {
		return err
	}
	if err := a.fresh(head); err != nil {
		return err
	}
	v.Evidence = a.evidence(head)
	return a.writeDirect(res, head, v.Evidence, v)
}

func asBool(values []any) *bool {
	if values == nil {
		return nil
	}
	b := values[0].(bool)
	return &b
}

// DirectDeal is a deal read from the chain, with derived values.
type DirectDeal struct {
	ID              string     `json:"id"`
	Borrower        string     `json:"borrower"`
	Kind            string     `json:"kind"`
	Lane            string     `json:"lane"`
	Token           string     `json:"token"`
	AmountOrTokenID string     `json:"amountOrTokenId"`
	Cap             string     `json:"cap"`
	MinPrice        string     `json:"minPrice"`
	Term            uint32     `json:"term"`
	ListingExpiry   uint64     `json:"listingExpiry"`
	ListedAt        uint64     `json:"listedAt"`
	FeeBps          uint16     `json:"feeBps"`
	State           string     `json:"state"`
	Lender          *string    `json:"lender"`
	Price           *string    `json:"price"`
	Fee             *string    `json:"fee"`
	FundedAt        *uint64    `json:"fundedAt"`
	Expiry          *uint64    `json:"expiry"`
	GraceEnd        *uint64    `json:"graceEnd"`
	TermsHash       string     `json:"termsHash"`
	Fundable        bool       `json:"fundable"`
	Repayment       Repayment  `json:"repayment"`
	Claim           ClaimState `json:"claim"`
	Evidence        Evidence   `json:"evidence"`
}

// Repayment is the gross arithmetic of a deal in raw USDG, without gas and the value of the collateral. The
// price is the funded price, or the asking price before funding.
type Repayment struct {
	Price       string `json:"price"`
	Fee         string `json:"fee"`         // the market's share of the price
	Proceeds    string `json:"proceeds"`    // the borrower's share of the price
	Cap         string `json:"cap"`         // the borrower's repayment
	GrossReturn string `json:"grossReturn"` // cap - price: the lender's, if repaid
	CostBps     string `json:"costBps"`     // (cap - price) * 10000 / price
}

// ClaimState reports whether the lender may claim in a block after that of the evidence.
type ClaimState struct {
	Eligible      bool    `json:"eligible"`
	EligibleAfter *uint64 `json:"eligibleAfter"` // a block's timestamp must exceed it; null until funded
	Reason        string  `json:"reason"`
}

func (a *Agent) deal(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	d, head, err := a.readDeal(ctx, req)
	if err != nil {
		return err
	}
	v := directDeal(d, head.Timestamp)
	v.Evidence = a.evidence(head)
	return a.writeDirect(res, head, v.Evidence, v)
}

// readDeal reads the deal in the path from the chain, at its head.
func (a *Agent) readDeal(ctx context.Context, req *httpapi.Request) (d *Deal, head chain.Block, err error) {
	id := req.Path("dealId").Uint256()
	if err := req.Err(); err != nil {
		return nil, head, err
	}
	if head, err = a.head(); err != nil {
		return nil, head, err
	}
	if d, err = readAt(ctx, a, head, "deal "+id.Dec(), func(r *reads, d **Deal) {
		a.contracts.deal(r, id.ToBig(), func(found *Deal) { *d = found })
	}); err != nil {
		return nil, head, err
	}
	if err := a.fresh(head); err != nil {
		return nil, head, err
	}
	if d == nil {
		return nil, head, refuse(dealNotFound, "there is no deal "+id.Dec())
	}
	return d, head, nil
}

func directDeal(d *Deal, now uint64) DirectDeal {
	v := DirectDeal{
		ID: decimal(d.ID), Borrower: lower(d.Borrower), Kind: contracts.KindNames[d.Kind], Lane: contracts.LaneNames[d.Lane], Token: lower(d.Token),
		AmountOrTokenID: decimal(d.AmountOrTokenID), Cap: decimal(d.Cap), MinPrice: decimal(d.MinPrice), Term: d.Term,
		ListingExpiry: d.ListingExpiry, ListedAt: d.ListedAt, FeeBps: d.FeeBps, State: contracts.DealStateNames[d.State], TermsHash: d.TermsHash.Hex(),
		Fundable:  d.State == contracts.DealListedState && !d.listingOver(now),
		Repayment: repayment(d), Claim: claimState(d, now),
	}
	if d.FundedAt != 0 {
		lender, price, fee := lower(d.Lender), decimal(d.Price), decimal(d.Fee)
		v.Lender, v.Price, v.Fee = &lender, &price, &fee
		funded, expiry, graceEnd := d.FundedAt, d.FundedAt+uint64(d.Term), d.graceEnd()
		v.FundedAt, v.Expiry, v.GraceEnd = &funded, &expiry, &graceEnd
	}
	return v
}

func (d *Deal) listingOver(now uint64) bool { return rules.ListingExpired(d.ListingExpiry, now) }

func (d *Deal) feeOf(price *big.Int) *big.Int {
	fee := new(big.Int).Mul(price, big.NewInt(int64(d.FeeBps)))
	return fee.Quo(fee, big.NewInt(10_000))
}

func repayment(d *Deal) Repayment {
	price, fee := d.MinPrice, d.feeOf(d.MinPrice)
	if d.FundedAt != 0 {
		price, fee = d.Price, d.Fee
	}
	gain := new(big.Int).Sub(d.Cap, price)
	cost := rules.CostBps(uint256.MustFromBig(d.Cap), uint256.MustFromBig(price)) // the contracts' numbers have at most 256 bits
	return Repayment{
		Price: decimal(price), Fee: decimal(fee), Proceeds: decimal(new(big.Int).Sub(price, fee)), Cap: decimal(d.Cap),
		GrossReturn: decimal(gain), CostBps: cost.Dec(),
	}
}

func claimState(d *Deal, now uint64) ClaimState {
	if d.State != contracts.DealFundedState {
		return ClaimState{Reason: "only a FUNDED deal can be claimed; this one is " + contracts.DealStateNames[d.State]}
	}
	end := d.graceEnd()
	if now <= end {
		return ClaimState{EligibleAfter: &end, Reason: "term and grace are not over"}
	}
	return ClaimState{Eligible: true, EligibleAfter: &end, Reason: "term and grace are over, and the borrower did not reclaim"}
}
