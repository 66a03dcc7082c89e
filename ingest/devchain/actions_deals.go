package devchain

import (
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
)

const day = 24 * time.Hour

// actions are all that actors do, the likelier the heavier.
func actions(m *Market) []action {
	all := []action{
		{"list", 16, (*turn).list},
		{"list position", 5, (*turn).listPosition},
		{"edit terms", 5, (*turn).updateTerms},
		{"cancel", 2, (*turn).cancel},
		{"bid", 14, (*turn).bid},
		{"withdraw bid", 4, (*turn).withdrawBid},
		{"accept bid", 6, (*turn).acceptBid},
		{"fund", 6, (*turn).fund},
		{"reclaim", 10, (*turn).reclaim},
		{"claim", 10, (*turn).claim},
		{"withdraw", 10, (*turn).withdraw},
		{"withdraw position", 5, (*turn).withdrawNFT},
		{"mistake", 1, (*turn).mistake},
		{"imitate", 1, (*turn).imitate},
		{"swap", 10, (*turn).swap},
		{"mint position", 5, (*turn).mintPosition},
		{"decrease position", 1, (*turn).decreasePosition},
		{"burn position", 1, (*turn).burnPosition},
	}
	if m.tokenLayer() {
		all = append(all,
			action{"claim drips", 6, (*turn).claimDrips},
			action{"stake", 4, (*turn).stake},
			action{"checkpoint", 3, (*turn).checkpoint},
			action{"claim emissions", 2, (*turn).claimStake},
			action{"unstake", 2, (*turn).unstake},
			action{"give creator fees", 1, (*turn).notifyCreatorFees},
			action{"burn", 1, (*turn).burn})
	}
	return all
}

// terms are what a borrower asks for.
type terms struct {
	cap, minPrice *big.Int
	term          uint32
	expiry        *big.Int
}

// askFor draws terms for collateral worth so many dollars.
func (t *turn) askFor(dollars int64) terms {
	price := dollars * t.between(30, 70) // cents: 30 to 70 % of the value
	term := uint32(7 * day / time.Second)
	if t.oneIn(3) {
		term = uint32(21 * day / time.Second)
	}
	var expiry uint64 // open-ended
	if t.oneIn(2) {
		expiry = t.after(12*time.Hour, 5*day)
	}
	return terms{
		minPrice: usdg(price), cap: usdg(price + price*t.between(50, 1000)/10_000),
		term: term, expiry: bigTime(expiry),
	}
}

func (t *turn) room() bool { return t.trading() && len(t.model.deals) < t.cfg.MaxDeals }

func (t *turn) list() (call, bool) {
	tokens := t.listable()
	borrower, ok := t.someone()
	if !ok || len(tokens) == 0 || !t.room() {
		return call{}, false
	}
	token := tokens[t.random.IntN(len(tokens))]
	dollars := t.between(500, 50_000)
	amount := token.worth(dollars)
	if !t.fits(token.address, toUint256(amount)) {
		return call{}, false
	}
	ask := t.askFor(dollars)
	return t.market.vault.call(borrower, "list", uint8(contracts.KindERC20), token.address, amount,
		ask.cap, ask.minPrice, ask.term, ask.expiry, t.fee), true
}

func (t *turn) listPosition() (call, bool) {
	if !t.room() || !t.model.assets[t.market.positions.address].Allowed {
		return call{}, false
	}
	p, owner, ok := t.idlePosition(func(p *position) bool {
		limit := t.model.pools[p.pool]
		return limit.Allowed && p.liquidity.Cmp(&limit.MinLiquidity) >= 0 && p.liquidity.Cmp(&limit.MaxLiquidity) <= 0
	})
	if !ok {
		return call{}, false
	}
	ask := t.askFor(t.between(1_000, 100_000))
	return t.market.vault.call(owner, "list", uint8(contracts.KindPosition), t.market.positions.address, p.tokenID.ToBig(),
		ask.cap, ask.minPrice, ask.term, ask.expiry, t.fee), true
}

// ownDeal picks a deal whose borrower may act and takes it for this block.
func (t *turn) ownDeal(will func(*deal) bool) (*deal, account, bool) {
	d := pick(t, t.model.deals, func(d *deal) bool {
		_, present := t.actor(d.Borrower)
		return present && !t.taken[dealThing(d.DealID)] && will(d)
	})
	if d == nil {
		return nil, account{}, false
	}
	borrower, _ := t.actor(d.Borrower)
	return d, borrower, t.take(dealThing(d.DealID))
}

func (t *turn) updateTerms() (call, bool) {
	d, borrower, ok := t.ownDeal(func(d *deal) bool { return !d.funded() })
	if !ok {
		return call{}, false
	}
	ask := t.askFor(t.between(500, 50_000))
	return t.market.vault.call(borrower, "updateTerms", d.DealID.ToBig(), ask.cap, ask.minPrice, ask.term, ask.expiry), true
}

func (t *turn) cancel() (call, bool) {
	d, borrower, ok := t.ownDeal(func(d *deal) bool { return !d.funded() && (!d.open(t.now) || t.oneIn(4)) })
	if !ok {
		return call{}, false
	}
	return t.market.vault.call(borrower, "cancel", d.DealID.ToBig(), d.TermsHash), true
}

