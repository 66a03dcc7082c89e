package contracts

import (
	"fmt"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"
)

// walk is a random sequence of transactions on a market: any sender, any function, arguments that are sometimes wrong.
// A transaction may be refused; whatever happens, the invariants hold after it.
type walk struct {
	*market
	t        testing.TB
	people   []common.Address
	minted   []*big.Int          // positions that people hold, staked or listed
	burned   *big.Int            // sTKN
	claimed  *big.Int            // sTKN, from drips
	released *big.Int            // sTKN, for stakes to earn
	earned   *big.Int            // sTKN, that left stakes, paid or owed
	dripped  *big.Int            // sTKN, drips of stakes
	debts    map[string]*big.Int // of sTKN, as events tell, by account and position
	supply   *big.Int            // of sTKN at first
	weekly   *big.Int            // of all epochs
	given    *big.Int            // creator fees
	passed   map[string]int
	draws    uint64
}

// TestInvariants: no sequence of transactions breaks what the contracts promise. It also counts what went through,
// so that a walk that gets nowhere is seen.
func TestInvariants(t *testing.T) {
	base := newMarket(t)
	base.openEpoch(t)
	passed := map[string]int{}
	walks := func(rt *rapid.T) {
		w := &walk{
			market: base.fork(), t: t, people: []common.Address{alice, bob, carol},
			burned: new(big.Int), claimed: new(big.Int), released: new(big.Int), earned: new(big.Int), dripped: new(big.Int), debts: map[string]*big.Int{},
			weekly: big.NewInt(10_000), given: new(big.Int), passed: passed,
		}
		w.supply = w.number(t, w.STKN, "totalSupply")
		actions := []func(*rapid.T){
			w.list, w.list, w.listPosition, w.update, w.on("cancel", DealListedState), w.fund, w.fund, w.fund,
			w.bid, w.bid, w.onBid("withdrawBid"), w.onBid("acceptBid"), w.onBid("acceptBid"),
			w.on("reclaim", DealFundedState), w.on("reclaim", DealFundedState), w.on("claim", DealFundedState), w.on("claim", DealFundedState), w.withdraw, w.withdraw, w.withdrawNFT,
			w.epochs, w.release, w.claimDrips, w.claimDrips, w.stake, w.staked, w.staked, w.creatorFees,
			w.refuse, w.refuse, w.collectOwed, w.collectOwed,
			w.tradeSome, w.attack, w.lastSeconds, w.burn, w.administer, w.wait, w.wait,
		}
		for range 8 {
			w.calm()
			for range 12 { // checking costs more than acting
				oneOf(w, rt, "action", actions)(rt)
			}
			w.check(rt)
		}
	}
	rapid.Check(t, walks)
	for round := 1; round < maxRounds && !t.Failed() && !testing.Short() && len(missed(passed)) > 0; round++ {
		rapid.Check(t, walks) // a hundred walks may miss what is rare
	}
	t.Log("went through:", passed)
	if testing.Short() {
		return // so few walks need not get everywhere
	}
	if never := missed(passed); len(never) > 0 && !t.Failed() {
		t.Errorf("no walk ever got these through: %v", never)
	}
}

// maxRounds bounds how often a hundred walks begin.
const maxRounds = 10

// missed are the transactions of which none went through.
func missed(passed map[string]int) (never []string) {
	for _, method := range []string{
		"list", "list position", "updateTerms", "cancel", "fund", "bid", "withdrawBid", "acceptBid", "reclaim", "claim",
		"withdraw", "withdrawNFT", "openEpoch", "setRates", "releaseLiquidity", "claim drips", "stake", "checkpoint", "unstake",
		"claim stake", "notifyCreatorFees", "withdrawFees", "trade", "attack", "last seconds", "burn",
		"unstake unpaid", "claim unpaid", "collectOwed",
	} {
		if passed[method] == 0 {
			never = append(never, method)
		}
	}
	return never
}

func (w *walk) try(name string, from, to common.Address, method string, args ...any) {
	_, logs, err := w.call(w.t, from, to, method, args...)
	if err != nil {
		return
	}
	w.passed[name]++
	w.count(w.events(w.t, logs))
}

func (w *walk) must(t testing.TB, from, to common.Address, method string, args ...any) {
	t.Helper()
	w.count(w.market.must(t, from, to, method, args...))
}

