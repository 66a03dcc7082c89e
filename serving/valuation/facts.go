package valuation

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// factsBody is the chain's facts about a token. An unknown fact is null, and named in Unknown.
type factsBody struct {
	Token           string      `json:"token"`
	MarketCapUSDG   *string     `json:"marketCapUSDG"`
	MedianCap7dUSDG *string     `json:"marketCapMedian7dUSDG"`
	Pool            *string     `json:"pool"`
	Pair            *string     `json:"pair"`
	AgeSeconds      *uint64     `json:"ageSeconds"`
	DepthUSDG       *string     `json:"depthUSDG"`
	LockedBps       *int64      `json:"lockedBps"`
	Holders         *uint64     `json:"holders"`
	TopTenBps       *int64      `json:"topTenBps"`
	CreatorBps      *int64      `json:"creatorBps"`
	Volume24hUSDG   *string     `json:"volume24hUSDG"`
	Drawdown7dBps   *int64      `json:"drawdown7dBps"`
	Checks          *checksBody `json:"checks"`
	Eligible        bool        `json:"eligible"`
	ListingNote     string      `json:"listingNote"`
	Unknown         []string    `json:"unknown"`
	Source          sourceBody  `json:"source"`
	At              uint64      `json:"at"`

	holdersReason string // why the holders or the creator's share are unknown, if there is a specific reason
}

// checksBody is what a token's code allows others to do. A check that was not made is null.
type checksBody struct {
	Mint      *bool `json:"mint"`
	Pause     *bool `json:"pause"`
	Blacklist *bool `json:"blacklist"`
	Owner     *bool `json:"owner"`
	Proxy     *bool `json:"proxy"`
	Sellable  *bool `json:"sellable"`
}

func (s *Service) assetFacts(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	st, token, err := s.token(ctx, req, res)
	if err != nil {
		return err
	}
	b := factsBody{Token: lower(token), Unknown: []string{}, Source: st.source(nil), At: st.at.Timestamp}
	q, err := st.reference(token)
	if err != nil {
		r, ok := errors.AsType[*refusal](err)
		if !ok {
			return s.refused(err)
		}
		b.ListingNote = "no price now: " + r.message
		q = &quoted{}
	}
	facts, err := s.chain.contractFacts(ctx, st, token, q.pools())
	if err != nil {
		return s.refused(err)
	}
	b.Checks = facts.checks
	b.priced(st, token, q, facts.supply)
	if b.LockedBps, err = s.lockedBps(ctx, st, token, q.pools()); err != nil {
		return s.refused(err)
	}
	if err = s.held(ctx, st, token, q, facts.supply, &b); err != nil {
		return s.refused(err)
	}
	b.judge()
	return s.answer(res, st, &b)
}

// priced fills in the facts that follow from the pools.
func (b *factsBody) priced(st *state, token common.Address, q *quoted, supply *big.Int) {
	if len(q.pools()) == 0 {
		return
	}
	b.Source = st.source(q.pools())
	first := q.pools()[0]
	pool := first.ID.Hex()
	against, _ := first.other(token)
	pair := lower(against)
	b.Pool, b.Pair = &pool, &pair
	inUSDG := par
	if against != st.cfg.Deployment.USDG {
		own, err := first.referenceOf(token)
		if err != nil {
			return
		}
		inUSDG = over(q.price, own)
	}
	b.DepthUSDG = new(worth(first.depthIn(against), inUSDG).String())
	traded := first.Volume24h[0]
	if against == first.Currency1 {
		traded = first.Volume24h[1]
	}
	b.Volume24hUSDG = new(worth(traded.ToBig(), inUSDG).String())
	if first.InitializedAt > 0 && first.InitializedAt <= st.at.Timestamp {
		b.AgeSeconds = new(st.at.Timestamp - first.InitializedAt)
	}
	if supply != nil {
		now := worth(supply, q.price).String()
		b.MarketCapUSDG = &now
	}
	series := st.series(token, q.pools())
	if len(series) == 0 {
		return
	}
	hours := len(series)
	series = slices.DeleteFunc(series, func(of level) bool { return of.empty || of.brief }) // anyone can set the price of a moment
	if 2*len(series) < hours {
		return // the price is unknown for most of the time
	}
	lows, top := make([]float64, len(series)), series[0].high
	for i, of := range series {
		lows[i], top = of.low, max(top, of.high)
	}
	drop := int64((1 - pow(lows[len(lows)-1]-top)) * bpsOfAll)
	b.Drawdown7dBps = &drop
	if supply != nil {
		slices.Sort(lows)
		middle := lows[(len(lows)-1)/2]
		if root, err := ammv4.SqrtPriceAtTick(int32(middle)); err == nil {
			median := worth(supply, priceAt(root)).String()
			b.MedianCap7dUSDG = &median
		}
	}
}

