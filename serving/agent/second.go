package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// What a deal costs, a bid brings, a wallet has or a transaction does is what a node said of it. The vault refuses a
// transaction that names other terms, another price or another credit, but a caller should not come to sign one, nor be
// told that something is not to be had. So where there are two nodes, both read and simulate, and what they say must agree:
// to prepare, and to refuse.

// opinion is what another node says.
type opinion struct {
	p    *preparation // what it read
	done *simulated   // what the transaction does
	err  error        // it refuses, has other contracts, or does not respond
}

// second asks another node than look did, where one responds, beside the simulation. Nil: there is no other node.
func (a *Agent) second(ctx context.Context, p *preparation, pl *plan, call chain.Call) <-chan opinion {
	if a.chain.Nodes() < 2 {
		return nil
	}
	answer := make(chan opinion, 1)
	o := opinion{p: p.anew()}
	go func() {
		defer func() {
			if v := recover(); v != nil { // it would end the process: this is a goroutine of its own
				o.err = fmt.Errorf("read again: %v", v)
			}
			answer <- o
		}()
		r := o.p.reads()
		p.lookCollateral(pl, r, o.p)
		o.done, o.err = a.simulate(ctx, chain.Beside, p, pl, call, r)
	}()
	return answer
}

// anew is the preparation before anything was read.
func (p *preparation) anew() *preparation {
	return &preparation{in: p.in, action: p.action, market: p.market, head: p.head}
}

// confirmed returns a refusal, if another node reads the same as the one on which it rests. found is the outcome of that.
func (a *Agent) confirmed(ctx context.Context, p *preparation, found, refusal error) error {
	if a.chain.Nodes() < 2 || found == nil && !isVerdict(refusal) {
		return refusal
	}
	other := p.anew()
	outcome := other.reads().run(chain.Beside(ctx), a.chain)
	if err := differs(found, outcome, p.said(), other.said()); err != nil {
		return err
	}
	return refusal
}

// isVerdict reports whether an error says something of the chain, and not that a node does not.
func isVerdict(err error) bool {
	known, ok := errors.AsType[*httpapi.Error](err)
	return ok && known.Code != httpapi.UpstreamUnavailable
}

// said is everything that a node said of what the action and its warnings depend on.
func (p *preparation) said() any {
	return []any{
		p.deal, p.bid, p.held, p.allowance, p.silent != nil, p.tokenPaused, p.registered, p.feeBps, p.credit, p.collateralPaused, &p.coin,
	}
}

// agrees is nil where two nodes say the same of what was read and of what the transaction does, and the refusal where both
// refuse it.
func (p *preparation) agrees(done *simulated, err error, o opinion) error {
	switch {
	case err != nil && !isVerdict(err):
		return err
	case isMismatch(o.err):
		return disagree("what was asked")
	case o.err != nil && !isVerdict(o.err):
		return o.err
	case inText(p.said()) != inText(o.p.said()):
		return disagree("what was asked")
	case err == nil && o.err == nil:
		return done.agrees(o.done)
	case err != nil && o.err != nil && codeName(err) == codeName(o.err):
		return err
	}
	return disagree("what the transaction does")
}

// Gas of two nodes may be this far apart: their estimates are not all made alike, but a run of the same takes the same but
// for what a chain charges besides.
const (
	maxGasRatio  = 2
	maxUsedShare = 4 // a part in so many
)

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

// agrees holds what the transaction does on one node to what it does on another, and takes the higher gas of the two. It
// refuses where one of them cannot be right: too much would be reserved of the wallet's coin, or too little be paid for a
// transaction that then reverts. Of a node that cannot simulate the estimate is all there is.
func (s *simulated) agrees(o *simulated) error {
	if !s.lacks && !o.lacks {
		if s.late != o.late || inText(s.Transfers) != inText(o.Transfers) {
			return disagree("what the transaction does")
		}
		low, high := min(s.used, o.used), max(s.used, o.used)
		if low < high-high/maxUsedShare {
			return disagree("the gas")
		}
		s.used = high
	}
	low, high := min(s.needed, o.needed), max(s.needed, o.needed)
	if high/maxGasRatio > low {
		return disagree("the gas")
	}
	s.needed = high
	return nil
}

// shown is the simulation as it is answered.
func (s *simulated) shown() Simulation {
	v := s.Simulation
	v.GasUsed = strconv.FormatUint(s.used, 10)
	return v
}
