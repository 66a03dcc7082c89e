package agent

import (
	"context"
	"errors"
	"strconv"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// Invariant: two nodes agree on everything that is answered, the reads and the effect of the transaction, unless one
// node made the head alone (chain.Quorum): there is no other, or of two the other has been away for long. A node is
// never its own second opinion. So if one of three nodes lies and others fail, no answer is wrong; and if two sound
// ones can answer, an answer is given.
//
// The terms of a deal, a bid's price, a wallet's balance and the effect of a transaction are known from nodes only. The
// vault refuses a transaction with other terms, another price or another credit, but a caller should not sign one, nor
// be refused wrongly. So two nodes read and simulate, and must agree: to prepare, and to refuse.

// anew is the preparation before anything was read.
func (p *preparation) anew() *preparation {
	return &preparation{in: p.in, action: p.action, market: p.market, head: p.head}
}

// confirmed returns a refusal, if another node reads the same as the one on which it rests. found is the outcome of
// that.
func (a *Agent) confirmed(ctx context.Context, p *preparation, found, refusal error) error {
	if a.chain.Quorum() < 2 || found == nil && !isVerdict(refusal) {
		return refusal
	}
	other := p.anew()
	outcome := other.reads().run(chain.WithSecondNode(ctx), a.chain)
	if err := differs(found, outcome, p.said(), other.said()); err != nil {
		return err
	}
	return refusal
}

// isVerdict reports whether an error is a result from the chain, and not a node's failure.
func isVerdict(err error) bool {
	known, ok := errors.AsType[*httpapi.Error](err)
	return ok && known.Code != httpapi.UpstreamUnavailable
}

// said is everything that was read for the action and its warnings.
func (p *preparation) said() any {
	all := []any{p.deal, p.bid, p.registered, p.limits, p.feeBps, p.credit, &p.coin}
	if p.ofMarket() {
		all = append(all, p.held, p.allowance, p.tokenErr != nil, p.tokenPaused)
	}
	return all
}

// ofMarket reports whether the token is one of the market's. Nothing is prepared of another, which may be any contract,
// and may say something else to every node.
func (p *preparation) ofMarket() bool {
	return p.token == p.market.dep.USDG || p.registered || p.credit != nil && p.credit.Sign() > 0
}

// maxGas is more than any block has, and few enough to reckon with.
const maxGas = 1 << 40

// withHeadroom is how much gas the transaction gets.
func (s *simulated) withHeadroom(bps, blockLimit uint64) (uint64, error) {
	if s.needed > maxGas {
		return 0, refuse(httpapi.UpstreamUnavailable, "no transaction takes as much gas as the node says")
	}
	gas := s.needed + s.needed*bps/10_000
	if blockLimit > 0 {
		gas = min(gas, blockLimit)
	}
	return gas, nil
}

// shown is the simulation as it is answered.
func (s *simulated) shown() Simulation {
	v := s.Simulation
	v.GasUsed = strconv.FormatUint(s.used, 10)
	return v
}
