package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/topics"
)

// Evidence names the block of an answer.
type Evidence struct {
	ChainID        uint64 `json:"chainId"`
	BlockNumber    string `json:"blockNumber"`
	BlockHash      string `json:"blockHash"`
	BlockTimestamp uint64 `json:"blockTimestamp"`
	ObservedAt     int64  `json:"observedAt"`
}

// Checkpoint names the block of the indexed data in an answer.
type Checkpoint struct {
	IndexedBlock   string `json:"indexedBlock"`
	BlockHash      string `json:"blockHash"`
	BlockTimestamp uint64 `json:"blockTimestamp"`
	LagBlocks      uint64 `json:"lagBlocks"`
}

func (a *Agent) evidence(head chain.Block) Evidence {
	return Evidence{
		ChainID: a.cfg.Deployment.ChainID, BlockNumber: strconv.FormatUint(head.Number, 10), BlockHash: head.Hash.Hex(),
		BlockTimestamp: head.Timestamp, ObservedAt: a.now().Unix(),
	}
}

// head is the block to answer from. It does not check its age: the deployment is checked first.
func (a *Agent) head() (chain.Block, error) {
	head, err := a.chain.Head()
	if err != nil {
		return head, chainError(err)
	}
	return head, nil
}

// fresh returns an error if a head is too old.
func (a *Agent) fresh(head chain.Block) error {
	if age := a.now().Unix() - int64(head.Timestamp); a.cfg.MaxHeadAge > 0 && age > int64(a.cfg.MaxHeadAge/time.Second) {
		return refuse(staleChain, fmt.Sprintf("the latest block of the chain is %d s old", age))
	}
	return nil
}

// identity remembers when the contracts were last checked.
type identity struct {
	mu    sync.Mutex
	until time.Time
}

// known reports whether the contracts were found to be those of the deployment recently.
func (a *Agent) known() bool {
	a.identity.mu.Lock()
	defer a.identity.mu.Unlock()
	return a.now().Before(a.identity.until)
}

// identified checks that the contracts are those of the deployment, unless that was checked recently.
func (a *Agent) identified(ctx context.Context, head chain.Block) error {
	if a.known() {
		return nil
	}
	_, err := readTwice(ctx, a, head, true, func(*reads, *struct{}) {})
	return a.identify(err)
}

// identify records the result of market.identify on which all asked nodes agree. Only an answer voids an earlier
// result, not an unreachable node or a cancelled request.
func (a *Agent) identify(err error) error {
	_, other := errors.AsType[*chain.ChainError](err)
	a.identity.mu.Lock()
	defer a.identity.mu.Unlock()
	switch {
	case err == nil:
		a.identity.until = a.now().Add(a.cfg.IdentityEvery)
	case isMismatch(err) || other:
		a.identity.until = time.Time{}
	}
	if err != nil {
		return chainError(err)
	}
	return nil
}

// ground is what every answer needs: a recent head of the right chain with the right contracts.
func (a *Agent) ground(ctx context.Context) (chain.Block, error) {
	head, err := a.head()
	if err != nil {
		return head, err
	}
	if err := a.identified(ctx, head); err != nil {
		return head, err
	}
	return head, a.fresh(head)
}

// checkpoint returns the checkpoint of indexed data if it is close to the head, and on the head's chain.
func (a *Agent) checkpoint(ctx context.Context, head chain.Block, at topics.BlockRef) (Checkpoint, error) {
	c := Checkpoint{IndexedBlock: strconv.FormatUint(at.Number, 10), BlockHash: at.Hash.Hex(), BlockTimestamp: at.Timestamp}
	if head.Number > at.Number {
		c.LagBlocks = head.Number - at.Number
	}
	ahead := at.Number - min(at.Number, head.Number)
	late := int64(head.Timestamp) - int64(at.Timestamp)
	switch {
	case a.cfg.MaxLagBlocks > 0 && ahead > a.cfg.MaxLagBlocks:
		return c, refuse(staleIndexer, fmt.Sprintf("the index is %d blocks beyond the chain", ahead))
	case a.cfg.MaxLagBlocks > 0 && c.LagBlocks > a.cfg.MaxLagBlocks:
		return c, refuse(staleIndexer, fmt.Sprintf("the index is %d blocks behind the chain", c.LagBlocks))
	case a.cfg.MaxLag > 0 && late > int64(a.cfg.MaxLag/time.Second):
		return c, refuse(staleIndexer, fmt.Sprintf("the index is %d s behind the chain", late))
	}
	on, err := a.onChain(ctx, head, at)
	if err != nil {
		return c, chainError(err)
	}
	if !on {
		return c, refuse(staleIndexer, "the index is at a block that the chain does not have")
	}
	return c, nil
}