// judge names the unknown facts: a token with one is not eligible.
func (b *factsBody) judge() {
	known := []struct {
		name string
		ok   bool
	}{
		{"marketCapUSDG", b.MarketCapUSDG != nil},
		{"marketCapMedian7dUSDG", b.MedianCap7dUSDG != nil},
		{"pool", b.Pool != nil},
		{"pair", b.Pair != nil},
		{"ageSeconds", b.AgeSeconds != nil},
		{"depthUSDG", b.DepthUSDG != nil},
		{"lockedBps", b.LockedBps != nil},
		{"holders", b.Holders != nil},
		{"topTenBps", b.TopTenBps != nil},
		{"creatorBps", b.CreatorBps != nil},
		{"volume24hUSDG", b.Volume24hUSDG != nil},
		{"drawdown7dBps", b.Drawdown7dBps != nil},
		{"checks", b.Checks != nil},
		{"checks.sellable", b.Checks != nil && b.Checks.Sellable != nil},
	}
	for _, f := range known {
		if !f.ok {
			b.Unknown = append(b.Unknown, f.name)
		}
	}
	switch {
	case b.ListingNote != "":
	case len(b.Unknown) > 0:
		b.ListingNote = fmt.Sprintf("%d facts are unknown and count as bad", len(b.Unknown))
		if b.holdersReason != "" {
			b.ListingNote += "; " + b.holdersReason
		}
	case *b.Checks.Mint || *b.Checks.Blacklist || *b.Checks.Proxy:
		b.ListingNote = "someone can mint, freeze or replace the token"
	case !*b.Checks.Sellable:
		b.ListingNote = "a bought amount could not be sold again"
	default:
		b.Eligible = true
		b.ListingNote = "all checks passed"
	}
}

// contractFacts are the facts that the token's contract provides.
type contractFacts struct {
	supply *big.Int // nil: unknown
	checks *checksBody
}

// contractFacts reads a token's facts, once per block. The simulated sale uses the first of the pools that price it.
func (c *chainReader) contractFacts(ctx context.Context, s *state, token common.Address, pools []*pool) (*contractFacts, error) {
	s.mu.Lock()
	known := s.tokens[token]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	return chain.Shared(ctx, c.cfg.ReadTimeout, &c.reads, fmt.Sprintf("facts of %s at %s", token, s.at.Hash), func(ctx context.Context) (*contractFacts, error) {
		c.metrics.fees.Inc()
		said, err := chain.Both(ctx, c.client, "a token", func(ctx context.Context) ([]chain.Result, error) {
			return c.askToken(ctx, s, token)
		}, sameResults)
		if err != nil {
			return nil, fmt.Errorf("read token %s: %w", token, err)
		}
		t := factsOf(said)
		if t.checks != nil && len(pools) > 0 {
			if t.checks.Sellable, err = c.sellable(ctx, s, token, pools[0], baseFeeOf(said)); err != nil {
				return nil, err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tokens[token] = t
		return t, nil
	})
}

// viewGas limits a call of a token's view, because the code is not trusted: several times what a view needs, and too
// little to return megabytes, as memory costs gas.
const viewGas = 300_000

// The requests about a token, in order.
const (
	askedSupply = iota
	askedCode
	askedBaseFee
	askedOfToken
)

// askToken reads a token's contract from a node.
func (c *chainReader) askToken(ctx context.Context, s *state, token common.Address) ([]chain.Result, error) {
	var said [askedOfToken]hexutil.Bytes
	var fees chain.BlockFees
	requests := []*chain.Request{
		chain.CallAt(s.at.Hash, chain.Call{To: token, Data: contracts.Selector("totalSupply()"), Gas: viewGas}, &said[askedSupply]),
		chain.CodeAt(s.at.Hash, token, &said[askedCode]),
		chain.FeesAt(s.at.Hash, &fees),
	}
	if err := c.client.Batch(ctx, requests...); err != nil {
		return nil, err
	}
	if fees.BaseFee != nil {
		said[askedBaseFee] = fees.BaseFee.ToInt().Bytes()
	}
	results := make([]chain.Result, len(requests))
	for i, r := range requests {
		results[i] = chain.Result{Data: said[i], Err: r.Err}
	}
	return results, nil
}

// baseFeeOf is the base fee of the block; nil: it has none.
func baseFeeOf(said []chain.Result) *big.Int {
	if fee := said[askedBaseFee]; fee.Err == nil && len(fee.Data) > 0 {
		return new(big.Int).SetBytes(fee.Data)
	}
	return nil
}

// factsOf are a token's facts, but for whether it can be sold.
func factsOf(said []chain.Result) *contractFacts {
	t := &contractFacts{}
	if supply := said[askedSupply]; supply.Err == nil && len(supply.Data) == 32 {
		t.supply = new(big.Int).SetBytes(supply.Data)
	}
	if code := said[askedCode]; code.Err == nil && len(code.Data) > 0 {
		proxy := delegates(code.Data)
		t.checks = &checksBody{
			Mint: has(code.Data, mintSignatures), Pause: has(code.Data, pauseSignatures), Blacklist: has(code.Data, blacklistSignatures),
			Owner: has(code.Data, ownerSignatures), Proxy: &proxy,
		}
	}
	return t
}
