package agent

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/serving/chain"
)

// action is a kind of transaction that can be prepared.
type action struct {
	fields    []string // of the body, besides action, chainId and wallet
	ofListing bool     // an expired listing refuses it

	// read adds what the action depends on to the first round trip.
	read func(p *preparation, r *reads)
	// check checks the caller's limits and the state, in order.
	check func(p *preparation) error
	// plan returns the transaction.
	plan func(p *preparation) plan
}

// plan is an action's transaction without gas.
type plan struct {
	to     common.Address
	abi    *abi.ABI
	method string
	args   []any

	spend   *Spend // what leaves the wallet; nil: nothing
	allowed *big.Int
	approve string   // the action that sets the vault's allowance
	funds   *big.Int // the price that it funds a deal at; nil: it funds none
	ends    uint64   // when the state that it depends on expires; 0: never
}

func actionNames() []string {
	return []string{
		"approveUsdg", "approveCollateral", "list", "fund", "cancel", "claim", "reclaim", "placeBid", "withdrawBid", "acceptBid", "withdrawCredit",
	}
}

// newActions returns the actions by name.
func newActions() map[string]*action {
	ofDeal := []string{"dealId", "termsHash"}
	return map[string]*action{
		"approveUsdg": {
			fields: []string{"amount"},
			read:   func(p *preparation, r *reads) { p.readToken(r, p.market.dep.USDG) },
			plan: func(p *preparation) plan {
				return plan{to: p.market.dep.USDG, abi: &p.market.token, method: "approve", args: []any{p.market.dep.DealVault, p.in.Amount}}
			},
		},
		"approveCollateral": {
			fields: []string{"token", "amount"},
			read:   func(p *preparation, r *reads) { p.readToken(r, p.in.Token); p.readAsset(r) },
			check:  (*preparation).checkAsset,
			plan: func(p *preparation) plan {
				return plan{to: p.in.Token, abi: &p.market.token, method: "approve", args: []any{p.market.dep.DealVault, p.in.Amount}}
			},
		},
		"list": {
			fields: []string{"token", "amount", "cap", "term", "listingExpiry", "minPrice"},
			read:   func(p *preparation, r *reads) { p.readToken(r, p.in.Token); p.readAsset(r); p.readFee(r) },
			check: func(p *preparation) error {
				if err := p.checkAsset(); err != nil {
					return err
				}
				return p.checkBalance(p.in.Amount)
			},
			plan: func(p *preparation) plan {
				in := p.in
				return plan{
					to: p.market.dep.DealVault, abi: &p.market.vault, method: "list",
					args:  []any{uint8(contracts.KindERC20), in.Token, in.Amount, in.Cap, in.MinPrice, in.Term, seconds(in.ListingExpiry), p.feeBps},
					spend: spend(in.Token, in.Amount), allowed: p.allowance, approve: "approveCollateral", ends: in.ListingExpiry,
				}
			},
		},
		"fund": {
			fields: append(ofDeal, "maxPrice"), ofListing: true,
			read: func(p *preparation, r *reads) { p.readDeal(r); p.readToken(r, p.market.dep.USDG) },
			check: func(p *preparation) error {
				if err := p.checkListed(true); err != nil {
					return err
				}
				return p.checkSpend(p.deal.MinPrice)
			},
			plan: func(p *preparation) plan {
				pl := p.payment("fund", p.deal.MinPrice, p.deal.ListingExpiry, p.in.DealID, [32]byte(p.in.TermsHash))
				pl.funds = p.deal.MinPrice
				return pl
			},
		},
		"cancel": {
			fields: ofDeal,
			read:   (*preparation).readDeal,
			check:  func(p *preparation) error { return p.checkListed(false) },
			plan:   func(p *preparation) plan { return p.onDeal("cancel", 0) },
		},
		"claim": {
			fields: ofDeal,
			read:   (*preparation).readDeal,
			check:  (*preparation).checkClaim,
			plan:   func(p *preparation) plan { return p.onDeal("claim", 0) },
		},
		"reclaim": {
			fields: append(ofDeal, "spendLimit"),
			read:   func(p *preparation, r *reads) { p.readDeal(r); p.readToken(r, p.market.dep.USDG) },
			check: func(p *preparation) error {
				if err := p.checkReclaim(); err != nil {
					return err
				}
				return p.checkSpend(p.deal.Cap)
			},
			plan: func(p *preparation) plan {
				return p.payment("reclaim", p.deal.Cap, p.deal.graceEnd(), p.in.DealID, [32]byte(p.in.TermsHash))
			},
		},
		"placeBid": {
			fields: append(ofDeal, "price", "expiry", "spendLimit"), ofListing: true,
			read: func(p *preparation, r *reads) { p.readDeal(r); p.readToken(r, p.market.dep.USDG) },
			check: func(p *preparation) error {
				if err := p.checkListed(true); err != nil {
					return err
				}
				return p.checkSpend(p.in.Price)
			},
			plan: func(p *preparation) plan {
				return p.payment("bid", p.in.Price, p.untilListingEnds(p.in.Expiry), p.in.DealID, p.in.Price, seconds(p.in.Expiry), [32]byte(p.in.TermsHash))
			},
		},
		"withdrawBid": {
			fields: []string{"dealId", "bidId"},
			read:   func(p *preparation, r *reads) { p.readDeal(r); p.readBid(r) },
			check:  (*preparation).checkBid,
			plan:   func(p *preparation) plan { return p.onBid("withdrawBid", p.bid.TermsHash, 0) },
		},
		"acceptBid": {
			fields: []string{"dealId", "bidId", "termsHash", "minPrice"}, ofListing: true,
			read: func(p *preparation, r *reads) { p.readDeal(r); p.readBid(r) },
			check: func(p *preparation) error {
				if p.bid != nil && p.bid.DealID.Cmp(p.in.DealID) == 0 && p.bid.TermsHash != p.deal.TermsHash {
					return refuse(termsChanged, "the bid was made on other terms than the deal has now")
				}
				if err := p.checkListed(true); err != nil {
					return err
				}
				if err := p.checkBid(); err != nil {
					return err
				}
				if rules.BidExpired(p.bid.Expiry, p.head.Timestamp) {
					return refuse(notFundable, fmt.Sprintf("the bid expired at %d", p.bid.Expiry))
				}
				if p.bid.Price.Cmp(p.in.MinPrice) < 0 {
					return refuse(spendLimit, fmt.Sprintf("the bid's price is %s, below minPrice", decimal(p.bid.Price)))
				}
				return nil
			},
			plan: func(p *preparation) plan {
				pl := p.onBid("acceptBid", p.in.TermsHash, p.untilListingEnds(p.bid.Expiry))
				pl.funds = p.bid.Price
				return pl
			},
		},
		"withdrawCredit": {
			fields: []string{"token"},
			read:   func(p *preparation, r *reads) { p.readToken(r, p.in.Token); p.readCredit(r) },
			check:  (*preparation).checkCredit,
			plan:   func(p *preparation) plan { return p.call("withdraw", 0, p.in.Token, p.in.Wallet, p.credit) },
		},
	}
}

