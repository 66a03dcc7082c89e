package query

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/processors/market/stats"
	"github.com/lienstream/lienstream/topics"
)

// priceBook values tokens in USDG: by the deepest pool with USDG, or else by the deepest pool with a token that has
// one. It uses the pools that the registry allows, without hooks and with a static fee, and the token layer's pool,
// whose hook is the staking contract. Pools in which there is next to nothing do not count.
type priceBook struct {
	usdg      common.Address
	pools     []topics.Pool // ascending by ID
	direct    map[common.Address]*quote
	contested map[common.Address]bool // tokens for which several pools with USDG may be the deepest
}

// quote is a price in raw units of USDG per raw unit.
type quote struct {
	Price
	pool *topics.Pool
}

// offer is how deep a pool is in which a token has a price.
type offer struct {
	pool         *topics.Pool
	token, worth *big.Int // virtual reserves: of the token, and of the other currency in raw USDG
}

func newPriceBook(items []read.Item, m *market) (*priceBook, error) {
	rows, err := decodeAll[topics.Pool](items)
	if err != nil {
		return nil, err
	}
	return bookOf(rows, m), nil
}

// bookOf sorts the pools.
func bookOf(rows []topics.Pool, m *market) *priceBook {
	b := &priceBook{usdg: m.USDG, direct: map[common.Address]*quote{}, contested: map[common.Address]bool{}}
	slices.SortFunc(rows, func(p, q topics.Pool) int { return bytes.Compare(p.ID[:], q.ID[:]) })
	for _, p := range slices.CompactFunc(rows, func(p, q topics.Pool) bool { return p.ID == q.ID }) {
		allowed := p.ID == m.Pool || p.Limits != nil && p.Limits.Allowed
		if allowed && p.Initialized && !dust(&p) && (p.Hooks == (common.Address{}) || p.ID == m.Pool) && p.Fee != dynamicFee {
			b.pools = append(b.pools, p)
		}
	}
	all := map[common.Address][]offer{}
	for i := range b.pools {
		p := &b.pools[i]
		if token, ok := other(p, b.usdg); ok {
			all[token] = append(all[token], offer{p, reserve(p, token), reserve(p, b.usdg)})
		}
	}
	for token, offers := range all {
		if best := deepest(offers); best != nil {
			b.direct[token] = &quote{rawPrice(&best.SqrtPriceX96, best.Currency0 == token), best}
		} else {
			b.contested[token] = true
		}
	}
	return b
}

// dustUnits is how much of a currency a pool has where a move of its price by 2 % takes out one raw unit, about.
const dustUnits = 100

// dust reports whether a pool has next to nothing of a currency, so that its price can be moved for nothing.
func dust(p *topics.Pool) bool {
	least := big.NewInt(dustUnits)
	return p.Liquidity.IsZero() || reserve(p, p.Currency0).Cmp(least) < 0 || reserve(p, p.Currency1).Cmp(least) < 0
}

// contestedBy is how many times as much of the token another pool has for the deepest one to be no longer believed.
const contestedBy = 4

// deepest is the pool with the most of the other currency; on a tie that with the lower ID. Nil: another pool has so
// much more of the token that it may as well be the deepest. That reserve grows as the price falls and the other one as
// it rises, and at the end of the ticks either costs nothing: so of two pools far apart none is believed for one of
// them alone.
func deepest(ascending []offer) *topics.Pool {
	best := &ascending[0]
	for i := range ascending {
		if o := &ascending[i]; o.worth.Cmp(best.worth) > 0 {
			best = o
		}
	}
	most := new(big.Int).Mul(best.token, big.NewInt(contestedBy))
	if slices.ContainsFunc(ascending, func(o offer) bool { return o.token.Cmp(most) > 0 }) {
		return nil
	}
	return best.pool
}

// other is the other currency of a pool.
func other(p *topics.Pool, one common.Address) (common.Address, bool) {
	switch one {
	case p.Currency0:
		return p.Currency1, true
	case p.Currency1:
		return p.Currency0, true
	}
	return common.Address{}, false
}

