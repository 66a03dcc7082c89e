package devchain

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
)

// driftTicks is how far a price strays from where it began before traders push it back: about 8 %.
const driftTicks = 800

// tradable picks a pool both sides of which can be moved.
func (t *turn) tradable() *pool {
	return pick(t, t.market.pools, func(p *pool) bool { return t.usable(p.key.Currency0, p.key.Currency1) })
}

func (t *turn) token(address common.Address) token {
	for _, known := range append(t.market.collateral(), t.market.usdg, t.market.stkn) {
		if known.address == address {
			return known
		}
	}
	return token{}
}

func (t *turn) swap() (call, bool) {
	p := t.tradable()
	trader, ok := t.someone()
	if p == nil || !ok {
		return call{}, false
	}
	zeroForOne := t.oneIn(2) // down
	switch drift := t.model.ticks[p.id] - p.tick; {
	case drift > driftTicks:
		zeroForOne = true
	case drift < -driftTicks:
		zeroForOne = false
	}
	in := p.key.Currency1
	if zeroForOne {
		in = p.key.Currency0
	}
	return p.swap(t.market.router, trader, zeroForOne, t.token(in).worth(t.between(100, 60_000))), true
}

// maxOpenPositions bounds what the actors mint, for each transaction of a block.
const maxOpenPositions = 12

func (t *turn) mintPosition() (call, bool) {
	if len(t.model.positions) >= maxOpenPositions*t.cfg.TxsPerBlock+2*len(t.market.pools) {
		return call{}, false
	}
	p := &t.market.pools[0]
	if t.oneIn(2) {
		p = t.tradable()
	}
	owner, ok := t.someone()
	if p == nil || !ok || !t.usable(p.key.Currency0, p.key.Currency1) {
		return call{}, false
	}
	spacing := p.spacing()
	width := int32(t.between(2, 20)) * spacing
	middle := t.model.ticks[p.id] / spacing * spacing
	if t.oneIn(6) { // out of range until the price comes by
		middle += width + spacing
	}
	liquidity := new(big.Int).Div(p.liquidity, big.NewInt(t.between(100, 2000)))
	return p.mint(t.market.positions, owner, forever, middle-width, middle+width, liquidity), true
}

// idlePosition picks a position that an actor holds, who may act, and takes it for this block.
func (t *turn) idlePosition(will func(*position) bool) (*position, account, bool) {
	p := pick(t, t.model.positions, func(p *position) bool {
		_, present := t.actor(p.owner)
		return present && !t.taken[positionThing(p.tokenID)] && will(p)
	})
	if p == nil {
		return nil, account{}, false
	}
	owner, _ := t.actor(p.owner)
	return p, owner, t.take(positionThing(p.tokenID))
}

// movable says whether a position's tokens can be paid out.
func (t *turn) movable(p *position) bool {
	pool := t.pool(p.pool)
	return pool != nil && t.usable(pool.key.Currency0, pool.key.Currency1)
}

func (t *turn) decreasePosition() (call, bool) {
	p, owner, ok := t.idlePosition(func(p *position) bool {
		return t.movable(p) && p.liquidity.GtUint64(10*minLiquidity)
	})
	if !ok {
		return call{}, false
	}
	part := new(big.Int).Div(p.liquidity.ToBig(), big.NewInt(t.between(2, 10)))
	return t.pool(p.pool).decrease(t.market.positions, owner, forever, p.tokenID.ToBig(), part), true
}

func (t *turn) burnPosition() (call, bool) {
	p, owner, ok := t.idlePosition(t.movable)
	if !ok {
		return call{}, false
	}
	return t.pool(p.pool).burn(t.market.positions, owner, forever, p.tokenID.ToBig()), true
}