// count sums up what events tell.
func (w *walk) count(events []Event) {
	for _, event := range events {
		switch e := event.(type) {
		case *Burned:
			w.burned.Add(w.burned, e.STKNBurned.ToBig())
		case *DripCreated:
			if e.Source == DripLP {
				w.dripped.Add(w.dripped, e.Total.ToBig())
			}
		case *DripClaimed:
			w.claimed.Add(w.claimed, e.Amount.ToBig())
		case *EmissionsClaimed:
			w.earned.Add(w.earned, e.Amount.ToBig())
		case *EmissionsOwed:
			whose, debt := fmt.Sprint(e.Account, &e.TokenID), e.Owed.ToBig()
			if before := w.debts[whose]; before != nil && debt.Sign() > 0 {
				w.earned.Sub(w.earned, before)
			}
			w.earned.Add(w.earned, debt)
			w.debts[whose] = debt
		case *EpochOpened:
			w.weekly.Add(w.weekly, e.Weekly.ToBig())
		case *LiquidityReleased:
			w.released.Add(w.released, e.Amount.ToBig())
		case *CreatorFeesNotified:
			w.given.Add(w.given, e.Amount.ToBig())
		}
	}
}

// oneOf draws an item, each as often as the next: rapid alone would favour the first, and walks would only list.
func oneOf[T any](w *walk, t *rapid.T, label string, items []T) T {
	w.draws++
	n := (rapid.Uint64().Draw(t, label) + w.draws) * 0x9e3779b97f4a7c15
	return items[(n>>32)%uint64(len(items))]
}

// Draws.

func (w *walk) person(t *rapid.T) common.Address { return oneOf(w, t, "who", w.people) }

// upTo draws an ID from 1 to what the counter has given out, and now and then one more.
func (w *walk) upTo(t *rapid.T, contract common.Address, counter string) uint64 {
	ids := make([]uint64, w.number(w.t, contract, counter).Uint64())
	for i := range ids {
		ids[i] = uint64(i) + 1
	}
	return oneOf(w, t, counter, ids)
}

// dealIn draws a deal, mostly one in that state.
func (w *walk) dealIn(t *rapid.T, state DealState) uint64 {
	var fitting []uint64
	for id := uint64(1); id < w.number(w.t, w.DealVault, "nextDealId").Uint64(); id++ {
		if DealState(w.deal(w.t, id).State) == state {
			fitting = append(fitting, id)
		}
	}
	if len(fitting) == 0 || oneOf(w, t, "any", []bool{false, false, false, true}) {
		return w.upTo(t, w.DealVault, "nextDealId")
	}
	return oneOf(w, t, "deal", fitting)
}

// party draws who acts on a deal: mostly one who may.
func (w *walk) party(t *rapid.T, d dealTuple) common.Address {
	return oneOf(w, t, "party", []common.Address{d.Borrower, d.Borrower, d.Lender, d.Lender, alice})
}

func (w *walk) terms(t *rapid.T) []any {
	price := rapid.Uint64Range(0, 5_000).Draw(t, "price")
	term := oneOf(w, t, "term", []int{term7, term7, term7, term7, term21, term21, 1})
	return []any{
		price + rapid.Uint64Range(0, 500).Draw(t, "premium"), price,
		term, oneOf(w, t, "listing expiry", []uint64{0, 0, 0, 0, w.now - 1, w.now + day}),
	}
}

// Actions.

func (w *walk) list(t *rapid.T) {
	token := oneOf(w, t, "token", []common.Address{w.stock, w.stock, w.weth, w.weth, w.TKN})
	args := append([]any{KindERC20, token, rapid.Uint64Range(5, 1_050).Draw(t, "amount")}, w.terms(t)...)
	args = append(args, w.view(w.t, w.DealVault, "feeBps"))
	w.try("list", w.person(t), w.DealVault, "list", args...)
}

func (w *walk) listPosition(t *rapid.T) {
	who := w.person(t)
	if w.view(w.t, w.USDG, "paused") == true || w.view(w.t, w.USDG, "isFrozen", who) == true {
		return // no new positions without dollars
	}
	key := oneOf(w, t, "pool", []poolKey{w.wethPool, w.wethPool, w.stknPool})
	id := w.mint(w.t, who, key, -600, 600, rapid.Uint64Range(900, 5_000).Draw(t, "liquidity"))
	w.minted = append(w.minted, id)
	args := append([]any{KindPosition, w.PositionManager, id}, w.terms(t)...)
	args = append(args, w.view(w.t, w.DealVault, "feeBps"))
	w.try("list position", who, w.DealVault, "list", args...)
}