// reserve is the virtual reserve of a currency: as if the liquidity in range were unbounded.
func reserve(p *topics.Pool, of common.Address) *big.Int {
	l, s := p.Liquidity.ToBig(), p.SqrtPriceX96.ToBig()
	if of == p.Currency1 {
		return l.Mul(l, s).Rsh(l, 96)
	}
	return l.Lsh(l, 96).Quo(l, s)
}

// price is the price of a token's raw unit in raw USDG. There is none if it is contested, or that of a token on the
// way: so contesting one pool does not make another pool price the token.
func (b *priceBook) price(token common.Address) (Price, bool) {
	if token == b.usdg {
		return Price{big.NewInt(1), big.NewInt(1)}, true
	}
	if q := b.direct[token]; q != nil {
		return q.Price, true
	}
	if b.contested[token] {
		return Price{}, false
	}
	var all []offer
	for i := range b.pools {
		p := &b.pools[i]
		hop, ok := other(p, token)
		switch {
		case ok && b.contested[hop]:
			return Price{}, false
		case ok && b.direct[hop] != nil:
			through, worth := b.direct[hop].Price, reserve(p, hop)
			all = append(all, offer{p, reserve(p, token), worth.Mul(worth, through.Num).Quo(worth, through.Den)})
		}
	}
	if len(all) == 0 {
		return Price{}, false
	}
	best := deepest(all)
	if best == nil {
		return Price{}, false
	}
	hop, _ := other(best, token)
	return rawPrice(&best.SqrtPriceX96, best.Currency0 == token).mul(b.direct[hop].Price), true
}

// assetKey is an entry of the TVL.
type assetKey struct {
	token common.Address
	lane  contracts.Lane
}

// lockedValue is the TVL.
func lockedValue(split *[sections][]read.Item, book *priceBook) (tvl TVL, err error) {
	amounts := map[assetKey]*uint256.Int{}
	add := func(k assetKey, raw *uint256.Int) {
		if raw.IsZero() {
			return
		}
		if amounts[k] == nil {
			amounts[k] = new(uint256.Int)
		}
		amounts[k].Add(amounts[k], raw)
	}
	for _, it := range split[sectionCollateral] {
		a, err := stats.Decode[stats.Amount](it.Row)
		if err != nil {
			return tvl, err
		}
		lane, token := stats.CollateralOf(it.Key)
		add(assetKey{token, lane}, &a.Raw)
	}
	if err := addPositions(split, add); err != nil {
		return tvl, err
	}
	return valueOf(amounts, book), nil
}

// valueOf values raw amounts that are added up by asset: each sum is valued once. A token has no price if its value, or
// the sum with the tokens before it, exceeds 256 bits: an absurd price in one pool must not make the answer fail.
func valueOf(amounts map[assetKey]*uint256.Int, book *priceBook) (tvl TVL) {
	for k, raw := range amounts {
		tvl.ByAsset = append(tvl.ByAsset, AssetValue{Token: k.token, Lane: k.lane, Raw: *raw})
	}
	slices.SortFunc(tvl.ByAsset, func(a, b AssetValue) int { return cmp.Or(a.Token.Cmp(b.Token), cmp.Compare(a.Lane, b.Lane)) })
	for rest := tvl.ByAsset; len(rest) > 0; {
		token, n := rest[0].Token, 1
		for n < len(rest) && rest[n].Token == token {
			n++
		}
		if !tvl.add(rest[:n], book) {
			tvl.Unpriced = append(tvl.Unpriced, token)
		}
		rest = rest[n:]
	}
	return tvl
}

