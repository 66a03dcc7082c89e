package devchain

import (
	"math/big"
)

func (t *turn) claimDrips() (call, bool) {
	due := func(d *drip) bool {
		unlocked := d.unlocked(t.now)
		return unlocked.Gt(&d.claimed) && !t.taken[dripThing(d.DripID)]
	}
	first := pick(t, t.model.drips, func(d *drip) bool {
		_, present := t.actor(d.Account)
		return present && due(d)
	})
	if first == nil {
		return call{}, false
	}
	const most = 4
	var ids []*big.Int
	for i := range t.model.drips {
		d := &t.model.drips[i]
		if d.Account == first.Account && due(d) && len(ids) < most && t.take(dripThing(d.DripID)) {
			ids = append(ids, d.DripID.ToBig())
		}
	}
	a, _ := t.actor(first.Account)
	return t.market.rewards.call(a, "claim", ids, t.recipient(a)), true
}

func (t *turn) stake() (call, bool) {
	p, owner, ok := t.idlePosition(func(p *position) bool { return p.pool == t.market.pools[0].id && !p.liquidity.IsZero() })
	if !ok {
		return call{}, false
	}
	return t.market.staking.call(owner, "stake", p.tokenID.ToBig()), true
}

// checkpoint is anybody's to do for any staked position, the seed included.
func (t *turn) checkpoint() (call, bool) {
	p := pick(t, t.model.positions, func(p *position) bool { return p.staked() && !t.taken[positionThing(p.tokenID)] })
	actor, ok := t.someone()
	if p == nil || !ok {
		return call{}, false
	}
	return t.market.staking.call(actor, "checkpoint", p.tokenID.ToBig()), true
}

// ownStake picks a staked position of an actor's.
func (t *turn) ownStake() (*position, account, bool) {
	p := pick(t, t.model.positions, func(p *position) bool {
		_, present := t.actor(p.staker)
		return present && p.staked() && !t.taken[positionThing(p.tokenID)]
	})
	if p == nil || !t.take(positionThing(p.tokenID)) {
		return nil, account{}, false
	}
	staker, _ := t.actor(p.staker)
	return p, staker, true
}

func (t *turn) claimStake() (call, bool) {
	p, staker, ok := t.ownStake()
	if !ok {
		return call{}, false
	}
	return t.market.staking.call(staker, "claim", p.tokenID.ToBig()), true
}

func (t *turn) unstake() (call, bool) {
	p, staker, ok := t.ownStake()
	if !ok {
		return call{}, false
	}
	return t.market.staking.call(staker, "unstake", p.tokenID.ToBig()), true
}

// notifyCreatorFees gives TKN to the stakers, if there is anybody to give it to.
func (t *turn) notifyCreatorFees() (call, bool) {
	giver, ok := t.someone()
	if !ok || t.model.weight.IsZero() {
		return call{}, false
	}
	return t.market.staking.call(giver, "notifyCreatorFees", t.market.tkn.worth(t.between(10, 2_000))), true
}

func (t *turn) burn() (call, bool) {
	burner, ok := t.someone()
	if !ok || !t.usable(t.market.usdg.address) {
		return call{}, false
	}
	return t.market.burner.call(burner, "burn", t.market.usdg.worth(t.between(10, 2_000)), new(big.Int), new(big.Int)), true
}