func (w *walk) update(t *rapid.T) {
	id := w.dealIn(t, DealListedState)
	args := append([]any{id}, w.terms(t)...)
	w.try("updateTerms", w.party(t, w.deal(w.t, id)), w.DealVault, "updateTerms", args...)
}

func (w *walk) on(method string, state DealState) func(*rapid.T) {
	return func(t *rapid.T) {
		id := w.dealIn(t, state)
		w.try(method, w.party(t, w.deal(w.t, id)), w.DealVault, method, id, w.currentTerms(id))
	}
}

func (w *walk) currentTerms(id uint64) common.Hash {
	values, _, err := w.call(w.t, alice, w.DealVault, "termsHash", id)
	if err != nil {
		return common.Hash{}
	}
	return common.Hash(values[0].([32]byte))
}

func (w *walk) fund(t *rapid.T) {
	id := w.dealIn(t, DealListedState)
	w.try("fund", w.person(t), w.DealVault, "fund", id, w.currentTerms(id))
}

func (w *walk) bid(t *rapid.T) {
	id := w.dealIn(t, DealListedState)
	most := w.deal(w.t, id).Cap.Uint64()
	price := rapid.Uint64Range(0, most+most/10).Draw(t, "price")
	w.try("bid", w.person(t), w.DealVault, "bid", id, price, w.now+oneOf(w, t, "for", []uint64{0, day, week, week}), w.currentTerms(id))
}

func (w *walk) onBid(method string) func(*rapid.T) {
	return func(t *rapid.T) {
		id := w.upTo(t, w.DealVault, "nextBidId")
		b := viewInto[bidTuple](w.t, w.evm, w.DealVault, "bids", id)
		d := w.deal(w.t, b.DealId.Uint64())
		who := oneOf(w, t, "party", []common.Address{b.Lender, d.Borrower})
		w.try(method, who, w.DealVault, method, id, b.TermsHash, b.Price)
	}
}

func (w *walk) withdraw(t *rapid.T) {
	asset := oneOf(w, t, "asset", []common.Address{w.USDG, w.USDG, w.stock, w.weth})
	to := oneOf(w, t, "to", []common.Address{alice, bob, w.DealVault})
	part := big.NewInt(rapid.Int64Range(1, 110).Draw(t, "percent"))
	for _, who := range append(w.people, fees) {
		credit := w.number(w.t, w.DealVault, "credits", who, asset)
		amount := new(big.Int).Quo(new(big.Int).Mul(credit, part), big.NewInt(100))
		w.try("withdraw", who, w.DealVault, "withdraw", asset, to, amount)
		w.try("withdrawFees", who, w.LiquidityStaking, "withdrawFees", who)
	}
}

func (w *walk) withdrawNFT(t *rapid.T) {
	for _, id := range w.minted {
		who := w.view(w.t, w.DealVault, "nftCredits", w.PositionManager, id).(common.Address)
		if who == (common.Address{}) {
			who = w.person(t) // nobody sends from address 0
		}
		w.try("withdrawNFT", who, w.DealVault, "withdrawNFT", w.PositionManager, id, w.person(t))
	}
}

func (w *walk) epochs(t *rapid.T) {
	weekly := rapid.Uint64Range(0, 2_000).Draw(t, "weekly")
	part := weekly / 3
	w.try("openEpoch", owner, w.EpochController, "openEpoch", weekly, part, part, part)
	rate := rapid.Uint64Range(0, 3e17).Draw(t, "rate")
	price := new(big.Int).Exp(big.NewInt(10), big.NewInt(30), nil)
	w.try("setRates", owner, w.EpochController, "setRates", rate, 2*rate, price, rapid.Uint64Range(0, 10_000).Draw(t, "share"))
}

func (w *walk) release(t *rapid.T) {
	w.try("releaseLiquidity", owner, w.EpochController, "releaseLiquidity", rapid.Uint64Range(0, 700).Draw(t, "amount"))
}

func (w *walk) claimDrips(t *rapid.T) {
	for id := uint64(1); id < w.number(w.t, w.RewardDistributor, "nextDripId").Uint64(); id++ {
		ids := []*big.Int{new(big.Int).SetUint64(id)}
		w.try("claim drips", w.drip(w.t, id).Account, w.RewardDistributor, "claim", ids, w.person(t))
	}
}

