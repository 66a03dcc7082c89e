package agent

import (
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
)

// What an action depends on, and the checks in the order of the specification: the deal, its terms, its state,
// the caller's limits, the wallet's balance.

// readToken reads a token's state for the wallet.
func (p *preparation) readToken(r *reads, token common.Address) {
	m := p.market
	p.token = token
	if token == m.dep.USDG {
		number := func(into **big.Int) func([]any) error {
			return func(v []any) error { *into = v[0].(*big.Int); return nil }
		}
		r.call(token, &m.token, "balanceOf", number(&p.held), p.in.Wallet)
		r.call(token, &m.token, "allowance", number(&p.allowance), p.in.Wallet, m.dep.DealVault)
		r.paused(token, func() { p.tokenPaused = true })
		return
	}
	number := func(into **big.Int) func([]any, error) {
		return func(v []any, err error) {
			if err != nil {
				p.tokenErr = err
				return
			}
			*into = v[0].(*big.Int)
		}
	}
	r.ask(token, &m.token, "balanceOf", number(&p.held), p.in.Wallet)
	r.ask(token, &m.token, "allowance", number(&p.allowance), p.in.Wallet, m.dep.DealVault)
	r.paused(token, func() { p.tokenPaused = true })
}

// readCollateral reads, beside a simulation, whether the collateral that the wallet pays for can be moved.
func (p *preparation) readCollateral(pl *plan, r *reads, into *simulated) {
	if p.deal != nil && pl.spend != nil {
		r.paused(p.deal.Token, func() { into.collateralPaused = true })
	}
}

// tokenAnswered returns an error if the token did not return the wallet's balance or allowance: unknown must not count
// as zero.
func (p *preparation) tokenAnswered() error {
	if p.tokenErr == nil {
		return nil
	}
	if unanswered(p.tokenErr) {
		return chainError(p.tokenErr)
	}
	return refuse(simulationFailed, fmt.Sprintf("the token %s does not say what the wallet has of it", lower(p.token)))
}

// assetLimits are the registry's of a token.
type assetLimits struct {
	Allowed        bool
	Least, Most    *big.Int // of a deal
	MostOpen, Open *big.Int // in all open deals
}

// readAsset reads the registry's entry of the token.
func (p *preparation) readAsset(r *reads) {
	r.call(p.market.dep.AssetRegistry, &p.market.registry, "asset", func(v []any) error {
		kind, least := v[2].(uint8), v[3].(*big.Int)
		p.registered = least.Sign() > 0 && contracts.Kind(kind) == contracts.KindERC20
		p.limits = &assetLimits{Allowed: v[0].(bool), Least: least, Most: v[4].(*big.Int), MostOpen: v[5].(*big.Int), Open: v[6].(*big.Int)}
		return nil
	}, p.in.Token)
}

// registryRefuses is why the registry refuses a listing. The vault asks it last, after it took the collateral, so that
// a listing without an allowance does not come to it.
func (p *preparation) registryRefuses() error {
	l, amount := p.limits, p.in.Amount
	switch {
	case p.in.Action != "list":
		return nil
	case !l.Allowed:
		return wouldRevert("AssetNotAllowed")
	case amount.Cmp(l.Least) < 0 || amount.Cmp(l.Most) > 0 || new(big.Int).Add(l.Open, amount).Cmp(l.MostOpen) > 0:
		return wouldRevert("AmountOutOfRange")
	}
	return nil
}

// readFee reads the vault's fee, which a listing names: the fee may change before it is mined.
func (p *preparation) readFee(r *reads) {
	r.call(p.market.dep.DealVault, &p.market.vault, "feeBps", func(v []any) error {
		p.feeBps = v[0].(uint16)
		return nil
	})
}

func (p *preparation) readDeal(r *reads) {
	p.market.deal(r, p.in.DealID, func(d *Deal) { p.deal = d })
}

func (p *preparation) readBid(r *reads) {
	p.market.bid(r, p.in.BidID, func(b *Bid) { p.bid = b })
}

func (p *preparation) readCredit(r *reads) {
	r.call(p.market.dep.DealVault, &p.market.vault, "credits", func(v []any) error {
		p.credit = v[0].(*big.Int)
		return nil
	}, p.in.Wallet, p.in.Token)
}

