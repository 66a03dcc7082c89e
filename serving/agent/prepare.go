package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

const prepareRoute = "/v1/transactions/prepare"

// Prepared is an unsigned transaction and its effects.
type Prepared struct {
	Action      string      `json:"action"`
	Transaction Transaction `json:"transaction"`
	Decoded     Decoded     `json:"decoded"`
	Terms       *DealTerms  `json:"terms"`
	Spend       *Spend      `json:"spend"`
	Simulation  Simulation  `json:"simulation"`
	Warnings    []Warning   `json:"warnings"`
	ExpiresAt   uint64      `json:"expiresAt"`
	Evidence    Evidence    `json:"evidence"`
}

// Transaction is what the wallet signs; the wallet adds the nonce and the fees.
type Transaction struct {
	ChainID uint64 `json:"chainId"`
	From    string `json:"from"`
	To      string `json:"to"`
	Data    string `json:"data"`
	Value   string `json:"value"`
	Gas     string `json:"gas"`
}

// Decoded is the decoded calldata.
type Decoded struct {
	Function string     `json:"function"` // its signature
	Args     []Argument `json:"args"`
}

// Argument is an argument of a call. Addresses and hashes are hex, numbers decimal strings.
type Argument struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// DealTerms are the terms of the transaction's deal.
type DealTerms struct {
	DealID        string `json:"dealId"`
	TermsHash     string `json:"termsHash"`
	Cap           string `json:"cap"`
	MinPrice      string `json:"minPrice"`
	Term          uint32 `json:"term"`
	ListingExpiry uint64 `json:"listingExpiry"`
	FeeBps        uint16 `json:"feeBps"`
	Grace         uint64 `json:"grace"`
	State         string `json:"state"`
}

// Spend is the maximum that leaves the wallet, without gas.
type Spend struct {
	Token  string `json:"token"`
	Amount string `json:"amount"`
}

// preparation is a request in progress.
type preparation struct {
	in     *Input
	action *action
	market *market
	head   chain.Block

	// Read from the chain:
	deal            *Deal
	bid             *Bid
	token           common.Address
	held, allowance *big.Int
	tokenErr        error // why the token did not return them
	tokenPaused     bool

	registered bool
	limits     *assetLimits
	feeBps     uint16
	credit     *big.Int
	coin       big.Int // the wallet's ether, for gas
}

func (a *Agent) prepare(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	in, err := a.readInput(req)
	if err != nil {
		return err
	}
	if in.ChainID != a.cfg.Deployment.ChainID {
		return refuse(chainMismatch, fmt.Sprintf("this service is for chain %d", a.cfg.Deployment.ChainID))
	}
	answer, err := agreed(ctx, a, func(ctx context.Context) (*Prepared, error) { return a.prepareOfTwo(ctx, in) })
	if errors.Is(err, chain.ErrDiffer) {
		return chainError(err)
	}
	if err != nil {
		return err
	}
	a.metrics.prepared.WithLabelValues(in.Action).Inc()
	return write(res, answer)
}

// prepareOfTwo prepares a transaction on which two nodes agree, or by one if there is no other.
func (a *Agent) prepareOfTwo(ctx context.Context, in *Input) (_ *Prepared, err error) {
	// The node that is read simulates too, so one that can simulate is preferred. Another node is asked for a second
	// opinion.
	ctx = chain.Preferring(chain.WithOtherNode(ctx), bySimulation)
	p := &preparation{in: in, action: a.actions[in.Action], market: a.contracts}
	if p.head, err = a.head(); err != nil {
		return nil, err
	}
	worth := a.worth(ctx, p)
	if err := a.readState(ctx, p); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, a.confirmed(ctx, p, nil, err)
	}
	return a.finish(ctx, p, worth)
}

// check makes the checks of the action on what was read.
func (p *preparation) check() error {
	if p.action.hasDeal() {
		if err := p.checkDeal(); err != nil {
			return err
		}
	}
	if p.action.check != nil {
		return p.action.check(p)
	}
	return nil
}

// readState is the first round trip: it reads everything that the checks need, at one block.
func (a *Agent) readState(ctx context.Context, p *preparation) error {
	err := p.reads().run(ctx, a.chain)
	if isMismatch(err) {
		err = a.confirmed(ctx, p, err, err)
	}
	if err != nil {
		return a.identify(err) // what one node finds well is not known yet
	}
	return a.fresh(p.head)
}

// reads are all that the action depends on, with the identity of the contracts.
func (p *preparation) reads() *reads {
	r := &reads{at: p.head.Hash}
	p.market.identify(r)
	r.balance(p.in.Wallet, &p.coin)
	p.action.read(p, r)
	return r
}