func (w *walk) stake(t *rapid.T) {
	who := w.person(t)
	lower := 60 * rapid.Int64Range(-20, 10).Draw(t, "lower")
	id := w.mint(w.t, who, w.stknPool, lower, lower+600, rapid.Uint64Range(1e6, 1e9).Draw(t, "liquidity"))
	w.minted = append(w.minted, id)
	w.try("stake", who, w.LiquidityStaking, "stake", id)
}

func (w *walk) staked(t *rapid.T) {
	if len(w.minted) == 0 {
		return
	}
	id := oneOf(w, t, "position", w.minted)
	who := oneOf(w, t, "who", []common.Address{w.stakeOf(w.t, id).Owner, alice})
	switch oneOf(w, t, "what", []int{0, 1, 2, 2}) {
	case 0:
		w.try("unstake", who, w.LiquidityStaking, "unstake", id)
	case 1:
		w.try("claim stake", who, w.LiquidityStaking, "claim", id)
	default:
		w.try("checkpoint", who, w.LiquidityStaking, "checkpoint", id)
	}
}

// refuse has a position that mostly earned something claimed or unstaked while the distributor makes no drips of stakes, which
// lasts until collectOwed or calm.
func (w *walk) refuse(t *rapid.T) {
	w.try("releaseLiquidity", owner, w.EpochController, "releaseLiquidity", rapid.Uint64Range(1, 100).Draw(t, "amount"))
	w.now += oneOf(w, t, "seconds", []uint64{0, day, day, 3 * day})
	var staked []*big.Int
	tick := w.number(w.t, w.LiquidityStaking, "tick")
	for _, id := range w.minted {
		if s := w.stakeOf(w.t, id); s.Owner != (common.Address{}) && s.TickLower.Cmp(tick) <= 0 && tick.Cmp(s.TickUpper) < 0 {
			staked = append(staked, id)
		}
	}
	if len(staked) == 0 {
		return
	}
	w.must(w.t, owner, w.RewardDistributor, "setSource", w.LiquidityStaking, false)
	id, method := oneOf(w, t, "position", staked), oneOf(w, t, "what", []string{"claim", "unstake", "unstake"})
	who := w.stakeOf(w.t, id).Owner
	w.must(w.t, alice, w.LiquidityStaking, "checkpoint", id)
	earned, owed := w.stakeOf(w.t, id).EmissionsEarned, w.number(w.t, w.LiquidityStaking, "owed", who, id)
	w.must(w.t, who, w.LiquidityStaking, method, id)
	left, debt := w.stakeOf(w.t, id).EmissionsEarned, w.number(w.t, w.LiquidityStaking, "owed", who, id)
	if method == "unstake" {
		owed.Add(owed, earned)
		earned = new(big.Int)
	}
	if left.Cmp(earned) != 0 || debt.Cmp(owed) != 0 {
		t.Fatalf("%s of position %s without a drip: earned %s, want %s, and owed %s, want %s", method, id, left, earned, debt, owed)
	}
	if left.Sign() > 0 || method == "unstake" && debt.Sign() > 0 {
		w.passed[method+" unpaid"]++
	}
}

// collectOwed asks for all that is owed to anybody, and mostly makes the distributor pay before.
func (w *walk) collectOwed(t *rapid.T) {
	if oneOf(w, t, "pays", []bool{true, true, false}) {
		w.must(w.t, owner, w.RewardDistributor, "setSource", w.LiquidityStaking, true)
	}
	for _, who := range w.people {
		for _, id := range w.minted {
			w.try("collectOwed", who, w.LiquidityStaking, "collectOwed", id)
		}
	}
}

func (w *walk) creatorFees(t *rapid.T) {
	w.try("notifyCreatorFees", w.person(t), w.LiquidityStaking, "notifyCreatorFees", oneOf(w, t, "amount", []uint64{0, 1, 1_000_000}))
}

func (w *walk) tradeSome(t *rapid.T) {
	token := oneOf(w, t, "sell", []common.Address{w.TKN, w.STKN})
	if w.trade(w.t, w.person(t), w.stknPool, token, rapid.Int64Range(1, 5e13).Draw(t, "amount")) == nil {
		w.passed["trade"]++
	}
}

