package agent

import (
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// What a deal costs, a bid brings or a wallet has is what a node said of it. The vault refuses a transaction that names
// other terms, another price or another credit, but a caller should not come to sign one. So where there are two nodes,
// one reads and simulates, and another reads all of it again and estimates the gas, for which it runs the transaction too.

// opinion is what another node says.
type opinion struct {
	gas *chain.Request // its estimate, into a *hexutil.Uint64
	err error          // it does not agree about what was read, or does not respond
}

// second asks another node than look did, where one responds, beside the simulation. Nil: there is no other node.
func (a *Agent) second(ctx context.Context, p *preparation, call chain.Call) <-chan opinion {
	if a.chain.Nodes() < 2 {
		return nil
	}
	answer := make(chan opinion, 1)
	ctx = chain.Beside(ctx) // before the simulation asks
	go func() {
		defer func() {
			if v := recover(); v != nil { // it would end the process: this is a goroutine of its own
				answer <- opinion{err: fmt.Errorf("read again: %v", v)}
			}
		}()
		gas := chain.EstimateAt(p.head.Hash, call, new(hexutil.Uint64))
		answer <- opinion{gas, a.agrees(ctx, p, gas)}
	}()
	return answer
}

// agrees reads what the action depends on, with the identity of the contracts and the gas.
func (a *Agent) agrees(ctx context.Context, p *preparation, gas *chain.Request) error {
	other := &preparation{in: p.in, action: p.action, market: p.market, head: p.head}
	r := &reads{at: p.head.Hash}
	a.contracts.identify(r)
	p.action.look(other, r)
	r.calls, r.after = append(r.calls, gas), append(r.after, func() error { return nil })
	return differs(r.run(ctx, a.chain), p.said(), other.said())
}

// said is everything that a node said of what the action depends on.
func (p *preparation) said() any {
	return []any{p.deal, p.bid, p.held, p.allowance, p.silent != nil, p.tokenPaused, p.registered, p.feeBps, p.credit}
}

// maxGasRatio is how far estimates of two nodes may be apart, which do not all estimate alike.
const maxGasRatio = 2

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
