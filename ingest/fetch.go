package ingest

import (
	"context"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
)

// fetchShared is fetch, of blocks that are on the endpoints' chain. Near the head that would cost time, and a reorg undoes
// what is not: there it is checked only if several endpoints have to agree.
func (in *Ingester) fetchShared(ctx context.Context, client *rpc.Client, f follow.Fetch, settled uint64, deep bool) ([]follow.Block, error) {
	blocks, err := in.fetch(ctx, client, f, settled)
	if err == nil && (deep || in.cfg.RPC.Confirm > 1) {
		err = client.Shared(ctx, blocks[len(blocks)-1].BlockRef)
	}
	return blocks, err
}

// fetch executes one command. Blocks above settled may still change.
func (in *Ingester) fetch(ctx context.Context, client *rpc.Client, f follow.Fetch, settled uint64) (blocks []follow.Block, err error) {
	switch f.Kind {
	case follow.Headers:
		headers, err := client.Headers(ctx, f.From, f.To)
		for _, h := range headers {
			blocks = append(blocks, follow.Block{Header: h})
		}
		return blocks, err
	case follow.Logs:
		blocks, err = client.Logs(ctx, f.Headers)
	case follow.Range:
		blocks, err = client.Blocks(ctx, f.From, f.To, settled)
	case follow.Sparse:
		blocks, err = client.Sparse(ctx, f.From, f.To)
	}
	return blocks, err
}
