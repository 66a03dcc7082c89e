package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc"
)

// ErrStartBlock: the deployment starts after its contracts have emitted, so that the topic would lack history without a trace.
var ErrStartBlock = errors.New("startBlock of the deployment is after logs of its contracts: set it to the block in which the first of them was created")

// startLook is for how many blocks before the start the contracts' logs are looked for.
const startLook = 1_000_000

// checkStart checks, before the first block, that the deployment's own contracts have no logs before its start block. Where no endpoint
// has the state of then, nobody knows.
func (in *Ingester) checkStart(ctx context.Context) error {
	start := in.cfg.Deployment.StartBlock
	if start <= 1 {
		return nil // the genesis block has no logs
	}
	existed, err := in.existedBefore(ctx, start)
	if errors.Is(err, rpc.ErrNoState) || errors.Is(err, rpc.ErrGone) {
		in.log.Warn("no endpoint has the state of the block before the deployment's first: nothing shows that its contracts have no history before it",
			zap.Uint64("startBlock", start), zap.Error(err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("check whether the deployment's contracts have a history before its start: %w", err)
	}
	for _, contract := range existed {
		created, err := in.client.Created(ctx, contract, start-1)
		if err != nil {
			return fmt.Errorf("check whether the deployment's contracts have a history before its start: %w", err)
		}
		logged, err := in.client.Logged(ctx, []common.Address{contract}, max(created, start-min(start, startLook)), start-1)
		if err != nil {
			return fmt.Errorf("check whether the deployment's contracts have a history before its start: %w", err)
		}
		if len(logged) > 0 {
			return fmt.Errorf("%w: startBlock is %d, and %s was created in block %d and has logs before that", ErrStartBlock, start, contract, created)
		}
	}
	return nil
}

// existedBefore returns which of the deployment's own contracts had code before a block.
func (in *Ingester) existedBefore(ctx context.Context, block uint64) ([]common.Address, error) {
	headers, err := in.client.Headers(ctx, block-1, block-1, common.Hash{})
	if err != nil {
		return nil, err
	}
	return in.client.Existed(ctx, headers[0].Hash, in.cfg.Deployment.Own())
}
