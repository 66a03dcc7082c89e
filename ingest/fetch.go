package ingest

import (
	"context"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
)

// fetch executes one command. Blocks above settled may still change.
func (in *Ingester) fetch(ctx context.Context, client *rpc.Client, f follow.Fetch, settled uint64) (blocks []follow.Block, err error) {
	switch f.Kind {
	case follow.Vote:
		h, err := client.Vote(ctx, f.From, f.Sure)
		return []follow.Block{{Header: h}}, err
	case follow.Headers:
		headers, err := client.Headers(ctx, f.From, f.To, f.Top)
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
