package devchain

import (
	"math/big"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/params"
	"github.com/holiman/uint256"
)

// Budgets of an epoch in whole sTKN, and what deals are promised of them.
const (
	weeklySTKN    = 60_000
	dealSTKN7     = 10_000
	dealSTKN21    = 8_000
	liquiditySTKN = 40_000
	rewardPart    = 50 // a reward is worth this part of the price: 2 %
)

// ownerCalls are what the owner of the contracts does in this block.
func (t *turn) ownerCalls() []call {
	if t.absent(t.market.admin.signer) {
		return nil
	}
	calls := slices.Concat(t.splits(), t.pauses(), t.halts())
	calls = append(calls, t.registry()...)
	if t.market.tokenLayer() {
		calls = append(calls, t.epoch()...)
		calls = append(calls, t.fees()...)
	}
	return calls
}

// stkn is a raw amount of whole sTKN.
func stkn(whole int64) *big.Int { return new(big.Int).Mul(big.NewInt(whole), big.NewInt(params.Ether)) }

// epoch keeps an epoch open, with rates, and releases its liquidity budget in parts.
func (t *turn) epoch() []call {
	m, admin := t.market, t.market.admin
	running := t.model.epoch.N != 0 && !t.model.closed
	switch {
	case running && t.now >= t.model.epoch.EndsAt && t.oneIn(2):
		closer, ok := t.someone()
		if !ok {
			return nil
		}
		return []call{m.epochs.call(closer, "closeEpoch")} // anybody may
	case !running || t.now >= t.model.epoch.EndsAt:
		return []call{m.epochs.call(admin, "openEpoch", stkn(weeklySTKN), stkn(dealSTKN7), stkn(dealSTKN21), stkn(liquiditySTKN))}
	case !t.model.ratesSet:
		rate := big.NewInt(params.Ether / rewardPart)
		price := big.NewInt(params.Ether / 2) // USDG per sTKN
		return []call{m.epochs.call(admin, "setRates", rate, new(big.Int).Mul(rate, big.NewInt(2)), price, uint16(6000))}
	}
	part := uint256.NewInt(0).Div(&t.model.epoch.LiquidityBudget, uint256.NewInt(4))
	after := new(uint256.Int).Add(&t.model.released, part)
	if t.oneIn(20) && after.Cmp(&t.model.epoch.LiquidityBudget) <= 0 {
		return []call{m.epochs.call(admin, "releaseLiquidity", part.ToBig())}
	}
	return nil
}

// splits announces another multiplier of a stock: mostly for a later day, now and then at once.
func (t *turn) splits() []call {
	if !t.oneIn(50) {
		return nil
	}
	stock := t.market.stocks[t.random.IntN(len(t.market.stocks))]
	percent := []int64{50, 100, 110, 150, 200, 300, 2000}
	multiplier := new(big.Int).Mul(big.NewInt(percent[t.random.IntN(len(percent))]), big.NewInt(params.Ether/100))
	at := t.now
	if !t.oneIn(4) {
		at = t.after(time.Hour, 3*day)
	}
	return []call{own("StockToken", stock.address).call(t.market.admin, "setUIMultiplier", multiplier, bigTime(at))}
}

// pauses stops a stock, the dollar or the vault for a few blocks.
func (t *turn) pauses() []call {
	var calls []call
	pausable := []callee{t.market.vault, own("USDG", t.market.usdg.address)}
	for _, stock := range t.market.stocks {
		pausable = append(pausable, own("StockToken", stock.address))
	}
	for _, c := range pausable {
		switch paused := t.model.paused[c.address]; {
		case paused && t.oneIn(4):
			calls = append(calls, c.call(t.market.admin, "unpause"))
		case !paused && t.oneIn(80):
			calls = append(calls, c.call(t.market.admin, "pause"))
			t.shut[c.address] = true
		}
	}
	return append(calls, t.freezes(pausable[1])...)
}

// haltEvery is how often a stock's price oracle is paused, in blocks; it goes on within haltBlocks.
const (
	haltEvery  = 150
	haltBlocks = 5
)

// halts pauses the price oracle of one stock after the other for a few blocks, as around a corporate action: its multiplier is announced anew
// with it, since no event tells of the oracle. It decides by the block's number, and so leaves what else happens as it is.
func (t *turn) halts() []call {
	var calls []call
	for i, stock := range t.market.stocks {
		halted := t.model.halted[stock.address]
		begins := t.number%haltEvery == haltEvery-1 && t.number/haltEvery%uint64(len(t.market.stocks)) == uint64(i)
		if halted && t.number%haltBlocks == 0 || !halted && begins {
			c := own("StockToken", stock.address)
			later := t.now + uint64(30*day/time.Second) // so that it is still to come if the transaction comes again after a reorg
			calls = append(calls,
				c.call(t.market.admin, "setUIMultiplier", big.NewInt(params.Ether), bigTime(later)),
				c.call(t.market.admin, "setOraclePaused", !halted))
		}
	}
	return calls
}

// freezes keeps an actor from its dollars for a few blocks; what it tries meanwhile reverts.
func (t *turn) freezes(usdg callee) []call {
	var calls []call
	for _, actor := range t.market.actors {
		switch frozen := t.model.frozen[actor.address]; {
		case frozen && t.oneIn(6):
			calls = append(calls, usdg.call(t.market.admin, "unfreeze", actor.address))
		case !frozen && t.oneIn(100*len(t.market.actors)):
			calls = append(calls, usdg.call(t.market.admin, "freeze", actor.address))
		}
	}
	return calls
}

// registry changes what may be listed: an asset is shut or its limits change, and is soon let in again.
func (t *turn) registry() []call {
	m := t.market
	var calls []call
	for _, token := range m.collateral() {
		if !t.model.assets[token.address].Allowed && t.number >= m.late[token.address] && t.oneIn(10) {
			calls = append(calls, m.registry.call(m.admin, "setAsset", token.address, m.limits(token)))
		}
	}
	if t.oneIn(80) {
		tokens := m.collateral()
		token := tokens[t.random.IntN(len(tokens))]
		if t.number < m.late[token.address] {
			return calls
		}
		changed := m.limits(token)
		changed.Allowed = !t.oneIn(2)
		changed.MaxDealRaw = new(big.Int).Mul(token.unit(), big.NewInt(t.between(dealTokens/2, 2*dealTokens)))
		calls = append(calls, m.registry.call(m.admin, "setAsset", token.address, changed))
		t.shut[token.address] = !changed.Allowed
	}
	if t.oneIn(100) {
		p := m.pools[t.random.IntN(len(m.pools))]
		if p.key.Hooks != (common.Address{}) {
			return calls
		}
		calls = append(calls, m.registry.call(m.admin, "setPool", p.id, true, big.NewInt(t.between(minLiquidity/2, 2*minLiquidity)), maxUint128))
	}
	return calls
}

// fees changes the vault's fee, and burns what it brought.
func (t *turn) fees() []call {
	m := t.market
	var calls []call
	if t.oneIn(100) {
		t.fee = uint16(t.between(feeBps/2, 2*feeBps)) // the owner's come first in a block
		calls = append(calls, m.vault.call(m.admin, "setFee", t.fee, m.burner.address))
	}
	if t.oneIn(60) && t.usable(m.usdg.address) {
		i, ok := t.model.findCredit(m.burner.address, m.usdg.address, false, nil)
		if ok {
			calls = append(calls,
				m.burner.call(m.admin, "collect"),
				m.burner.call(m.admin, "burnFees", t.model.credits[i].value.ToBig(), new(big.Int), new(big.Int)))
		}
	}
	return calls
}
