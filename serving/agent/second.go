package agent

import (
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// What a deal costs or a bid brings is what a node said of it. The vault refuses a transaction that names other terms or
// another price, but a caller should not come to sign one. So where there are two nodes, one reads and simulates, and
// another reads again and estimates the gas, for which it runs the transaction too.

// opinion is what another node says.
type opinion struct {
	gas *chain.Request // its estimate, into a *hexutil.Uint64
	err error          // it does not agree about the deal or the bid, or does not respond
}

// second asks another node than look did, beside the simulation. Nil: there is no other node.
func (a *Agent) second(ctx context.Context, p *preparation, call chain.Call) <-chan opinion {
	if a.chain.Nodes() < 2 {
		return nil
	}
	answer := make(chan opinion, 1)
	ctx = chain.Beside(ctx) // before the simulation asks
	go func() {
		defer func() {
			if v := recover(); v != nil { // it would end the process: this is a goroutine of its own
				answer <- opinion{err: fmt.Errorf("read the deal again: %v", v)}
			}
		}()
		gas := chain.EstimateAt(p.head.Hash, call, new(hexutil.Uint64))
		answer <- opinion{gas, a.agrees(ctx, p, gas)}
	}()
	return answer
}

// agrees reads the deal and the bid, and the gas with them.
func (a *Agent) agrees(ctx context.Context, p *preparation, gas *chain.Request) error {
	other := &preparation{in: p.in, market: p.market}
	r := &reads{at: p.head.Hash}
	if p.action.hasDeal() {
		other.lookDeal(r)
	}
	if p.in.BidID != nil {
		other.lookBid(r)
	}
	r.calls, r.after = append(r.calls, gas), append(r.after, func() error { return nil })
	return differs(r.run(ctx, a.chain), []any{p.deal, p.bid}, []any{other.deal, other.bid})
}

// maxGasRatio is how far estimates of two nodes may be apart, which do not all estimate alike.
const maxGasRatio = 2

// agrees takes the higher of two nodes' estimates, and refuses where one of them cannot be right: too much would be
// reserved of the wallet's coin, or too little be paid for a transaction that then reverts.
func (s *simulated) agrees(other *chain.Request) error {
	if other.Err != nil {
		return refuse(httpapi.UpstreamUnavailable, "nodes of the chain disagree about what the transaction does")
	}
	said := uint64(*other.Result.(*hexutil.Uint64))
	low, high := min(s.needed, said), max(s.needed, said)
	if high/maxGasRatio > low {
		return refuse(httpapi.UpstreamUnavailable, "nodes of the chain disagree about the gas")
	}
	s.needed = high
	return nil
}