// attack is a sandwich with any position in the middle, and a gift that its own position is there for: nobody's earnings
// change by it.
func (w *walk) attack(t *rapid.T) {
	if len(w.minted) == 0 || w.view(w.t, w.USDG, "paused") == true || w.view(w.t, w.USDG, "isFrozen", carol) == true {
		return
	}
	id := oneOf(w, t, "position", w.minted)
	if w.stakeOf(w.t, id).Owner == (common.Address{}) {
		return
	}
	w.must(w.t, carol, w.LiquidityStaking, "checkpoint", id)
	before := w.stakeOf(w.t, id)
	guest := w.mint(w.t, carol, w.stknPool, -600, 600, 1e12)
	w.minted = append(w.minted, guest)
	w.must(w.t, carol, w.LiquidityStaking, "stake", guest)
	w.try("notifyCreatorFees", carol, w.LiquidityStaking, "notifyCreatorFees", 1_000_000)
	w.sandwich(w.t, carol, id, guest)
	w.must(w.t, carol, w.LiquidityStaking, "checkpoint", id)
	if after := w.stakeOf(w.t, id); after.EmissionsEarned.Cmp(before.EmissionsEarned) != 0 || after.FeesEarned.Cmp(before.FeesEarned) != 0 {
		t.Fatalf("position %s earned by a sandwich: %+v, before %+v", id, after, before)
	}
	if s := w.stakeOf(w.t, guest); s.EmissionsEarned.Sign() != 0 || s.FeesEarned.Sign() != 0 {
		t.Fatalf("a guest earned in no time: %+v", s)
	}
	w.must(w.t, carol, w.LiquidityStaking, "unstake", guest)
	w.passed["attack"]++
}

// lastSeconds stakes most of what is in range for the last second of a stream of fees, and gives a unit so that it goes on:
// in three seconds nobody earns more than flows in them. A stream is never faster than twice all that was ever given would
// be over a week: three times, with lengths of whole seconds.
func (w *walk) lastSeconds(t *rapid.T) {
	finish := w.view(w.t, w.LiquidityStaking, "feesFinish").(*big.Int).Uint64()
	if finish <= w.now || w.view(w.t, w.USDG, "paused") == true || w.view(w.t, w.USDG, "isFrozen", carol) == true {
		return
	}
	w.now = finish - 1
	lower := floorTo(w.tickOf(w.t), 60)
	guest := w.mint(w.t, carol, w.stknPool, lower-600, lower+660, 1e12)
	w.minted = append(w.minted, guest)
	w.must(w.t, carol, w.LiquidityStaking, "stake", guest)
	w.try("last seconds", carol, w.LiquidityStaking, "notifyCreatorFees", 1)
	w.now += 3
	w.must(w.t, carol, w.LiquidityStaking, "checkpoint", guest)
	most := new(big.Int).Mul(w.given, big.NewInt(3*3))
	most.Quo(most, big.NewInt(week)).Add(most, big.NewInt(3))
	if s := w.stakeOf(w.t, guest); s.FeesEarned.Cmp(most) > 0 {
		t.Fatalf("a guest earned %s in three seconds, of %s ever given", s.FeesEarned, w.given)
	}
	w.must(w.t, carol, w.LiquidityStaking, "unstake", guest)
}

func floorTo(n, step int32) int64 {
	return int64(n - (n%step+step)%step)
}

func (w *walk) burn(t *rapid.T) {
	w.try("burn", w.person(t), w.Burner, "burn", rapid.Uint64Range(0, 1e9).Draw(t, "usdg"), 0, 0)
}

// administer does what an owner or an issuer may do at any time.
func (w *walk) administer(t *rapid.T) {
	switch oneOf(w, t, "what", []int{0, 0, 1, 1, 2, 3}) {
	case 0:
		token := oneOf(w, t, "of", []common.Address{w.DealVault, w.USDG, w.stock})
		method := "pause"
		if w.view(w.t, token, "paused") == true {
			method = "unpause"
		}
		w.try(method, owner, token, method)
	case 1:
		who := w.person(t)
		method := "freeze"
		if w.view(w.t, w.USDG, "isFrozen", who) == true {
			method = "unfreeze"
		}
		w.try(method, owner, w.USDG, method, who)
	case 2:
		w.try("setFee", owner, w.DealVault, "setFee", rapid.Uint64Range(0, 1_100).Draw(t, "bps"), fees)
	case 3:
		most := rapid.Int64Range(100, 2_000).Draw(t, "limit")
		w.try("setAsset", owner, w.AssetRegistry, "setAsset", w.stock,
			limits{rapid.Bool().Draw(t, "allowed"), KindERC20, LaneStock, big.NewInt(10), big.NewInt(most), big.NewInt(2 * most)})
	}
}

