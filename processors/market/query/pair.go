package query

import (
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/topics"
)

var q192 = new(big.Int).Lsh(big.NewInt(1), 192)

// rawPrice is what a raw unit of one currency is in raw units of the other, exact.
func rawPrice(sqrtPrice *uint256.Int, ofCurrency0 bool) Price {
	square := sqrtPrice.ToBig()
	square.Mul(square, square)
	if ofCurrency0 {
		return newPrice(square, q192)
	}
	return newPrice(q192, square)
}

// decimalsOf is a token's decimals: as the registry has them, or the given.
func decimalsOf(known []read.Item, token common.Address, otherwise int) (int, error) {
	for _, it := range known {
		if common.BytesToAddress(it.Key) == token {
			a, err := decodeAsset(it)
			return int(a.Decimals), err
		}
	}
	return otherwise, nil
}

// pair is the pool of sTKN and TKN.
type pair struct {
	pool  *topics.Pool
	stkn0 bool  // sTKN is currency0: the price of the pool is that of sTKN; else it is its inverse
	scale Price // raw units to whole tokens
}

func pairOf(pool *topics.Pool, m *market, known []read.Item) (*pair, error) {
	p := &pair{pool: pool, stkn0: pool.Currency0 == m.STKN}
	stkn, err := decimalsOf(known, m.STKN, contracts.TokenDecimals)
	if err != nil {
		return nil, err
	}
	tkn, err := decimalsOf(known, m.TKN, contracts.TokenDecimals)
	if err != nil {
		return nil, err
	}
	p.scale = newPrice(pow10(stkn), pow10(tkn))
	return p, nil
}

// price is TKN per sTKN, of whole tokens.
func (p *pair) price(sqrtPrice *uint256.Int) Price {
	return rawPrice(sqrtPrice, p.stkn0).mul(p.scale)
}

// depthTicks is more ticks than two per cent of a price are.
const depthTicks = 204

// depth is how much TKN leaves the pool until the price of sTKN has fallen to 98 %, without fees: from range
// to range, each rounded down. Ticks are those within depthTicks of the pool's, ascending.
func (p *pair) depth(ticks []read.Item) (sum uint256.Int, err error) {
	// The square root of 0.98 of the price, or of its inverse.
	target := p.pool.SqrtPriceX96.ToBig()
	target.Mul(target, target)
	if p.stkn0 {
		target.Mul(target, big.NewInt(98)).Quo(target, big.NewInt(100))
	} else {
		target.Mul(target, big.NewInt(100)).Quo(target, big.NewInt(98))
	}
	limit := uint256.MustFromBig(target.Sqrt(target))

	at, l := p.pool.SqrtPriceX96.Clone(), p.pool.Liquidity.Clone()
	// move walks to a price; it says whether the limit lies behind it.
	move := func(to *uint256.Int) (bool, error) {
		beyond := p.stkn0 && to.Gt(limit) || !p.stkn0 && to.Lt(limit)
		if !beyond {
			to = limit
		}
		amount := ammv4.Amount0
		if p.stkn0 {
			amount = ammv4.Amount1
		}
		out, err := amount(at, to, l, false)
		if err != nil {
			return false, err
		}
		sum.Add(&sum, out)
		at = to
		return beyond, nil
	}
	for i := range ticks {
		it := ticks[i]
		if p.stkn0 { // the price falls
			it = ticks[len(ticks)-1-i]
		}
		tick := liquidity.TickOf(it.Key)
		if p.stkn0 != (tick <= p.pool.Tick) {
			continue // behind
		}
		row, err := liquidity.DecodeTick(it.Row)
		if err != nil {
			return sum, err
		}
		price, err := ammv4.SqrtPriceAtTick(tick)
		if err != nil {
			return sum, fmt.Errorf("tick %d of the pool: %w", tick, err)
		}
		if on, err := move(price); err != nil || !on {
			return sum, err
		}
		if p.stkn0 {
			l.Sub(l, &row.Net)
		} else {
			l.Add(l, &row.Net)
		}
	}
	_, err = move(limit)
	return sum, err
}

// floor is the lowest price of sTKN in the range of a seed position.
func (p *pair) floor(seeds []read.Item) (*Floor, error) {
	rows, err := decodeAll[topics.Stake](seeds)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	// Where sTKN is currency1 its price falls as the tick rises.
	tick := rows[0].TickUpper
	if p.stkn0 {
		tick = rows[0].TickLower
	}
	for i := range rows {
		if p.stkn0 {
			tick = min(tick, rows[i].TickLower)
		} else {
			tick = max(tick, rows[i].TickUpper)
		}
	}
	price, err := ammv4.SqrtPriceAtTick(tick)
	if err != nil {
		return nil, fmt.Errorf("floor at tick %d: %w", tick, err)
	}
	return &Floor{Tick: tick, PriceSTKNinTKN: p.price(price)}, nil
}

// value is what amounts of both currencies are in TKN at the pool's price, rounded down.
func (p *pair) value(amount0, amount1 *uint256.Int) uint256.Int {
	stkn, tkn := amount1, amount0
	if p.stkn0 {
		stkn, tkn = amount0, amount1
	}
	worth := rawPrice(&p.pool.SqrtPriceX96, p.stkn0)
	z := new(big.Int).Mul(stkn.ToBig(), worth.Num)
	z.Add(z.Quo(z, worth.Den), tkn.ToBig())
	v, over := uint256.FromBig(z)
	if over { // amounts are of 128 bits, a price of less: only where a pool says what no pool can
		return *new(uint256.Int).SetAllOne()
	}
	return *v
}
