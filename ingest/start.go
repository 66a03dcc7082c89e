package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc"
)

// ErrStartBlock: the deployment starts after its contracts emitted logs, which the topic would lack without a trace.
var ErrStartBlock = errors.New("startBlock of the deployment is after the first logs of its contracts: set it to the block in which the first contract was created")

// startLook is how many blocks before the start are searched for logs of the contracts.
const startLook = 1_000_000

// startUnknown is reported if no endpoint shows whether the deployment's contracts have a history before its start.
const startUnknown = "no endpoint says whether the deployment's contracts have logs before its startBlock: the topic would lack them"

// checkStart checks, before the first block, that the deployment's own contracts have no logs before its start block.
// If no endpoint has the state of that time, the logs are searched, for at most listWait. If none answers, it only warns.
func (in *Ingester) checkStart(ctx context.Context) error {
	in.startUnknown = false
	start := in.cfg.Deployment.StartBlock
	if start <= 1 {
		return nil // the genesis block has no logs
	}
	logged, created, err := in.loggedBefore(ctx, start)
	if errors.Is(err, rpc.ErrNoState) || errors.Is(err, rpc.ErrGone) {
		in.log.Warn("no endpoint has the state of the block before startBlock, searching for earlier logs of the contracts",
			zap.Uint64("startBlock", start), zap.Error(err))
		bounded, cancel := context.WithTimeout(ctx, listWait)
		logged, err = in.client.Logged(bounded, in.cfg.Deployment.Own(), start-min(start, startLook), start-1)
		cancel()
		if err != nil && ctx.Err() == nil {
			in.startUnknown = true
			in.log.Warn(startUnknown, zap.Uint64("startBlock", start), zap.Error(err))
			return nil
		}
		created = start - 1 // at the latest
	}
	switch {
	case err != nil:
		return fmt.Errorf("check whether the deployment's contracts have a history before its start: %w", err)
	case len(logged) > 0:
		return fmt.Errorf("%w: startBlock is %d, and %s was created up to block %d and has logs before startBlock", ErrStartBlock, start, logged[0], created)
	}
	return nil
}

// loggedBefore returns one of the deployment's own contracts that has logs before a block, or none, and the block in
// which it was created.
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