// reclaim happens late in the term, seldom early; the borrower of every fourth deal walks away.
func (t *turn) reclaim() (call, bool) {
	d, borrower, ok := t.ownDeal(func(d *deal) bool {
		late := t.now >= d.fundedAt+uint64(d.Term)*3/5
		return d.funded() && t.usable(t.market.usdg.address) && t.now <= d.graceEnd && d.DealID.Uint64()%4 != 3 && (late || t.oneIn(12))
	})
	if !ok {
		return call{}, false
	}
	return t.market.vault.call(borrower, "reclaim", d.DealID.ToBig(), d.TermsHash), true
}

func (t *turn) claim() (call, bool) {
	d := pick(t, t.model.deals, func(d *deal) bool {
		_, present := t.actor(d.lender)
		return present && d.funded() && t.now > d.graceEnd && !t.taken[dealThing(d.DealID)]
	})
	if d == nil || !t.take(dealThing(d.DealID)) {
		return call{}, false
	}
	lender, _ := t.actor(d.lender)
	return t.market.vault.call(lender, "claim", d.DealID.ToBig(), d.TermsHash), true
}

// offered picks a deal that a lender may take.
func (t *turn) offered() (*deal, account, bool) {
	d := pick(t, t.model.deals, func(d *deal) bool { return d.open(t.now) && !t.taken[dealThing(d.DealID)] })
	if d == nil || !t.trading() || !t.usable(t.market.usdg.address) {
		return nil, account{}, false
	}
	lender, ok := t.someone(d.Borrower)
	return d, lender, ok
}

func (t *turn) fund() (call, bool) {
	d, lender, ok := t.offered()
	if !ok || !t.take(dealThing(d.DealID)) {
		return call{}, false
	}
	return t.market.vault.call(lender, "fund", d.DealID.ToBig(), d.TermsHash), true
}

// bid may be one of several on the same deal in a block, but comes not after what would end the deal.
func (t *turn) bid() (call, bool) {
	d, lender, ok := t.offered()
	if !ok || len(t.model.bids) >= 3*t.cfg.MaxDeals {
		return call{}, false
	}
	return t.offer(d, lender), true
}

// offer is a bid somewhat below the cap.
func (t *turn) offer(d *deal, lender account) call {
	price := new(big.Int).Mul(d.Cap.ToBig(), big.NewInt(t.between(80, 100)))
	price.Div(price, big.NewInt(100))
	return t.market.vault.call(lender, "bid", d.DealID.ToBig(), price, bigTime(t.after(6*time.Hour, 4*day)), d.TermsHash)
}

func (t *turn) acceptBid() (call, bool) {
	b := pick(t, t.model.bids, func(b *bid) bool {
		d := t.model.deal(&b.DealID)
		if d == nil || !d.open(t.now) || b.Expiry <= t.now || b.TermsHash != d.TermsHash {
			return false
		}
		_, present := t.actor(d.Borrower)
		return present && !t.taken[dealThing(b.DealID)] && !t.taken[bidThing(b.BidID)]
	})
	if b == nil || !t.trading() || !t.take(dealThing(b.DealID)) || !t.take(bidThing(b.BidID)) {
		return call{}, false
	}
	t.accepted = *b
	borrower, _ := t.actor(t.model.deal(&b.DealID).Borrower)
	return t.market.vault.call(borrower, "acceptBid", b.BidID.ToBig(), b.TermsHash, b.Price.ToBig()), true
}

// withdrawBid is mostly of a bid that can no longer be accepted.
func (t *turn) withdrawBid() (call, bool) {
	b := pick(t, t.model.bids, func(b *bid) bool {
		_, present := t.actor(b.Lender)
		d := t.model.deal(&b.DealID)
		dead := d == nil || !d.open(t.now) || b.Expiry <= t.now || b.TermsHash != d.TermsHash
		return present && !t.taken[bidThing(b.BidID)] && (dead || t.oneIn(10))
	})
	if b == nil || !t.take(bidThing(b.BidID)) {
		return call{}, false
	}
	lender, _ := t.actor(b.Lender)
	return t.market.vault.call(lender, "withdrawBid", b.BidID.ToBig(), b.TermsHash, b.Price.ToBig()), true
}

func (t *turn) withdraw() (call, bool) {
	c := pick(t, t.model.credits, func(c *credit) bool {
		_, present := t.actor(c.account)
		return present && !c.nft && t.usable(c.asset) && !t.taken[creditThing(c.account, c.asset)]
	})
	if c == nil || !t.take(creditThing(c.account, c.asset)) {
		return call{}, false
	}
	a, _ := t.actor(c.account)
	amount := c.value.ToBig()
	if half := new(big.Int).Rsh(amount, 1); half.Sign() > 0 && t.oneIn(4) {
		amount = half
	}
	return t.market.vault.call(a, "withdraw", c.asset, t.recipient(a), amount), true
}

func (t *turn) withdrawNFT() (call, bool) {
	c := pick(t, t.model.credits, func(c *credit) bool {
		_, present := t.actor(c.account)
		return present && c.nft && !t.taken[positionThing(c.value)]
	})
	if c == nil || !t.take(positionThing(c.value)) {
		return call{}, false
	}
	a, _ := t.actor(c.account)
	return t.market.vault.call(a, "withdrawNFT", c.asset, c.value.ToBig(), t.recipient(a)), true
}

// mistake reverts: a lender who agrees to terms that are not the deal's.
func (t *turn) mistake() (call, bool) {
	d, lender, ok := t.offered()
	if !ok {
		return call{}, false
	}
	return t.market.vault.call(lender, "fund", d.DealID.ToBig(), common.Hash{1}), true
}
