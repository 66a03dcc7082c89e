package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// sparse measures the backfill of a long chain with a log in one block of a hundred, and of one without logs, beside the
// cost of a header per block.
func (b *bench) sparse(ctx context.Context, w *world) error {
	const million = 1_000_000
	plain, _, err := b.history(ctx, w, million/10, 100, "tip")
	if err != nil {
		return err
	}
	some, took, err := b.history(ctx, w, million, 100, "sparse")
	if err != nil {
		return err
	}
	none, _, err := b.history(ctx, w, million, 2*million, "sparse")
	if err != nil {
		return err
	}
	b.add("a million blocks, 1 % with a log", "blocks/s", million/took.Seconds(), 0, goal{least: 100_000})
	b.add("the same, beside one header a block", "requests", float64(some.requests), 10*float64(plain.requests), goal{})
	b.add("the same, beside one header a block", "MB", float64(some.bytes)/1e6, 10*float64(plain.bytes)/1e6, goal{})
	b.add("a million empty blocks", "requests", float64(none.requests), 10*float64(plain.requests), goal{most: 300})
	return nil
}

// cost is the requests to a node.
type cost struct{ requests, bytes int64 }

// history measures the backfill of a generated chain, from the start of the process.
func (b *bench) history(ctx context.Context, w *world, blocks, every int, proof string) (c cost, took time.Duration, err error) {
	d := contracts.Deployment{
		ChainID: b.chain.deployment.ChainID, StartBlock: 1, DealVault: common.Address{1}, AssetRegistry: common.Address{2}, USDG: common.Address{3},
		PoolManager: common.Address{4}, PositionManager: common.Address{5}, StateView: common.Address{6}, V4Quoter: common.Address{7},
	}
	node := rpctest.NewSparse(d.ChainID, blocks, every, types.Log{
		Address: d.DealVault, Topics: []common.Hash{crypto.Keccak256Hash([]byte("FeeSet(uint16,address)"))}, Data: make([]byte, 64),
	})
	defer node.Close()
	var text bytes.Buffer
	file := filepath.Join(b.dir, "sparse.json")
	if err := d.Write(&text); err != nil {
		return c, 0, err
	}
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return c, 0, err
	}
	began := time.Now()
	p, err := w.freshOn([]string{"--rpc=" + node.URL, "--deployment=" + file, "--rpc-proof=" + proof})
	if err != nil {
		return c, 0, err
	}
	err = until(ctx, p.process, indexed(p.addr, node.Head()))
	took = time.Since(began)
	c = cost{node.Requests.Load(), node.Bytes.Load()}
	if err == nil {
		err = p.stop()
	} else {
		p.kill()
	}
	if err != nil {
		return c, 0, fmt.Errorf("%d blocks, --rpc-proof=%s: %w", blocks, proof, err)
	}
	b.note("%d blocks, a log in every %d, --rpc-proof=%s: %.2f s, %d requests, %.1f MB", blocks, every, proof, took.Seconds(), c.requests, float64(c.bytes)/1e6)
	return c, took, nil
}
