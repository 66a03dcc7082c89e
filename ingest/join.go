package ingest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// followed are the meme tokens whose Transfer logs are published, and since when.
//
// Invariants:
//
//  1. A token joins with the first block in which the registry allows it as a meme token. The last record of that
//     block is the token's ledger as of it, or the first part, and from the next block on the topic has the token's
//     Transfer logs. Which tokens, blocks and logs these are depends on the chain alone.
//  2. The last transaction that names tokens in a header names those that have joined up to the topic's last barrier. So a
//     session reads them from the topic, and a reorg below the block of a token undoes both together.
//  3. The blocks after a token's were fetched with a filter that has it: the fetches under way when it joins are
//     dropped. A filter that has more does no harm: logs of tokens that are not followed are not published.
//  4. A token that leaves the registry is still followed: it may come back.
type followed struct {
	since  map[common.Address]joined
	client *rpc.Client                         // its filter has all of them, and more after a reorg
	asked  map[common.Address]bool             // by the client
	parts  map[common.Address][]*topics.Ledger // of the ledgers that come with several blocks: see spread.go
}

// maxFollowed bounds the tokens that are followed: each transaction names them.
const maxFollowed = 1000

func (in *Ingester) follow(since map[common.Address]joined) *followed {
	f := &followed{since: maps.Clone(since), client: in.client, asked: map[common.Address]bool{}, parts: map[common.Address][]*topics.Ledger{}} // the publisher keeps the original
	for token := range since {
		f.asked[token] = true
	}
	f.filter(in.client)
	in.metrics.followed.Set(float64(len(f.since)))
	return f
}

// filter makes the client anew.
func (f *followed) filter(base *rpc.Client) {
	if len(f.asked) == 0 {
		return
	}
	all := make([]common.Address, 0, len(f.asked))
	for token := range f.asked {
		all = append(all, token)
	}
	slices.SortFunc(all, common.Address.Cmp)
	f.client = base.And(all)
}

// join adds tokens that join with a block. unknown are those without an origin.
func (f *followed) join(base *rpc.Client, tokens []common.Address, block uint64, unknown map[common.Address]*first) {
	f.asked = map[common.Address]bool{} // earlier fetches are dropped
	for _, token := range tokens {
		f.since[token] = joined{block: block, asks: unknown[token] != nil}
	}
	for token := range f.since {
		f.asked[token] = true
	}
	f.filter(base)
}

// back forgets the tokens that joined with a block or a later one, before it is replaced.
func (f *followed) back(block uint64) {
	for token, since := range f.since {
		switch {
		case since.block >= block:
			delete(f.since, token)
			delete(f.parts, token)
		case since.originBlock >= block:
			since.originBlock = 0
			f.since[token] = since
		}
	}
}

// upTo are the tokens that had joined at the end of a block.
func (f *followed) upTo(block uint64) map[common.Address]joined {
	all := make(map[common.Address]joined, len(f.since))
	for token, since := range f.since {
		if since.block <= block {
			if since.originBlock > block {
				since.originBlock = 0
			}
			all[token] = since
		}
	}
	return all
}

// joining returns the tokens that join with a block.
func (in *Ingester) joining(b *follow.Block, f *followed) (tokens []common.Address) {
	for _, item := range b.Logs {
		l, ok := item.(*topics.Log)
		if !ok || len(l.Topics) == 0 || l.Topics[0] != in.assetSet {
			continue
		}
		e, ok := in.decoder.Decode(l.Address, l.Topics, l.Data).(*contracts.AssetSet)
		if !ok || !e.Allowed || e.Kind != contracts.KindERC20 || e.Lane != contracts.LaneMeme || in.ours[e.Token] {
			continue
		}
		if _, known := f.since[e.Token]; known || slices.Contains(tokens, e.Token) {
			continue
		}
		if len(f.since)+len(tokens) >= maxFollowed {
			in.metrics.unfollowed.Inc()
			in.log.Error("too many meme tokens: one is not followed, and its holders stay unknown", zap.Stringer("token", e.Token), zap.Int("followed", maxFollowed))
			continue
		}
		tokens = append(tokens, e.Token)
	}
	return tokens
}

// published are the items of a block that belong in the topic: all but logs of followed tokens that are no transfers,
// or were fetched before the token joined. Log data that is too long is cut.
func (in *Ingester) published(b *follow.Block, f *followed) []follow.Item {
	return slices.DeleteFunc(b.Logs, func(item follow.Item) bool {
		l, ok := item.(*topics.Log)
		if ok && len(l.Data) > topics.MaxLogData {
			in.cut(l)
		}
		if !ok || !f.asked[l.Address] || in.ours[l.Address] || len(l.Topics) > 0 && in.tokenTopics[l.Topics[0]] {
			return false
		}
		_, follows := f.since[l.Address] // since an earlier block: see back
		return !follows || len(l.Topics) == 0 || l.Topics[0] != contracts.TransferTopic()
	})
}

