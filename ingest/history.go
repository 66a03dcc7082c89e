package ingest

import (
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// history reads the blocks with the logs of one contract, in order, several ranges at a time.
type history struct {
	in       *Ingester
	client   *rpc.Client
	next, to uint64
	settled  uint64
	size     uint64
	parent   common.Hash // of the first block
	last     topics.BlockRef
}

// read returns the next blocks.
func (h *history) read(ctx context.Context) ([]follow.Block, error) {
	var fetches []follow.Fetch
	begin := h.next
	for len(fetches) < h.in.cfg.Ranges*len(h.in.cfg.RPC.Endpoints) && h.next <= h.to {
		f := follow.Fetch{Kind: follow.Range, From: h.next, To: min(h.to, h.next+min(h.size, h.in.cfg.RangeBlocks)-1)}
		if h.in.cfg.RPC.Proof == rpc.ProofSparse && h.next < h.settled {
			f.Kind, f.To = follow.Sparse, min(h.to, h.settled, h.next+min(h.size, h.in.cfg.SparseBlocks)-1)
		}
		fetches = append(fetches, f)
		h.next = f.To + 1
	}
	got := make([][]follow.Block, len(fetches))
	g, ctx := errgroup.WithContext(ctx)
	for i, f := range fetches {
		g.Go(func() (err error) {
			got[i], err = h.in.fetch(ctx, h.client, f, h.settled)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	records := 0
	for i := range got {
		first, last := &got[i][0], &got[i][len(got[i])-1]
		switch {
		case h.last.Hash == (common.Hash{}):
			h.parent = first.Parent
		case first.Parent != h.last.Hash:
			return nil, fmt.Errorf("block %d does not link to the range before it: %w", first.Number, rpc.ErrGone)
		}
		h.last = last.BlockRef
		for k := range got[i] {
			records += len(got[i][k].Logs)
		}
	}
	h.size = h.in.cfg.rangeSize(h.size, h.next-begin, records)
	return slices.Concat(got...), nil
}