// calm ends every pause, freeze and refusal, so that one does not last for the rest of the walk.
func (w *walk) calm() {
	for _, contract := range []common.Address{w.DealVault, w.USDG, w.stock} {
		w.try("unpause", owner, contract, "unpause")
	}
	for _, who := range w.people {
		w.try("unfreeze", owner, w.USDG, "unfreeze", who)
	}
	w.must(w.t, owner, w.RewardDistributor, "setSource", w.LiquidityStaking, true)
}

func (w *walk) wait(t *rapid.T) {
	w.now += oneOf(w, t, "seconds", []uint64{1, 3600, day, 3 * day, 6 * day, term7 + grace})
}

// The invariants.

func (w *walk) check(t *rapid.T) {
	w.checkVault(t)
	w.checkRewards(t)
	w.checkStaking(t)
}

// checkVault: what the vault holds = open collateral + open bids + credits, of every asset; openRaw = open collateral; a
// position in escrow is either collateral or a credit, and a deal's figures stay within their bounds.
func (w *walk) checkVault(t *rapid.T) {
	owed, open := map[common.Address]*big.Int{}, map[common.Address]*big.Int{}
	for _, token := range []common.Address{w.USDG, w.stock, w.weth, w.PositionManager} {
		owed[token], open[token] = new(big.Int), new(big.Int)
	}
	escrowed := map[string]bool{}
	for id := uint64(1); id < w.number(w.t, w.DealVault, "nextDealId").Uint64(); id++ {
		d := w.deal(w.t, id)
		if d.MinPrice.Sign() == 0 || d.Cap.Cmp(d.MinPrice) < 0 || d.Price.Cmp(d.Cap) > 0 || d.Fee.Cmp(d.Price) > 0 || d.Lender == d.Borrower {
			t.Fatalf("deal %d: %+v", id, d)
		}
		if DealState(d.State) != DealListedState && DealState(d.State) != DealFundedState {
			continue
		}
		if Kind(d.Kind) == KindPosition {
			open[d.Token].Add(open[d.Token], big.NewInt(1))
			escrowed[d.AmountOrTokenId.String()] = true
			continue
		}
		open[d.Token].Add(open[d.Token], d.AmountOrTokenId)
		owed[d.Token].Add(owed[d.Token], d.AmountOrTokenId)
	}
	for id := uint64(1); id < w.number(w.t, w.DealVault, "nextBidId").Uint64(); id++ {
		if b := viewInto[bidTuple](w.t, w.evm, w.DealVault, "bids", id); BidState(b.State) == BidOpen {
			owed[w.USDG].Add(owed[w.USDG], b.Price)
		}
	}
	for _, token := range []common.Address{w.USDG, w.stock, w.weth} {
		for _, who := range append(w.people, fees) {
			owed[token].Add(owed[token], w.number(w.t, w.DealVault, "credits", who, token))
		}
		if held := w.number(w.t, token, "balanceOf", w.DealVault); held.Cmp(owed[token]) != 0 {
			t.Fatalf("the vault holds %s of %s and owes %s", held, token, owed[token])
		}
	}
	for _, token := range []common.Address{w.stock, w.weth, w.PositionManager} {
		values, _, err := w.call(w.t, alice, w.AssetRegistry, "asset", token)
		if err != nil || values[6].(*big.Int).Cmp(open[token]) != 0 {
			t.Fatalf("openRaw of %s is %v (%v), the open deals hold %s", token, values, err, open[token])
		}
	}
	for _, id := range w.minted {
		credited := w.view(w.t, w.DealVault, "nftCredits", w.PositionManager, id) != common.Address{}
		held := w.view(w.t, w.PositionManager, "ownerOf", id) == w.DealVault
		if credited && escrowed[id.String()] || held != (credited || escrowed[id.String()]) {
			t.Fatalf("position %s: held %t, collateral %t, credited %t", id, held, escrowed[id.String()], credited)
		}
	}
}

