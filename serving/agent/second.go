package agent

import (
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// What a deal costs or a bid brings is what a node said of it. The vault refuses a transaction that names other terms or
// another price, but a caller should not come to sign one. A simulation shows the lie where another node makes one, which
// not every node can.

// opinion is what is said beside the simulation.
type opinion struct {
	gas [2]*chain.Request // estimates of two nodes, each into a *hexutil.Uint64
	err error             // another node does not agree about the deal or the bid, or does not respond
}

// second asks another node than look did for the deal and the bid once more, and both for the gas: whichever simulates, one
// of them is another. It goes on beside the simulation. Nil: there is no other node.
func (a *Agent) second(ctx context.Context, p *preparation, call chain.Call) <-chan opinion {
	if a.chain.Endpoints() < 2 {
		return nil
	}
	answer := make(chan opinion, 1)
	other, same := chain.Beside(ctx), chain.Again(ctx) // before the simulation asks
	gas := [2]*chain.Request{}
	for i := range gas {
		gas[i] = chain.EstimateAt(p.head.Hash, call, new(hexutil.Uint64))
	}
	begun := make(chan error, 1)
	go func() { begun <- a.chain.Batch(same, gas[1]) }()
	go func() {
		defer func() {
			if v := recover(); v != nil { // it would end the process: this is a goroutine of its own
				answer <- opinion{err: fmt.Errorf("read the deal again: %v", v)}
			}
		}()
		err := a.agrees(other, p, gas[0])
		if alone := <-begun; err == nil && alone != nil {
			err = chainError(alone)
		}
		answer <- opinion{gas, err}
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

// agrees takes the highest of the nodes' estimates, and refuses where one of them cannot be right: too much would be
// reserved of the wallet's coin, or too little be paid for a transaction that then reverts.
func (s *simulated) agrees(others [2]*chain.Request) error {
	low, high := s.needed, s.needed
	for _, other := range others {
		if other.Err != nil {
			return refuse(httpapi.UpstreamUnavailable, "another node of the chain does not say what gas it takes")
		}
		said := uint64(*other.Result.(*hexutil.Uint64))
		low, high = min(low, said), max(high, said)
	}
	if high/maxGasRatio > low {
		return refuse(httpapi.UpstreamUnavailable, "nodes of the chain disagree about the gas")
	}
	s.needed = high
	return nil
}
