package ingest

import (
	"context"
	"errors"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
)

// ErrStartBlock: the deployment starts after its contracts emitted logs, which the topic would lack without a trace.
var ErrStartBlock = errors.New("startBlock of the deployment is after the first logs of its contracts: set it to the block in which the first contract was created")

// startLook is how many blocks before the start are searched for logs of the contracts.
const startLook = 1_000_000

// searchFrom is where a search for logs before the start begins.
func searchFrom(start uint64) uint64 { return start - min(start, startLook) }

// checkStart checks, before the first block, that the deployment's own contracts have no logs before its start block.
// If no endpoint has the state of that time, the logs are searched. Only a proved log is a reason to stop: if nothing
// decides in time, the contracts are unchecked.
func (in *Ingester) checkStart(ctx context.Context) error {
	in.leave(nil)
	start := in.cfg.Deployment.StartBlock
	if start <= 1 {
		return nil // the genesis block has no logs
	}
	bounded, cancel := context.WithTimeout(ctx, in.startWait())
	logged, open, err := in.loggedBefore(bounded, start)
	cancel()
	if err != nil && ctx.Err() == nil {
		in.log.Warn("no endpoint shows whether the contracts existed before startBlock, searching for earlier logs of them",
			zap.Uint64("startBlock", start), zap.Error(err))
		bounded, cancel := context.WithTimeout(ctx, in.startWait())
		logged, open, err = in.client.Logged(bounded, in.cfg.Deployment.Own(), searchFrom(start), start-1)
		cancel()
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case logged != nil:
		return startsTooLate(start, logged)
	case err != nil || open != nil:
		in.log.Warn("nothing shows whether there are logs before startBlock", zap.Uint64("startBlock", start), zap.Error(err))
		u := unchecked{}
		for _, contract := range in.cfg.Deployment.Own() {
			u[contract] = start - 1
		}
		in.leave(u)
	}
	return nil
}

// startWait is the time for each way to check the start. An empty topic has no barrier to repeat as a heartbeat, so a
// standby would take over meanwhile.
func (in *Ingester) startWait() time.Duration {
	if in.cfg.Standby {
		return min(listWait, in.cfg.TakeoverAfter/3)
	}
	return listWait
}

// loggedBefore searches for a log of the deployment's own contracts before a block, from their creation on.
func (in *Ingester) loggedBefore(ctx context.Context, block uint64) (logged, open *topics.Log, err error) {
	headers, err := in.client.Headers(ctx, block-1, block-1, common.Hash{})
	if err != nil {
		return nil, nil, err
	}
	proved, claimed, err := in.client.Existed(ctx, headers[0].Hash, in.cfg.Deployment.Own())
	if err != nil {
		return nil, nil, err
	}
	for _, contract := range append(proved, claimed...) {
		created, err := in.client.Created(ctx, contract, block-1)
		if err != nil {
			return nil, nil, err
		}
		found, undecided, err := in.client.Logged(ctx, []common.Address{contract}, max(created, searchFrom(block)), block-1)
		if err != nil || found != nil {
			return found, nil, err
		}
		if open == nil {
			open = undecided
		}
	}
	return nil, open, nil
}