// checkRewards: drips claimed <= unlocked <= total; reserved and released within their budgets, and all of them within
// the weekly sums; drips within what was reserved and released; sTKN minted = drips claimed.
func (w *walk) checkRewards(t *rapid.T) {
	drips := new(big.Int)
	for id := uint64(1); id < w.number(w.t, w.RewardDistributor, "nextDripId").Uint64(); id++ {
		d := w.drip(w.t, id)
		unlocked := w.number(w.t, w.RewardDistributor, "unlocked", id)
		if d.Claimed.Cmp(unlocked) > 0 || unlocked.Cmp(d.Total) > 0 {
			t.Fatalf("drip %d: claimed %s, unlocked %s, total %s", id, d.Claimed, unlocked, d.Total)
		}
		drips.Add(drips, d.Total)
	}
	spent := new(big.Int)
	for n := uint64(1); n <= uint64(w.view(w.t, w.EpochController, "current").(uint32)); n++ {
		e := w.epoch(w.t, n)
		if e.Reserved7.Cmp(e.DealBudget7) > 0 || e.Reserved21.Cmp(e.DealBudget21) > 0 || e.Released.Cmp(e.LiquidityBudget) > 0 {
			t.Fatalf("epoch %d overspent: %+v", n, e)
		}
		spent.Add(spent, e.Reserved7).Add(spent, e.Reserved21).Add(spent, e.Released)
	}
	if spent.Cmp(w.weekly) > 0 || drips.Cmp(spent) > 0 {
		t.Fatalf("weekly %s, spent %s, in drips %s", w.weekly, spent, drips)
	}
	supply := new(big.Int).Add(w.supply, w.claimed)
	if got := w.number(w.t, w.STKN, "totalSupply"); got.Cmp(supply.Sub(supply, w.burned)) != 0 {
		t.Fatalf("sTKN supply %s, want %s", got, supply)
	}
}

// checkStaking: totalWeight = the sum of the stakes' weights, activeWeight = that of those in range; each weighs its
// liquidity; emissions paid, owed and earned are within those released, and none is paid and owed; the fees that it holds cover
// what it owes.
func (w *walk) checkStaking(t *rapid.T) {
	weight, active, owed, emissions := new(big.Int), new(big.Int), new(big.Int), new(big.Int)
	tick := w.number(w.t, w.LiquidityStaking, "tick")
	for _, id := range w.minted {
		s := w.stakeOf(w.t, id)
		if s.TickLower.Cmp(tick) <= 0 && tick.Cmp(s.TickUpper) < 0 {
			active.Add(active, s.Weight)
		}
		if s.Weight.Cmp(s.Liquidity) != 0 {
			t.Fatalf("position %s weighs %s with a liquidity of %s", id, s.Weight, s.Liquidity)
		}
		weight.Add(weight, s.Weight)
		owed.Add(owed, s.FeesEarned)
		emissions.Add(emissions, s.EmissionsEarned)
	}
	if total := w.number(w.t, w.LiquidityStaking, "totalWeight"); total.Cmp(weight) != 0 {
		t.Fatalf("total weight %s, the stakes weigh %s", total, weight)
	}
	if got := w.number(w.t, w.LiquidityStaking, "activeWeight"); got.Cmp(active) != 0 {
		t.Fatalf("active weight %s at tick %s, the stakes in range weigh %s", got, tick, active)
	}
	for _, who := range w.people {
		owed.Add(owed, w.number(w.t, w.LiquidityStaking, "feeCredits", who))
	}
	debts := new(big.Int)
	for _, who := range w.people {
		for _, id := range w.minted {
			debts.Add(debts, w.number(w.t, w.LiquidityStaking, "owed", who, id))
		}
	}
	left := new(big.Int).Add(w.dripped, debts)
	if left.Cmp(w.earned) != 0 {
		t.Fatalf("%s sTKN left the stakes, %s are in drips and %s owed", w.earned, w.dripped, debts)
	}
	if emissions.Add(emissions, left).Cmp(w.released) > 0 {
		t.Fatalf("stakes earned %s sTKN of %s released, %s are in drips and %s owed", emissions, w.released, w.dripped, debts)
	}
	if held := w.number(w.t, w.USDG, "balanceOf", w.LiquidityStaking); held.Cmp(owed) < 0 {
		t.Fatalf("staking holds %s USDG and owes %s", held, owed)
	}
}
