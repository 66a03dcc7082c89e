package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/sync/singleflight"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// blockCache holds what was read of the chain at its head, as long as that is the head: a block does not change, and
// many requests read the same. Concurrent requests for the same share one read.
//
// Invariant: it holds at most maxCached things, all of one block.
type blockCache struct {
	mu    sync.Mutex
	head  common.Hash
	found map[string]any
	under singleflight.Group
}

const maxCached = 4096

func (c *blockCache) get(head common.Hash, what string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.found[what]
	return v, ok && c.head == head
}

func (c *blockCache) put(head common.Hash, what string, v any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head != head || len(c.found) >= maxCached {
		c.head, c.found = head, map[string]any{}
	}
	c.found[what] = v
}

// readCapabilities is a read that always checks whether the contracts are those of the deployment.
const readCapabilities = "capabilities"

// readAt reads something at the head, unless it was read already while the contracts are known to be those of the
// deployment; what was read before they were found to be others is read again. If there is another node, it must agree.
// ask adds the wanted calls to the reads; its result is read-only.
func readAt[T any](ctx context.Context, a *Agent, head chain.Block, what string, ask func(r *reads, into *T)) (T, error) {
	if v, ok := a.cache.get(head.Hash, what); ok && a.known() {
		return v.(T), nil
	}
	return chain.Shared(ctx, a.cfg.HTTP.RequestTimeout, &a.cache.under, head.Hash.Hex()+what, func(ctx context.Context) (T, error) {
		known := what != readCapabilities && a.known()
		into, err := readTwice(ctx, a, head, !known, ask)
		if err != nil || !known {
			err = a.identify(err)
		}
		if err == nil {
			a.cache.put(head.Hash, what, into)
		}
		return into, err
	})
}

// readTwice reads something at the head, with the identity of the contracts or without, and again of another node where
// there is one; of three, two decide.
func readTwice[T any](ctx context.Context, a *Agent, head chain.Block, identify bool, ask func(r *reads, into *T)) (T, error) {
	return agreed(ctx, a, func(ctx context.Context) (T, error) { return readOfTwo(ctx, a, head, identify, ask) })
}

// agreed is the result of ask on which two nodes agree, if there are two; of three, two decide. A node that does not
// answer, or gives an impossible answer, counts as one that differs: others are asked.
func agreed[T any](ctx context.Context, a *Agent, ask func(context.Context) (T, error)) (T, error) {
	return chain.Agreed(ctx, a.chain, func(ctx context.Context) (T, error) {
		v, err := ask(ctx)
		if err != nil && ctx.Err() == nil && a.chain.Quorum() > 1 && !isMismatch(err) && !isVerdict(err) && !errors.Is(err, chain.ErrDiffer) {
			err = fmt.Errorf("%w: %w", chain.ErrDiffer, err)
		}
		return v, err
	})
}

func readOfTwo[T any](ctx context.Context, a *Agent, head chain.Block, identify bool, ask func(r *reads, into *T)) (T, error) {
	ctx = chain.WithOtherNode(ctx)
	once := func() (into T, err error) {
		r := &reads{at: head.Hash}
		if identify {
			a.contracts.identify(r)
		}
		ask(r, &into)
		return into, r.run(ctx, a.chain)
	}
	into, err := once()
	if (err == nil || isMismatch(err)) && a.chain.Quorum() > 1 {
		again, outcome := once()
		err = differs(err, outcome, into, again)
	}
	return into, err
}

// differs returns an error if two nodes, each read with an outcome, gave different results. If both found other
// contracts, that is the error.
func differs(first, second error, one, other any) error {
	switch {
	case second != nil && !isMismatch(second):
		return chainError(second)
	case first != nil && second != nil:
		return first
	case first != nil || second != nil || inText(one) != inText(other):
		return disagree("what was asked")
	}
	return nil
}

func disagree(about string) error {
	return fmt.Errorf("%w: %w", chain.ErrDiffer, refuse(httpapi.UpstreamUnavailable, "nodes of the chain disagree about "+about))
}

// inText is everything that was read.
func inText(read any) string {
	text, err := json.Marshal(read)
	if err != nil {
		panic(err) // cannot fail: it consists of numbers
	}
	return string(text)
}