// onChain reports whether an indexed block is on the head's chain. Concurrent requests for the same block share one read.
func (a *Agent) onChain(ctx context.Context, head chain.Block, at topics.BlockRef) (bool, error) {
	what := "on chain " + at.Hash.Hex()
	_, known := a.cache.get(head.Hash, what)
	if known || at.Hash == head.Hash || at.Hash == head.Parent {
		return true, nil
	}
	return chain.Shared(ctx, a.cfg.HTTP.RequestTimeout, &a.cache.under, head.Hash.Hex()+what, func(ctx context.Context) (bool, error) {
		hash, err := agreed(ctx, a, func(ctx context.Context) (common.Hash, error) { return a.canonical(ctx, at.Number) })
		switch {
		case err != nil:
			return false, err
		case hash == common.Hash{}:
			return a.beyond(ctx, head, at)
		case hash != at.Hash:
			return false, nil
		}
		// The head was read before: a reorg may have replaced it, and then the nodes and the index are on another branch.
		hash, err = agreed(ctx, a, func(ctx context.Context) (common.Hash, error) { return a.canonical(ctx, head.Number) })
		if err == nil && hash != head.Hash {
			err = chain.ErrBlockGone
		}
		if err != nil {
			return false, err
		}
		a.cache.put(head.Hash, what, true)
		return true, nil
	})
}

// mostBeyond is how many blocks above the head are looked up one by one, at the most.
const mostBeyond = 64

// beyond reports whether an indexed block at a height that the chain does not have is above the head. One that the nodes do not
// know counts as above it: the index may be ahead of them. One that they know is of a longer branch that a reorg took back, or
// the nodes have gone on since.
func (a *Agent) beyond(ctx context.Context, head chain.Block, at topics.BlockRef) (bool, error) {
	if at.Number <= head.Number || at.Number-head.Number > mostBeyond {
		return false, nil
	}
	below, err := agreed(ctx, a, func(ctx context.Context) (common.Hash, error) {
		return a.twice(ctx, func(ctx context.Context) (common.Hash, error) {
			hash := at.Hash
			for number := at.Number; number > head.Number; number-- {
				block, err := a.chain.BlockByHash(ctx, hash)
				if errors.Is(err, chain.ErrBlockGone) {
					return common.Hash{}, nil
				}
				if err != nil {
					return common.Hash{}, err
				}
				hash = block.Parent
			}
			return hash, nil
		})
	})
	return below == head.Hash || below == common.Hash{}, err
}

// canonical is the hash of the chain's block at a height; zero: there is none.
func (a *Agent) canonical(ctx context.Context, number uint64) (common.Hash, error) {
	return a.twice(ctx, func(ctx context.Context) (common.Hash, error) {
		block, err := a.chain.BlockByNumber(ctx, chain.NumberOf(number))
		if errors.Is(err, chain.ErrBlockGone) {
			return common.Hash{}, nil
		}
		return block.Hash, err
	})
}

// twice is a hash on which two nodes agree, where that is the quorum.
func (a *Agent) twice(ctx context.Context, once func(context.Context) (common.Hash, error)) (common.Hash, error) {
	ctx = chain.WithOtherNode(ctx)
	hash, err := once(ctx)
	if err != nil || a.chain.Quorum() < 2 {
		return hash, err
	}
	if again, err := once(ctx); err != nil || again != hash {
		return common.Hash{}, cmp.Or(err, disagree("a block of the index"))
	}
	return hash, nil
}
