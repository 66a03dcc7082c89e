package main

import (
	"context"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/ethclient"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/contracts"
)

// Sizes of the bare client's requests: the fastest of those tried on two cores.
const (
	bareRange    = 100 // blocks of a request
	bareRequests = 4
)

// bareClient fetches the logs of the history with go-ethereum's client, decodes them into events and drops them,
// without verification, order, broker or state. A backfill cannot be much faster.
func bareClient(ctx context.Context, c *chain, head uint64) (time.Duration, error) {
	decoder := contracts.NewDecoder(c.deployment)
	client, err := ethclient.DialContext(ctx, c.HTTP())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	began := time.Now()
	var decoded atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(bareRequests)
	for from := uint64(1); from <= head; from += bareRange {
		g.Go(func() error {
			logs, err := client.FilterLogs(ctx, ethereum.FilterQuery{
				FromBlock: new(big.Int).SetUint64(from), ToBlock: new(big.Int).SetUint64(min(from+bareRange-1, head)),
				Addresses: []common.Address{c.deployment.DealVault, c.deployment.AssetRegistry},
			})
			if err != nil {
				return fmt.Errorf("fetch logs from %d: %w", from, err)
			}
			for _, l := range logs {
				if _, unknown := decoder.Decode(l.Address, l.Topics, l.Data).(*contracts.Unknown); !unknown {
					decoded.Add(1)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if n := decoded.Load(); n != int64(c.logs) {
		return 0, fmt.Errorf("bare client decoded %d logs of %d", n, c.logs)
	}
	return time.Since(began), nil
}
