package chain

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Both is what two nodes say that are asked at once, or one where that is enough (Quorum). ask sends one batch. Where they do
// not say the same, or only one has an answer, others are asked (Agreed); an ErrDiffer is about what.
func Both[T any](ctx context.Context, c *Client, what string, ask func(context.Context) (T, error), same func(one, other T) bool) (T, error) {
	if c.Quorum() < 2 {
		return ask(ctx)
	}
	return Agreed(ctx, c, func(ctx context.Context) (T, error) {
		var other T
		var otherErr error
		first, next := c.ofTwo(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { other, otherErr = ask(next) })
		said, err := ask(first)
		wg.Wait()
		if one := Who(first); one != (Node{}) && one == Who(next) { // who was to be first did not respond, and a third may
			other, otherErr = ask(Beside(first))
		}
		var none T
		switch {
		case ctx.Err() != nil:
			return none, ctx.Err()
		case err != nil && otherErr != nil:
			return none, err
		case err != nil || otherErr != nil:
			return none, fmt.Errorf("%s: %w: %w", what, ErrDiffer, cmp.Or(err, otherErr))
		case !same(said, other):
			return none, fmt.Errorf("%s: %w", what, ErrDiffer)
		}
		return said, nil
	})
}

// ofTwo are contexts whose first batches are asked of two nodes.
func (c *Client) ofTwo(ctx context.Context) (first, next context.Context) {
	before := new(atomic.Pointer[endpoint])
	before.Store(c.order(ctx, nil, nil)[0])
	return Apart(ctx), context.WithValue(ctx, apartKey{}, before)
}