// cut truncates a log's data.
func (in *Ingester) cut(l *topics.Log) {
	if in.metrics.cut.Inc(); time.Since(in.cutLoggedAt) > time.Minute {
		in.cutLoggedAt = time.Now()
		in.log.Warn("log data exceeds the topic's limit, truncated", zap.Uint64("block", l.Block.Number), zap.Uint32("log", l.LogIndex),
			zap.Stringer("contract", l.Address), zap.Int("bytes", len(l.Data)), zap.Int("most", topics.MaxLogData))
	}
	l.Data = slices.Clone(l.Data[:topics.MaxLogData]) // so that the rest is freed
}

// reads starts reading the ledgers of the tokens that join with the fetched blocks, and those whose parts are due with
// them, unless that was done. The fetch is done again then; only its blocks up to the first with a joining token are
// left.
func (s *session) reads(ctx context.Context, g *errgroup.Group, f *fetch) bool {
	if f.Kind == follow.Headers || f.Kind == follow.Vote || f.read || len(f.blocks) == 0 || f.blocks[0].Parent != s.m.Tip().Hash {
		return false
	}
	s.follows.back(f.blocks[0].Number)
	for i := range f.blocks {
		if f.joins = s.in.joining(&f.blocks[i], s.follows); f.joins != nil {
			f.blocks = f.blocks[:i+1]
			break
		}
	}
	if missing := s.follows.missing(f.blocks); len(missing) > 0 || f.joins != nil {
		f.read = true
		s.readLedgers(ctx, g, f, missing)
	}
	return f.read
}

// readLedgers reads the ledgers of tokens that joined earlier, and appends those of the tokens that join to the last
// block.
func (s *session) readLedgers(ctx context.Context, g *errgroup.Group, f *fetch, missing []common.Address) {
	ctx, f.cancel = context.WithCancel(rpc.Watch(ctx, f.reports.add))
	f.done = make(chan struct{})
	b := &f.blocks[len(f.blocks)-1]
	settled, known := s.m.Settled(), s.unsureFor(b.Hash) > s.in.cfg.RPC.Silence
	underWay, since := s.follows.underWay(b.Number), s.follows.upTo(b.Number)
	s.in.log.Info("meme tokens join: reading their history", zap.Stringers("tokens", f.joins), zap.Stringers("reread", missing), zap.Uint64("block", b.Number))
	g.Go(func() error {
		defer close(f.done)
		// Any endpoint can make up a block with which a token joins, to have the whole chain read.
		if f.err = s.in.client.Seconded(ctx, b.BlockRef, known); f.err != nil {
			_, _ = s.in.client.Vote(ctx, f.To, false) // it counts the endpoint that made it up
			return nil
		}
		f.ledgers, f.unknown = map[common.Address][]*topics.Ledger{}, map[common.Address]*first{}
		for _, token := range missing {
			if f.ledgers[token], f.err = s.in.again(ctx, token, since[token], settled); f.err != nil {
				return nil
			}
		}
		for _, token := range f.joins {
			parts, unknown, err := s.in.ledger(ctx, token, b.BlockRef, settled, 0)
			if err != nil {
				f.err = err
				return nil
			}
			if parts = s.in.room(parts, &underWay); unknown != nil && parts[0].Fault == "" {
				f.unknown[token] = unknown
			}
			b.Logs = append(slices.Clip(b.Logs), parts[0])
			f.ledgers[token] = parts
			s.in.metrics.joined.Inc()
		}
		return nil
	})
}

// unsureFor is how long only one endpoint has had a block.
func (s *session) unsureFor(block common.Hash) time.Duration {
	if _, found := s.unsure[block]; !found {
		if len(s.unsure) >= maxUnsure {
			clear(s.unsure)
		}
		s.unsure[block] = time.Now()
	}
	return time.Since(s.unsure[block])
}

// maxUnsure bounds the remembered blocks. A single endpoint is followed to about one a minute.
const maxUnsure = 16

// joined makes the next fetches ask for the tokens that joined with the last block.
func (s *session) joined(f *fetch) {
	if f.joins == nil || s.m.Tip() != f.blocks[len(f.blocks)-1].BlockRef {
		return
	}
	s.drop()
	s.m.Refetch()
	s.follows.join(s.in.client, f.joins, s.m.Tip().Number, f.unknown)
	for _, token := range f.joins {
		s.follows.spread(token, s.m.Tip(), f.ledgers[token])
		s.origins.begin(token, f.unknown[token])
	}
	s.m.Whole(s.follows.end())
	s.in.metrics.followed.Set(float64(len(s.follows.since)))
}
