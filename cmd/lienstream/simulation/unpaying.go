package simulation

import (
	"context"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
)

// Of who may not be charged.
const (
	unpayingEvery = 12 * time.Second // a request, at the most: a wallet has some 16 at once and one more each 10 s
	refusedFor    = 40 * time.Second // an authorization that is submitted in vain: least is 30 s
	missing       = "404 NOT_FOUND"
	invalid       = "400 INVALID_INPUT"
	tooBig        = "413 BODY_TOO_LARGE"
)

// unpaying is a wallet that may not be charged, whatever breaks.
type unpaying struct {
	name    string // why
	answer  string // in the end
	nothing bool   // it pays nothing
	poor    bool   // it has less than the price
	refused bool   // the facilitator refuses it
	spends  bool   // what it has it gives to another, just before its payment
	signer  string // who signs; empty: the wallet
	changes func(terms *x402.Terms, a *x402.Authorization) (signs *x402.Terms)
	says    func(*x402.Payment) // changes what is said of the payment
	body    func(body string) string
}

var unpayings = []unpaying{
	{name: "pays nothing", answer: unpaid, nothing: true},
	{name: "has too little", answer: unpaid, poor: true},
	{name: "signs for another chain", answer: unpaid, changes: func(terms *x402.Terms, _ *x402.Authorization) *x402.Terms { return ofAnotherChain(terms) }},
	{
		name: "pays on another chain", answer: unpaid, changes: func(terms *x402.Terms, _ *x402.Authorization) *x402.Terms { return ofAnotherChain(terms) },
		says: func(p *x402.Payment) { p.Accepted.Network = anotherChain },
	},
	{name: "pays too little", answer: unpaid, changes: func(terms *x402.Terms, a *x402.Authorization) *x402.Terms {
		a.Value = new(big.Int).Sub(terms.Value, common.Big1)
		return terms
	}},
	{name: "pays too much", answer: unpaid, changes: func(terms *x402.Terms, a *x402.Authorization) *x402.Terms {
		a.Value = new(big.Int).Add(terms.Value, common.Big1)
		return terms
	}},
	{name: "pays another", answer: unpaid, changes: func(terms *x402.Terms, a *x402.Authorization) *x402.Terms {
		a.To = paychain.Address(0, "another")
		return terms
	}},
	{name: "pays too late", answer: unpaid, changes: func(terms *x402.Terms, a *x402.Authorization) *x402.Terms {
		a.ValidBefore = uint64(now().Add(-2 * skewWithin).Unix())
		return terms
	}},
	{name: "does not sign", answer: unpaid, signer: "another"},
	{name: "is refused", answer: unpaid, refused: true, changes: briefly},
	{name: "spends it before", answer: unpaid, spends: true, changes: briefly},
	{name: "proves nothing", answer: invalid, body: func(body string) string { return strings.Replace(body, `"poc":"~~~\ncall\n~~~",`, "", 1) }},
	{name: "knows the future", answer: invalid, body: func(body string) string { return strings.Replace(body, `"forkBlock":7`, `"forkBlock":70000000`, 1) }},
	{name: "says too much", answer: tooBig, body: func(body string) string { return body + strings.Repeat(" ", 16<<10) }},
}

const anotherChain = "eip155:1"

func ofAnotherChain(terms *x402.Terms) *x402.Terms {
	price := terms.Requirement
	price.Network = anotherChain
	other, err := x402.NewTerms(price)
	if err != nil {
		return terms // then it is charged, which is found
	}
	return other
}

func briefly(terms *x402.Terms, a *x402.Authorization) *x402.Terms {
	a.ValidBefore = uint64(now().Add(refusedFor).Unix())
	return terms
}

func (u *unpaying) wallet() common.Address { return paychain.Address(0, u.name) }

// purse is what it has: where it spends that, the price, and else more than it may be charged.
func (u *unpaying) purse(terms *x402.Terms) purse {
	switch {
	case u.poor:
		return purse{u.wallet(), new(big.Int).Sub(terms.Value, common.Big1)}
	case u.spends:
		return purse{u.wallet(), terms.Value}
	default:
		return purse{u.wallet(), paychain.Dollars(100)}
	}
}

