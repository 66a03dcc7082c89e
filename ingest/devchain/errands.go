package devchain

import (
	"math/big"
	"time"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

// errand is several transactions that act upon one thing in one block, by whom they concern, in the order that they
// are mined in; nil where nobody can.
func (t *turn) errand() []call {
	errands := []func() []call{t.fundAndReclaim, t.outbidAndReclaim, t.editAndCancel}
	if t.market.tokenLayer() {
		errands = append(errands, t.checkpointAndUnstake)
	}
	return errands[t.random.IntN(len(errands))]()
}

// fundAndReclaim lets a deal begin and end in a block, with offers that come too late.
func (t *turn) fundAndReclaim() []call {
	d, lender, ok := t.offered()
	if !ok {
		return nil
	}
	borrower, present := t.actor(d.Borrower)
	rival, found := t.someone(d.Borrower, lender.address)
	if !present || !found || !t.take(dealThing(d.DealID)) {
		return nil
	}
	id := d.DealID.ToBig()
	return []call{
		t.offer(d, rival), t.offer(d, lender),
		t.market.vault.call(lender, "fund", id, d.TermsHash),
		t.market.vault.call(borrower, "reclaim", id, d.TermsHash),
	}
}

// outbidAndReclaim accepts one offer after another has come.
func (t *turn) outbidAndReclaim() []call {
	accept, ok := t.acceptBid()
	if !ok || !t.usable(t.market.usdg.address) {
		return nil
	}
	b := t.accepted
	d := t.model.deal(&b.DealID)
	rival, found := t.someone(d.Borrower, b.Lender)
	if !found {
		return []call{accept}
	}
	return []call{t.offer(d, rival), accept, t.market.vault.call(accept.from, "reclaim", b.DealID.ToBig(), d.TermsHash)}
}

// editAndCancel changes a listing twice before it is taken away, with an offer on terms that never come again.
func (t *turn) editAndCancel() []call {
	d, lender, ok := t.offered()
	if !ok {
		return nil
	}
	borrower, present := t.actor(d.Borrower)
	if !present || !t.take(dealThing(d.DealID)) {
		return nil
	}
	id := d.DealID.ToBig()
	calls := []call{t.offer(d, lender)}
	var ask terms
	for range 2 {
		ask = t.askFor(t.between(500, 50_000))
		calls = append(calls, t.market.vault.call(borrower, "updateTerms", id, ask.cap, ask.minPrice, ask.term, ask.expiry))
	}
	last := contracts.DealTerms{
		DealID: d.DealID, Borrower: d.Borrower, Kind: d.Kind, Token: d.Token, AmountOrTokenID: d.AmountOrTokenID,
		Cap: *uint256.MustFromBig(ask.cap), MinPrice: *uint256.MustFromBig(ask.minPrice), Term: ask.term, ListingExpiry: ask.expiry.Uint64(),
		FeeBps: d.FeeBps, Grace: uint64(grace / time.Second),
	}
	return append(calls, t.market.vault.call(borrower, "cancel", id, last.Hash(&t.market.Deployment)))
}

// checkpointAndUnstake takes a staked position through all that can happen to it.
func (t *turn) checkpointAndUnstake() []call {
	p, staker, ok := t.ownStake()
	if !ok {
		return nil
	}
	anybody, _ := t.someone()
	if anybody.key == nil {
		anybody = staker
	}
	id := p.tokenID.ToBig()
	return []call{
		t.market.staking.call(anybody, "checkpoint", id),
		t.market.staking.call(staker, "claim", id),
		t.market.staking.call(staker, "unstake", id),
		t.market.staking.call(staker, "stake", id),
	}
}

// multicall adds to a wallet's call others of its own, as one transaction.
func (t *turn) multicall(first call, all []action) call {
	if !first.from.wallet() || !t.oneIn(2) {
		return first
	}
	t.only = &first.from.address
	defer func() { t.only = nil }()
	calls := []call{first}
	for range t.between(1, 3) {
		if c, ok := t.choose(all); ok && c.from.address == first.from.address {
			calls = append(calls, c)
		}
	}
	return execute(calls...)
}

// imitate has a contract of nobody's emit logs like those of the market's contracts and tokens.
func (t *turn) imitate() (call, bool) {
	someone, ok := t.someone()
	if !ok {
		return call{}, false
	}
	var data []byte
	for range t.between(1, 4) {
		data = append(data, t.imitation()...)
	}
	return call{from: someone, to: &t.market.stranger.address, gas: callGas, data: data, label: "imitate"}, true
}

// imitation is an event of a contract of ours, in the Scribe's encoding: it is about things that there are.
func (t *turn) imitation() []byte {
	names := []string{"DealVault", "AssetRegistry", "StockToken"}
	if t.market.tokenLayer() {
		names = append(names, "EpochController", "RewardDistributor", "LiquidityStaking", "Burner")
	}
	events := sortedEvents(compiled(names[t.random.IntN(len(names))]).ABI)
	event := events[t.random.IntN(len(events))]
	log := []byte{1}
	log = append(log, event.ID[:]...)
	var data []byte
	for _, input := range event.Inputs {
		word := big.NewInt(t.between(1, 50)).FillBytes(make([]byte, 32))
		if input.Indexed {
			log[0]++
			log = append(log, word...)
		} else {
			data = append(data, word...)
		}
	}
	log = append(log, byte(len(data)>>8), byte(len(data)))
	return append(log, data...)
}
