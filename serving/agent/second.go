package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// What a deal costs or a bid brings is what a node said of it. The vault refuses a transaction that names other terms or
// another price, but a caller should not come to sign one. A simulation shows the lie where another node makes one, which
// not every node can.

// second reads the deal and the bid once more, of another node than look did, and says whether both agree. It goes on
// beside the simulation. Nil: there is no other node, or nothing to read.
func (a *Agent) second(ctx context.Context, p *preparation) <-chan error {
	if a.chain.Endpoints() < 2 || !p.action.hasDeal() {
		return nil
	}
	answer := make(chan error, 1)
	ctx = chain.Beside(ctx) // before the simulation asks
	go func() {
		defer func() {
			if v := recover(); v != nil { // it would end the process: this is a goroutine of its own
				answer <- fmt.Errorf("read the deal again: %v", v)
			}
		}()
		answer <- a.agrees(ctx, p)
	}()
	return answer
}

func (a *Agent) agrees(ctx context.Context, p *preparation) error {
	other := &preparation{in: p.in, market: p.market}
	r := &reads{at: p.head.Hash}
	other.lookDeal(r)
	if p.in.BidID != nil {
		other.lookBid(r)
	}
	err := r.run(ctx, a.chain)
	if _, wrong := errors.AsType[*errMismatch](err); err != nil && !wrong {
		return chainError(err)
	}
	if err != nil || p.said() != other.said() {
		return refuse(httpapi.UpstreamUnavailable, "nodes of the chain disagree about the deal or the bid")
	}
	return nil
}

// said is everything that was read of the deal and the bid.
func (p *preparation) said() string {
	text, err := json.Marshal([]any{p.deal, p.bid})
	if err != nil {
		panic(err) // they are structs of numbers
	}
	return string(text)
}
