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
	logged, created, err := in.loggedBefore(ctx, start)
	switch {
	case errors.Is(err, rpc.ErrNoState), errors.Is(err, rpc.ErrGone):
		in.log.Warn("no endpoint has the state of the block before the deployment's first: nothing shows that its contracts have no history before it",
			zap.Uint64("startBlock", start), zap.Error(err))
		return nil
	case err != nil:
		return fmt.Errorf("check whether the deployment's contracts have a history before its start: %w", err)
	case len(logged) > 0:
		return fmt.Errorf("%w: startBlock is %d, and %s was created in block %d and has logs before that", ErrStartBlock, start, logged[0], created)
	}
	return nil
}

// loggedBefore returns one of the deployment's own contracts that has logs before a block, none if there is none, and in which block it was
// created.
func (in *Ingester) loggedBefore(ctx context.Context, block uint64) (logged []common.Address, created uint64, err error) {
	headers, err := in.client.Headers(ctx, block-1, block-1, common.Hash{})
	if err != nil {
		return nil, 0, err
	}
	existed, err := in.client.Existed(ctx, headers[0].Hash, in.cfg.Deployment.Own())
	if err != nil {
		return nil, 0, err
	}
	for _, contract := range existed {
		if created, err = in.client.Created(ctx, contract, block-1); err != nil {
			return nil, 0, err
		}
		logged, err = in.client.Logged(ctx, []common.Address{contract}, max(created, block-min(block, startLook)), block-1)
		if err != nil || len(logged) > 0 {
			return logged, created, err
		}
	}
	return nil, 0, nil
}