// add adds the values of one token's amounts. False: it has no price.
func (tvl *TVL) add(amounts []AssetValue, book *priceBook) bool {
	price, ok := book.price(amounts[0].Token)
	if !ok {
		return false
	}
	sum, values := tvl.USDG, make([]uint256.Int, len(amounts))
	for i := range amounts {
		value := amounts[i].Raw.ToBig()
		value.Mul(value, price.Num).Quo(value, price.Den)
		if values[i].SetFromBig(value) {
			return false
		}
		if _, over := sum.AddOverflow(&sum, &values[i]); over {
			return false
		}
	}
	tvl.USDG = sum
	for i := range amounts {
		a := &amounts[i]
		a.USDG = &values[i]
		if int(a.Lane) < len(tvl.ByLane) {
			tvl.ByLane[a.Lane].Add(&tvl.ByLane[a.Lane], a.USDG)
		}
	}
	return true
}

// addPositions adds the tokens in the positions that are collateral.
func addPositions(split *[sections][]read.Item, add func(assetKey, *uint256.Int)) error {
	pools, err := poolsOf(split[sectionPool])
	if err != nil {
		return err
	}
	contents, err := liquidityOf(split[sectionLiquidity])
	if err != nil {
		return err
	}
	for _, id := range openPositions(split[sectionOpenPosition]) {
		p := contents[id]
		if p == nil || pools[p.PoolID] == nil {
			continue
		}
		pool := pools[p.PoolID]
		amount0, amount1, err := ammv4.Amounts(&pool.SqrtPriceX96, pool.Tick, p.TickLower, p.TickUpper, &p.Liquidity)
		if err != nil {
			return fmt.Errorf("amounts of position %s: %w", p.TokenID.Dec(), err)
		}
		add(assetKey{pool.Currency0, contracts.LanePosition}, amount0)
		add(assetKey{pool.Currency1, contracts.LanePosition}, amount1)
	}
	return nil
}

// priceHistory is the price of sTKN at the end of each hour of a week, and now. In USDG it uses TKN's price in
// the pool that is the deepest now.
func priceHistory(split *[sections][]read.Item, book *priceBook, m *market, now uint64) ([]PricePoint, error) {
	hours := map[common.Hash]hoursOf{}
	for _, it := range slices.Backward(split[sectionHour]) { // per pool, the newest first
		o, err := decodeRow[topics.Observation](it)
		if err != nil {
			return nil, err
		}
		hours[o.PoolID] = append(hours[o.PoolID], o)
	}
	if len(hours[m.Pool]) == 0 {
		return nil, nil
	}
	pools, err := poolsOf(split[sectionPool])
	if err != nil {
		return nil, err
	}
	pool := pools[m.Pool]
	if pool == nil {
		return nil, read.ErrMalformed
	}
	stkn, err := pairOf(pool, m, split[sectionAsset])
	if err != nil {
		return nil, err
	}
	scale, err := tknInUSDG(split[sectionAsset], m)
	if err != nil {
		return nil, err
	}
	inUSDG := book.direct[m.TKN]
	var points []PricePoint
	for end := historyStart(now) + prices.Hour; ; end += prices.Hour {
		t, held := end, end-1
		if end >= now {
			t, held = now, now
		}
		if o := hours[m.Pool].at(held); o != nil {
			point := PricePoint{T: t, PriceSTKNinTKN: stkn.price(&o.SqrtPriceX96)}
			if inUSDG != nil {
				if q := hours[inUSDG.pool.ID].at(held); q != nil {
					tkn := rawPrice(&q.SqrtPriceX96, inUSDG.pool.Currency0 == m.TKN)
					price := point.PriceSTKNinTKN.mul(tkn).mul(scale)
					point.PriceUSDGPerSTKN = &price
				}
			}
			points = append(points, point)
		}
		if end >= now {
			return points, nil
		}
	}
}

// tknInUSDG converts a price in raw units to one of whole tokens.
func tknInUSDG(known []read.Item, m *market) (Price, error) {
	tkn, err := decimalsOf(known, m.TKN, contracts.TokenDecimals)
	if err != nil {
		return Price{}, err
	}
	usdg, err := decimalsOf(known, m.USDG, contracts.USDGDecimals)
	return newPrice(pow10(tkn), pow10(usdg)), err
}
