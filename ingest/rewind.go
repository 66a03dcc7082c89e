package ingest

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/pause"
)

// ErrUnrelated: no barrier of the raw topic is on the chain.
var ErrUnrelated = errors.New("no block of the raw topic is on the chain: use another --kafka-prefix, or endpoints of the chain that was ingested")

const (
	// maxSampled bounds the barriers that a search for the last common block holds.
	maxSampled = 1024
	// maxReverts bounds the reverts of a transaction.
	maxReverts = 1024
	// contradictions is how often in a row the chain must have another block before it is believed.
	contradictions = 3
)

// rewind reverts barriers that the chain no longer has if some of them were final, which the machine never does.
// Memory is bounded: the topic is read back several times, first to find the last common block, then to publish the
// reverts, a transaction for every maxReverts of them.
func (in *Ingester) rewind(ctx context.Context, tx *kafka.Transactor, position published) (published, error) {
	if position.last.Block.Hash == (common.Hash{}) {
		return position, nil
	}
	history, err := kafka.NewHistory(in.cfg.Kafka)
	if err != nil {
		return position, err
	}
	defer history.Close()
	back := func(take func(*topics.BlockEnd) (bool, error)) error { return in.barriers(ctx, history, 0, take) }
	head, err := in.client.Head(ctx, position.last.Block.Number)
	if err != nil {
		return position, err
	}
	search := search{back: back, onChain: in.onChain, head: head.Number}
	common, err := search.run(ctx)
	if err != nil || common == nil || common.Number >= position.last.Finalized {
		return position, err // the machine reverts blocks that are not final
	}
	in.log.Warn("reverting blocks that were final", zap.Uint64("from", position.last.Block.Number), zap.Uint64("to", common.Number))
	p := newPublisher(tx, in.topic, in.cfg.Partitions, in.decoder, position)
	n := 0
	err = reverts(back, *common, func(all []follow.Revert) error {
		n += len(all)
		in.metrics.reverts.Add(float64(len(all)))
		return p.publish(ctx, &follow.Batch{Reverts: all})
	})
	if err != nil {
		return position, err
	}
	in.log.Warn("reverted", zap.Int("barriers", n), zap.Uint64("block", common.Number))
	return in.readBack(ctx, tx)
}

// onChain asks for the block of a number until it is the given one, or another one several times. Several endpoints
// must agree.
func (in *Ingester) onChain(ctx context.Context, b topics.BlockRef) (bool, error) {
	for range contradictions {
		h, err := in.vote(ctx, b.Number)
		if err != nil {
			return false, err
		}
		if h.Hash == b.Hash {
			return true, nil
		}
	}
	return false, nil
}

// vote votes on a block until the endpoints agree. While one is away, or throttles, they may not: in the end one alone
// decides, if Config.Alone allows it.
func (in *Ingester) vote(ctx context.Context, number uint64) (follow.Header, error) {
	end := time.Now().Add(2*max(in.cfg.RPC.Silence, in.cfg.RPC.Alone) + maxHold)
	for wait := retryAfter; ; wait = min(2*wait, maxHold) {
		h, err := in.client.Vote(ctx, number, true)
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return h, err
		}
		if err := pause.For(ctx, wait); err != nil {
			return h, err
		}
	}
}

// reverts passes the reverts of all barriers above a block, newest first, to publish. The slice is reused.
func reverts(back func(func(*topics.BlockEnd) (bool, error)) error, to topics.BlockRef, publish func([]follow.Revert) error) error {
	all := make([]follow.Revert, 0, maxReverts)
	var above *topics.BlockRef
	err := back(func(b *topics.BlockEnd) (bool, error) {
		if above != nil {
			all = append(all, follow.Revert{Block: *above, Head: b.Block})
		}
		if above = &b.Block; b.Block == to || len(all) == maxReverts {
			if err := publish(all); err != nil {
				return false, err
			}
			all = all[:0]
		}
		return b.Block != to, nil
	})
	if err != nil {
		return fmt.Errorf("revert to block %d: %w", to.Number, err)
	}
	return nil
}

// search finds the newest barrier that is on the chain: all below it are, and none above.
type search struct {
	back    func(func(*topics.BlockEnd) (bool, error)) error
	onChain func(context.Context, topics.BlockRef) (bool, error)
	head    uint64 // blocks above it are not asked for
}

// run returns nil where the newest barrier up to the head is on the chain.
func (s *search) run(ctx context.Context) (*topics.BlockRef, error) {
	var off common.Hash // the lowest barrier known to be off the chain
	for {
		l, err := s.descend(ctx, &off)
		if err != nil {
			return nil, err
		}
		if off == (common.Hash{}) {
			return nil, nil //nolint:nilnil // nothing to find
		}
		var failed error
		at := sort.Search(len(l.barriers)-1, func(i int) bool { // the last one is on the chain
			on := false
			if failed == nil {
				on, failed = s.onChain(ctx, l.barriers[i])
			}
			return on
		})
		switch {
		case failed != nil:
			return nil, failed
		case at == 0 || l.every == 1:
			return &l.barriers[at], nil
		}
		off = l.barriers[at-1].Hash
	}
}

// descend walks down from the barrier off, or from the top, with steps that double, to one that is on the chain. off
// becomes the last one that is not. The sample has barriers from the one below off down to the one on the chain.
func (s *search) descend(ctx context.Context, off *common.Hash) (l sampledBarriers, err error) {
	var (
		from    = *off
		last    topics.BlockRef
		step    = 1
		left    = 1 // barriers until the chain is asked again
		settled bool
	)
	l.every = 1
	ask := func(b topics.BlockRef) (on bool, err error) {
		if on, err = s.onChain(ctx, b); err != nil || on {
			return on, err
		}
		*off, l, last = b.Hash, sampledBarriers{every: 1}, topics.BlockRef{}
		return false, nil
	}
	err = s.back(func(b *topics.BlockEnd) (bool, error) {
		if from != (common.Hash{}) || b.Block.Number > s.head {
			if b.Block.Hash == from {
				from = common.Hash{}
			}
			return true, nil
		}
		l.add(b.Block)
		last = b.Block
		if left--; left > 0 {
			return true, nil
		}
		step *= 2
		left = step
		settled, err = ask(b.Block)
		return !settled, err
	})
	if err == nil && !settled && last != (topics.BlockRef{}) { // the topic's first barrier was not asked for
		settled, err = ask(last)
	}
	if err == nil && !settled {
		err = ErrUnrelated
	}
	if err == nil && l.barriers[len(l.barriers)-1] != last {
		l.barriers = append(l.barriers, last)
	}
	return l, err
}

// sampledBarriers holds every n-th barrier, newest first, at most maxSampled; every doubles when it is full.
type sampledBarriers struct {
	barriers []topics.BlockRef
	every    int
	n        int
}

func (l *sampledBarriers) add(b topics.BlockRef) {
	if l.n%l.every == 0 {
		l.barriers = append(l.barriers, b)
	}
	l.n++
	if len(l.barriers) < maxSampled {
		return
	}
	for i := range maxSampled / 2 {
		l.barriers[i] = l.barriers[2*i]
	}
	l.barriers = l.barriers[:maxSampled/2]
	l.every *= 2
}
