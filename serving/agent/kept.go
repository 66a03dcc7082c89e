package agent

import (
	"context"
	"fmt"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/sync/singleflight"

	"github.com/lienstream/lienstream/serving/chain"
)

// kept is what was read of the chain at its head, for as long as that is the head: a block does not change, and many ask
// the same of it. Whoever asks while another reads waits for that.
//
// Invariant: it holds at most maxKept things, all of one block.
type kept struct {
	mu    sync.Mutex
	head  common.Hash
	found map[string]any
	under singleflight.Group
}

const maxKept = 4096

func (k *kept) get(head common.Hash, what string) (any, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.found[what]
	return v, ok && k.head == head
}

func (k *kept) put(head common.Hash, what string, v any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.head != head || len(k.found) >= maxKept {
		k.head, k.found = head, map[string]any{}
	}
	k.found[what] = v
}

// readAt reads something at the head, where it was not read yet, and whether the contracts are those of the deployment.
// ask adds to the reads what is wanted; nobody may change what it finds.
func readAt[T any](ctx context.Context, a *Agent, head chain.Block, what string, ask func(r *reads, into *T)) (T, error) {
	if v, ok := a.kept.get(head.Hash, what); ok {
		return v.(T), nil
	}
	found := a.kept.under.DoChan(head.Hash.Hex()+what, func() (v any, err error) {
		defer func() {
			if p := recover(); p != nil { // it would end the process: this is a goroutine of its own
				err = fmt.Errorf("read %s: %v", what, p)
			}
		}()
		// Whoever began may leave, and the others wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.HTTP.RequestTimeout)
		defer cancel()
		var into T
		r := &reads{at: head.Hash}
		a.contracts.identify(r)
		ask(r, &into)
		if err := a.identify(r.run(ctx, a.chain)); err != nil {
			return nil, err
		}
		a.kept.put(head.Hash, what, into)
		return into, nil
	})
	var none T
	select {
	case <-ctx.Done():
		return none, ctx.Err()
	case f := <-found:
		if f.Err != nil {
			return none, f.Err
		}
		return f.Val.(T), nil
	}
}
