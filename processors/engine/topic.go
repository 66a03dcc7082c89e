package engine

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// sameTopic says whether a topic is the one that a position in it belongs to: it has the ID that it had, zero where
// that is not known, and what its leader of an epoch wrote reaches to the offset; a negative epoch is none. It
// returns the ID that the topic has.
//
// A topic that was deleted and made again, or mirrored, has another ID. One that lost its end in an election
// and has grown again has other records where the old ones were, which only the epoch tells.
func (n *Node) sameTopic(ctx context.Context, topic string, partition int32, id kafka.TopicID, epoch int32, offset int64) (kafka.TopicID, error) {
	known := id != kafka.TopicID{} && offset >= 0
	if !known {
		epoch = -1
	}
	place, err := n.history.Place(ctx, topic, partition, epoch)
	switch {
	case err != nil:
		return id, err
	case known && place.Topic != id:
		return id, fmt.Errorf("%w: the ID of %s is %s, it was %s", ErrBroken, topic, place.Topic, id)
	case known && place.EpochEnd < offset:
		return id, fmt.Errorf("%w: %s/%d has records up to offset %d in leader epoch %d, but the state is at offset %d", ErrBroken, topic, partition, place.EpochEnd, epoch, offset)
	}
	return place.Topic, nil
}

// moved is what a former life means in the raw topic that is there now. Where that is another one, its offsets mean
// nothing, but its blocks do: what was published is known by the last of them.
func (n *Node) moved(ctx context.Context, partition int32, former progress) (progress, error) {
	place, err := n.history.Place(ctx, n.input, partition, -1)
	if err != nil || former.Raw == place.Topic || former.Raw == (kafka.TopicID{}) {
		return former, err
	}
	now := unopened().Progress
	now.Floor, now.Rebuild.Settled = former.Floor, former.Rebuild.Settled
	err = n.history.ReadBack(ctx, n.input, partition, 0, func(r *kafka.Record) bool {
		raw, _ := topics.DecodeRaw(r.Value)
		end, ok := raw.(*topics.BlockEnd)
		if !ok || !same(end.Block, former.At) {
			return true
		}
		now.Input = r.Offset + 1
		return false
	})
	if err == nil && now.Input < 0 && former.Input >= 0 {
		n.logger.Warn("the raw topic was replaced and lacks the last block: publishing events again", partitionField(partition),
			zap.Uint64("block", former.At.Number), zap.Stringer("hash", former.At.Hash))
	}
	return now, err
}
