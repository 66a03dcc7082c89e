package ingest

import (
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// history reads the blocks with the Transfer logs of one token, in order, several ranges at a time. It holds at most
// `densest` of each range at once, or the logs of one block.
type history struct {
	in       *Ingester
	client   *rpc.Client
	next, to uint64
	settled  uint64
	size     uint64
	parent   common.Hash // of the first block
	last     topics.BlockRef
}

// densest times RangeLogs is the maximum number of logs of a range.
const densest = 4

func (in *Ingester) history(token common.Address, from, to, settled uint64) *history {
	client := in.client.Only(token, contracts.TransferTopic(), densest*in.cfg.RangeLogs)
	return &history{in: in, client: client, next: from, to: to, settled: settled, size: firstRange}
}

// read returns the next blocks.
func (h *history) read(ctx context.Context) ([]follow.Block, error) {
	for {
		fetches := h.ranges()
		got, err := h.fetch(ctx, fetches)
		if err != nil && h.size > 1 && ctx.Err() == nil {
			// Too many logs to hold, or to serve, whatever the endpoint reports: go on with small ranges.
			h.size = max(h.size/densest, 1)
			continue
		}
		if err != nil {
			return nil, err
		}
		return slices.Concat(got...), h.link(fetches, got)
	}
}

// ranges are the next ranges to fetch.
func (h *history) ranges() (all []follow.Fetch) {
	next := h.next
	for len(all) < h.in.cfg.Ranges*len(h.in.cfg.RPC.Endpoints) && next <= h.to {
		f := follow.Fetch{Kind: follow.Range, From: next, To: min(h.to, next+min(h.size, h.in.cfg.RangeBlocks)-1)}
		if h.in.cfg.RPC.Proof == rpc.ProofSparse && next < h.settled {
			f.Kind, f.To = follow.Sparse, min(h.to, h.settled, next+min(h.size, h.in.cfg.SparseBlocks)-1)
		}
		all = append(all, f)
		next = f.To + 1
	}
	return all
}

func (h *history) fetch(ctx context.Context, fetches []follow.Fetch) ([][]follow.Block, error) {
	got := make([][]follow.Block, len(fetches))
	g, ctx := errgroup.WithContext(ctx)
	for i, f := range fetches {
		g.Go(func() (err error) {
			got[i], err = h.in.fetch(ctx, h.client, f, h.settled)
			return err
		})
	}
	return got, g.Wait()
}

// link checks that the ranges link to each other and to those before, and moves on.
func (h *history) link(fetches []follow.Fetch, got [][]follow.Block) error {
	records := 0
	for i := range got {
		first, last := &got[i][0], &got[i][len(got[i])-1]
		switch {
		case h.last.Hash == (common.Hash{}):
			h.parent = first.Parent
		case first.Parent != h.last.Hash:
			return fmt.Errorf("block %d does not link to the range before it: %w", first.Number, rpc.ErrGone)
		}
		h.last = last.BlockRef
		for k := range got[i] {
			records += len(got[i][k].Logs)
		}
	}
	begin := h.next
	h.next = fetches[len(fetches)-1].To + 1
	h.size = h.in.cfg.rangeSize(h.size, h.next-begin, records)
	return nil
}