// elsewhere is whom a wallet gives what it has.
var elsewhere = sync.OnceValue(func() common.Address { return paychain.Address(0, "elsewhere") })

// prepare tells the facilitator of it.
func (u *unpaying) prepare(f *facilitator, terms *x402.Terms) error {
	if f.refuses[u.wallet()] = u.refused; !u.spends {
		return nil
	}
	s := &x402.Signed{Authorization: x402.Authorization{From: u.wallet(), To: elsewhere(), Value: terms.Value, ValidBefore: uint64(now().Add(time.Hour).Unix()), Nonce: common.Hash{1}}}
	if err := signBy(terms, s, u.name); err != nil {
		return err
	}
	f.spends[u.wallet()] = s.Calldata()
	return nil
}

// reportUnpaying has all who may not be charged send their requests, again and again, until ctx is done.
func (r *run) reportUnpaying(ctx context.Context, wg *sync.WaitGroup, servings []string, seed uint64) {
	for i := range unpayings {
		u := &unpayings[i]
		p := r.newReporter(u.name, "A report of who "+u.name)
		if p.unpaying = u; u.body != nil {
			p.body = u.body(p.body)
		}
		r.unpaying = append(r.unpaying, p)
		rng := rand.New(rand.NewPCG(seed, uint64(600+i)))
		wg.Go(func() {
			time.Sleep(time.Duration(rng.Int64N(int64(reportsWithin))))
			if !u.nothing {
				if u.signer != "" {
					p.name = u.signer
				}
				if err := p.sign(u.changes); err != nil {
					r.found("fault fails", "%v", err)
					return
				}
			}
			for ctx.Err() == nil {
				p.send(ctx, servings[rng.IntN(len(servings))])
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(rng.Int64N(int64(unpayingEvery)))):
				}
			}
		})
	}
}

// judgeUnpaying judges who may not be charged: each node says why, no node has a ticket of it, and none is charged, by the dollar's
// logs, until the end.
func (r *run) judgeUnpaying(ctx context.Context, servings []string, waits func()) {
	for _, p := range r.unpaying {
		for _, host := range servings {
			for end := time.Now().Add(reportWithin); ; waits() {
				if err := p.signAgain(); err != nil {
					r.found("fault fails", "%v", err)
					return
				}
				answer := p.send(ctx, host)
				if answer == p.unpaying.answer {
					break
				}
				if len(p.charges()) > 0 {
					break // it is told of below
				} else if time.Now().After(end) {
					r.found("is not refused", "who %s, %s: answered %q by %s, not %q", p.unpaying.name, p.wallet, answer, host, p.unpaying.answer)
					return
				}
			}
		}
	}
	time.Sleep((confirmations + 1) * paymentEvery)
	for _, p := range r.unpaying {
		if charges := p.charges(); len(charges) > 0 {
			r.found("charged is who may not be", "who %s, %s: %v", p.unpaying.name, p.wallet, charges)
		}
		id := desk.TicketID(p.wallet, p.nonce)
		for _, host := range servings {
			if answer, body := p.opens(ctx, host, id, tokenOf(id), false); answer != missing || p.ticketID() != "" {
				r.found("who may not be charged has a ticket", "who %s, %s of %s: %s", p.unpaying.name, id, host, body)
			}
		}
		r.rmu.Lock()
		r.result.uncharged++
		r.rmu.Unlock()
	}
}

// charges are what was taken from who may not be charged.
func (p *reporter) charges() []transfer { return p.payments.transfers(p.wallet, elsewhere()) }

// signAgain signs a payment that has not begun anew: that it ends is another reason to refuse it.
func (p *reporter) signAgain() error {
	if u := p.unpaying; u.nothing || u.refused || u.spends {
		return nil
	}
	return p.sign(p.unpaying.changes)
}
