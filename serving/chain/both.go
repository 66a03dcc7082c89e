package chain

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Both asks two nodes at once, or one where that is enough (Quorum), and returns the answer that is the same. ask sends
// one batch. Where the answers differ, or only one node has one, others are asked (Agreed). An ErrDiffer names `what`.
func Both[T any](ctx context.Context, c *Client, what string, ask func(context.Context) (T, error), same func(one, other T) bool) (T, error) {
	if c.Quorum() < 2 {
		return ask(ctx)
	}
	return Agreed(ctx, c, func(ctx context.Context) (T, error) {
		var other T
		var otherErr error
		first, next := c.twoNodes(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { other, otherErr = ask(next) })
		said, err := ask(first)
		wg.Wait()
		if one := AnsweredBy(first); one != (Node{}) && one == AnsweredBy(next) { // the first choice did not respond: try a third node
			other, otherErr = ask(WithSecondNode(first))
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

// twoNodes returns two contexts whose first batches go to two nodes.
func (c *Client) twoNodes(ctx context.Context) (first, next context.Context) {
	before := new(atomic.Pointer[endpoint])
	before.Store(c.order(ctx, nil, nil)[0])
	return WithOtherNode(ctx), context.WithValue(ctx, lastAnswerKey{}, before)
}
