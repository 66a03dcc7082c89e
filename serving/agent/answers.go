package agent

import (
	"encoding/json"
	"math/big"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

func lower(a common.Address) string { return strings.ToLower(a.Hex()) }

func decimal(n *big.Int) string { return n.String() }

// write writes a value as JSON.
func write(res *httpapi.Response, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	res.Body = append(res.Body, body...)
	return nil
}

// writeDirect writes an answer from the chain at its head. It answers the same request again for as long as that is the
// head, within the second of its evidence.
func (a *Agent) writeDirect(res *httpapi.Response, head chain.Block, evidence Evidence, v any) error {
	res.FreshWhile = func() bool {
		now, err := a.head()
		return err == nil && now.Hash == head.Hash && a.now().Unix() == evidence.ObservedAt && a.known()
	}
	return write(res, v)
}

// writeIndexed writes an answer from the index too, for as long as that stays where it was.
func (a *Agent) writeIndexed(res *httpapi.Response, head chain.Block, at topics.BlockRef, evidence Evidence, v any) error {
	err := a.writeDirect(res, head, evidence, v)
	same := res.FreshWhile
	res.FreshWhile = func() bool { return same() && a.index.Current(at, nil) }
	return err
}

// IndexedDeal is a deal from the index.
type IndexedDeal struct {
	ID              string      `json:"id"`
	Borrower        string      `json:"borrower"`
	Kind            string      `json:"kind"`
	Token           string      `json:"token"`
	AmountOrTokenID string      `json:"amountOrTokenId"`
	Cap             string      `json:"cap"`
	Term            uint32      `json:"term"`
	ListingExpiry   uint64      `json:"listingExpiry"`
	MinPrice        string      `json:"minPrice"`
	FeeBps          uint16      `json:"feeBps"`
	TermsHash       string      `json:"termsHash"`
	Lender          *string     `json:"lender"`
	Price           *string     `json:"price"`
	Fee             *string     `json:"fee"`
	FundedAt        *uint64     `json:"fundedAt"`
	Expiry          *uint64     `json:"expiry"`
	GraceEnd        *uint64     `json:"graceEnd"`
	State           string      `json:"state"`
	Lane            string      `json:"lane"`
	ListedAt        uint64      `json:"listedAt"`
	OpenBidCount    uint64      `json:"openBidCount"`
	BestBid         *IndexedBid `json:"bestBid"`
}

// IndexedBid is a bid from the index.
type IndexedBid struct {
	ID        string `json:"id"`
	DealID    string `json:"dealId"`
	Lender    string `json:"lender"`
	Price     string `json:"price"`
	Expiry    uint64 `json:"expiry"`
	State     string `json:"state"`
	PlacedAt  uint64 `json:"placedAt"`
	TermsHash string `json:"termsHash"`
}

// indexedDeal converts a deal with a summary of its bids.
func indexedDeal(found *query.DealWithBids) IndexedDeal {
	d := &found.Deal
	v := IndexedDeal{
		ID: d.ID.Dec(), Borrower: lower(d.Borrower), Kind: contracts.KindNames[d.Kind], Token: lower(d.Token),
		AmountOrTokenID: d.AmountOrTokenID.Dec(), Cap: d.Cap.Dec(), Term: d.Term, ListingExpiry: d.ListingExpiry,
		MinPrice: d.MinPrice.Dec(), FeeBps: d.FeeBps, TermsHash: d.TermsHash.Hex(), State: contracts.DealStateNames[d.State],
		Lane: contracts.LaneNames[d.Lane], ListedAt: d.ListedAt,
	}
	if f := d.Funding; f != nil {
		lender, price, fee := lower(f.Lender), f.Price.Dec(), f.Fee.Dec()
		v.Lender, v.Price, v.Fee = &lender, &price, &fee
		v.FundedAt, v.Expiry, v.GraceEnd = &f.FundedAt, &f.Expiry, &f.GraceEnd
	}
	v.OpenBidCount = found.Acceptable.Count
	if best := found.Acceptable.Best; best != nil {
		shown := indexedBid(best)
		v.BestBid = &shown
	}
	return v
}

func indexedBid(b *topics.Bid) IndexedBid {
	return IndexedBid{
		ID: b.ID.Dec(), DealID: b.DealID.Dec(), Lender: lower(b.Lender), Price: b.Price.Dec(), Expiry: b.Expiry,
		State: contracts.BidStateNames[b.State], PlacedAt: b.PlacedAt, TermsHash: b.TermsHash.Hex(),
	}
}

// Asset is a token of the registry.
type Asset struct {
	Token             string  `json:"token"`
	Symbol            string  `json:"symbol"`
	Name              string  `json:"name"`
	Decimals          uint8   `json:"decimals"`
	Lane              string  `json:"lane"`
	Allowed           bool    `json:"allowed"`
	MinAmount         string  `json:"minAmount"`
	MaxDealRaw        string  `json:"maxDealRaw"`
	MaxOpenRaw        string  `json:"maxOpenRaw"`
	OpenRaw           string  `json:"openRaw"`
	UIMultiplier      *string `json:"uiMultiplier"`
	PendingMultiplier *string `json:"pendingMultiplier"`
	EffectiveAt       *uint64 `json:"effectiveAt"`
	Paused            *bool   `json:"paused"`
}

// asset converts an asset as of a time: no event marks the moment when an announced multiplier takes effect.
func asset(a *topics.Asset, now uint64) Asset {
	current, pending := rules.Multipliers(a, now)
	return Asset{
		Token: lower(a.Token), Symbol: a.Symbol, Name: a.Name, Decimals: a.Decimals, Lane: contracts.LaneNames[a.Lane], Allowed: a.Allowed,
		MinAmount: a.MinAmount.Dec(), MaxDealRaw: a.MaxDealRaw.Dec(), MaxOpenRaw: a.MaxOpenRaw.Dec(), OpenRaw: a.OpenRaw.Dec(),
		UIMultiplier: nullable(current), PendingMultiplier: nullable(pending), EffectiveAt: a.EffectiveAt, Paused: a.Paused,
	}
}

func nullable(n *uint256.Int) *string {
	if n == nil {
		return nil
	}
	text := n.Dec()
	return &text
}