// checkAsset ensures that the token is one of the registry, not any contract that a caller names.
func (p *preparation) checkAsset() error {
	if !p.registered || p.in.Token == p.market.dep.USDG {
		return invalid(`"token" is not an ERC-20 that the registry knows as collateral`)
	}
	return nil
}

// checkDeal makes the checks common to all actions on a deal.
func (p *preparation) checkDeal() error {
	if p.deal == nil {
		return refuse(dealNotFound, "there is no deal "+decimal(p.in.DealID))
	}
	if p.action.hasTerms() && p.deal.TermsHash != p.in.TermsHash {
		return refuse(termsChanged, "the deal's terms do not match termsHash: read the deal again")
	}
	return nil
}

func (p *preparation) checkState(want contracts.DealState) error {
	if p.deal.State != want {
		return refuse(notFundable, fmt.Sprintf("the deal is %s, not %s", contracts.DealStateNames[p.deal.State], contracts.DealStateNames[want]))
	}
	return nil
}

// checkListed checks that a deal is LISTED and, if it is to be funded, not expired.
func (p *preparation) checkListed(funding bool) error {
	if err := p.checkState(contracts.DealListedState); err != nil {
		return err
	}
	if funding && p.deal.listingOver(p.head.Timestamp) {
		return refuse(notFundable, "the listing has expired")
	}
	return nil
}

func (p *preparation) checkClaim() error {
	if err := p.checkState(contracts.DealFundedState); err != nil {
		return err
	}
	if end := p.deal.graceEnd(); p.head.Timestamp <= end {
		return refuse(graceNotOver, fmt.Sprintf("term and grace end at %d", end))
	}
	return nil
}

// checkReclaim checks that the deal can still be repaid, before the balance: if it is too late, a balance would not
// help.
func (p *preparation) checkReclaim() error {
	if err := p.checkState(contracts.DealFundedState); err != nil {
		return err
	}
	if p.head.Timestamp > p.deal.graceEnd() {
		return wouldRevert("GraceOver")
	}
	return nil
}

// checkBid checks that a bid is OPEN and belongs to the deal.
func (p *preparation) checkBid() error {
	switch {
	case p.bid == nil || p.bid.DealID.Cmp(p.in.DealID) != 0:
		return refuse(notFundable, "the deal has no bid "+decimal(p.in.BidID))
	case p.bid.State != contracts.BidOpen:
		return refuse(notFundable, fmt.Sprintf("the bid is %s, not OPEN", contracts.BidStateNames[p.bid.State]))
	}
	return nil
}

// checkSpend checks a payment in USDG against the caller's limit and the wallet's balance.
func (p *preparation) checkSpend(amount *big.Int) error {
	if amount.Cmp(p.in.Limit) > 0 {
		return refuse(spendLimit, fmt.Sprintf("it would cost %s raw USDG, which is above the limit", decimal(amount)))
	}
	return p.checkBalance(amount)
}

func (p *preparation) checkBalance(amount *big.Int) error {
	if err := p.tokenAnswered(); err != nil {
		return err
	}
	if p.held.Cmp(amount) < 0 {
		return refuse(insufficientBalance, fmt.Sprintf("the wallet has %s of the required %s raw units of %s", decimal(p.held), decimal(amount), lower(p.token)))
	}
	return nil
}

func (p *preparation) checkCredit() error {
	if p.credit.Sign() == 0 {
		return refuse(nothingToWithdraw, "the wallet has no credit in this token")
	}
	return nil
}

// checkAllowance checks what the vault may take of the wallet. The simulation fails without it, if not for another
// reason.
func (p *preparation) checkAllowance(pl *plan, amount *big.Int) error {
	if pl.allowed == nil || pl.allowed.Cmp(amount) >= 0 {
		return nil
	}
	what := fmt.Sprintf("prepare %s of %s first: the vault's allowance is %s", pl.approve, decimal(amount), decimal(pl.allowed))
	if pl.approve == "approveCollateral" {
		what = fmt.Sprintf("prepare %s of %s of token %s first: the vault may take %s", pl.approve, decimal(amount), lower(p.token), decimal(pl.allowed))
	}
	return refuse(simulationFailed, what)
}