// finish is the second round trip, the simulation on two nodes where there are two, and the response.
func (a *Agent) finish(ctx context.Context, p *preparation, worth <-chan *valued) (*Prepared, error) {
	pl := p.action.plan(p)
	var short error // the vault may not take the spend yet
	if pl.spend != nil {
		amount, ok := new(big.Int).SetString(pl.spend.Amount, 10)
		if !ok {
			return nil, fmt.Errorf("the spend %q is not a number", pl.spend.Amount)
		}
		short = p.checkAllowance(&pl, amount)
	}
	call, err := pl.transaction(p.in.Wallet)
	if err != nil {
		return nil, err
	}
	done, err := a.outcome(ctx, p, &pl, call)
	if short != nil && !p.vaultRefuses(err) { // else an approval would be paid for in vain
		return nil, a.confirmed(ctx, p, nil, cmp.Or(p.registryRefuses(), short))
	}
	if err != nil {
		return nil, chainError(err)
	}
	gas, err := done.withHeadroom(a.cfg.GasHeadroomBps, p.head.GasLimit)
	if err != nil {
		return nil, err
	}
	v := &Prepared{
		Action: p.in.Action,
		Transaction: Transaction{
			ChainID: a.cfg.Deployment.ChainID, From: lower(p.in.Wallet), To: lower(pl.to), Data: hexutil.Encode(call.Data),
			Value: "0", Gas: strconv.FormatUint(gas, 10),
		},
		Decoded: pl.decoded(), Spend: pl.spend, Simulation: done.shown(),
		ExpiresAt: p.head.Timestamp + uint64(a.cfg.Validity/time.Second), Evidence: a.evidence(p.head),
	}
	if pl.ends != 0 {
		v.ExpiresAt = min(v.ExpiresAt, pl.ends)
	}
	if d := p.deal; d != nil {
		v.Terms = &DealTerms{
			DealID: decimal(d.ID), TermsHash: d.TermsHash.Hex(), Cap: decimal(d.Cap), MinPrice: decimal(d.MinPrice), Term: d.Term,
			ListingExpiry: d.ListingExpiry, FeeBps: d.FeeBps, Grace: d.Grace, State: contracts.DealStateNames[d.State],
		}
	}
	v.Warnings = a.warnings(p, &pl, done, gas)
	if worth != nil {
		v.Warnings = append(v.Warnings, p.judge(<-worth)...)
	}
	return v, nil
}

// decoded returns the decoded calldata.
func (pl *plan) decoded() Decoded {
	method := pl.abi.Methods[pl.method]
	d := Decoded{Function: method.Sig, Args: make([]Argument, len(pl.args))}
	for i, arg := range pl.args {
		v := Argument{Name: method.Inputs[i].Name, Type: method.Inputs[i].Type.String()}
		switch x := arg.(type) {
		case common.Address:
			v.Value = lower(x)
		case [32]byte:
			v.Value = common.Hash(x).Hex()
		default:
			v.Value = fmt.Sprint(x)
		}
		d.Args[i] = v
	}
	return d
}

// unlimited is the lowest allowance that counts as unlimited.
var unlimited = new(big.Int).Lsh(big.NewInt(1), 128)

// Warning is something that a caller should know before signing, although it breaks no rule.
type Warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// warnings returns all warnings except that of the valuation, which is in progress.
func (a *Agent) warnings(p *preparation, pl *plan, done *simulated, gas uint64) []Warning {
	all := []Warning{}
	warn := func(code, format string, args ...any) {
		all = append(all, Warning{Code: code, Message: fmt.Sprintf(format, args...)})
	}
	soon := p.head.Timestamp + uint64(a.cfg.ExpiringSoon/time.Second)
	if d := p.deal; d != nil && p.action.ofListing && d.ListingExpiry != 0 && d.ListingExpiry <= soon {
		warn("LISTING_EXPIRES_SOON", "the listing ends at %d", d.ListingExpiry)
	}
	if pl.method == "approve" && p.in.Amount.Cmp(unlimited) >= 0 {
		warn("UNLIMITED_ALLOWANCE", "it lets the vault take any amount of %s: approve what is needed", lower(p.token))
	} else if p.allowance != nil && p.allowance.Cmp(unlimited) >= 0 {
		warn("UNLIMITED_ALLOWANCE", "the vault has an unlimited allowance of %s: approve 0, or the amount that is needed", lower(p.token))
	}
	if p.in.Action == "reclaim" && p.in.Wallet != p.deal.Borrower {
		warn("NOT_BORROWER", "the wallet pays, and the collateral goes to the borrower %s", lower(p.deal.Borrower))
	}
	if p.tokenPaused {
		warn("TOKEN_PAUSED", "the token %s is paused and cannot be transferred now", lower(p.token))
	}
	if done.collateralPaused {
		warn("TOKEN_PAUSED", "the collateral %s is paused and cannot be transferred now", lower(p.deal.Token))
	}
	if done.Transfers == nil {
		warn("TRANSFERS_UNKNOWN", "the transfers cannot be listed: the node has no eth_simulateV1, nodes differ about them, or this can only be done within the second of its latest block")
	}
	if fee := p.head.BaseFee; fee != nil && gas < math.MaxInt64 {
		cost := new(big.Int).Mul(new(big.Int).SetUint64(*fee), new(big.Int).SetUint64(gas))
		if p.coin.Cmp(cost) < 0 {
			warn("GAS_UNPAID", "the wallet has %s wei, but gas may cost %s", decimal(&p.coin), decimal(cost))
		}
	}
	return all
}

// worth fetches the collateral's valuation concurrently, if the caller is about to pay for it. It yields nil if
// there is none.
func (a *Agent) worth(ctx context.Context, p *preparation) <-chan *valued {
	if a.valuation == nil || p.in.Action != "fund" && p.in.Action != "placeBid" {
		return nil
	}
	answer := make(chan *valued, 1)
	go func() {
		_, v, err := a.valueOf(ctx, p.in.DealID, p.head.Timestamp)
		if err != nil {
			v = nil
		}
		answer <- v
	}()
	return answer
}

// judge returns warnings about a valuation.
func (p *preparation) judge(v *valued) []Warning {
	if v == nil {
		return []Warning{{Code: "VALUATION_UNKNOWN", Message: "the collateral has no fresh reference value"}}
	}
	if v.value.Cmp(p.deal.Cap) < 0 {
		return []Warning{{Code: "VALUATION_BELOW_CAP", Message: fmt.Sprintf("the collateral's reference value is %s raw USDG, below the cap of %s", decimal(v.value), decimal(p.deal.Cap))}}
	}
	return nil
}