func seconds(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

func spend(token common.Address, amount *big.Int) *Spend {
	return &Spend{Token: lower(token), Amount: decimal(amount)}
}

// untilListingEnds is a time, or the end of the deal's listing where that is earlier.
func (p *preparation) untilListingEnds(t uint64) uint64 {
	if e := p.deal.ListingExpiry; e != 0 {
		return min(t, e)
	}
	return t
}

// call makes a plan without a payment.
func (p *preparation) call(method string, ends uint64, args ...any) plan {
	return plan{to: p.market.dep.DealVault, abi: &p.market.vault, method: method, args: args, ends: ends}
}

// onDeal makes a plan that names the deal and its terms: the number alone may become another deal's.
func (p *preparation) onDeal(method string, ends uint64) plan {
	return p.call(method, ends, p.in.DealID, [32]byte(p.in.TermsHash))
}

// onBid makes a plan that names the bid, what terms it was made on, and its price.
func (p *preparation) onBid(method string, terms common.Hash, ends uint64) plan {
	return p.call(method, ends, p.in.BidID, [32]byte(terms), p.bid.Price)
}

// payment makes a plan with a payment in USDG.
func (p *preparation) payment(method string, amount *big.Int, ends uint64, args ...any) plan {
	pl := p.call(method, ends, args...)
	pl.spend, pl.allowed, pl.approve = spend(p.market.dep.USDG, amount), p.allowance, "approveUsdg"
	return pl
}

// pack encodes the calldata of a plan.
func (pl *plan) pack() ([]byte, error) {
	data, err := pl.abi.Pack(pl.method, pl.args...)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", pl.method, err)
	}
	return data, nil
}

// transaction is the plan as a call.
func (pl *plan) transaction(from common.Address) (chain.Call, error) {
	data, err := pl.pack()
	return chain.Call{From: from, To: pl.to, Data: data}, err
}

// hasTerms reports whether the caller passes the deal's termsHash.
func (a *action) hasTerms() bool { return slices.Contains(a.fields, "termsHash") }

func (a *action) hasDeal() bool { return slices.Contains(a.fields, "dealId") }
