package engine

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// sameTopic checks that a topic is the one that a position belongs to: its ID is the same (zero: unknown), and
// the records that its leader wrote up to a leader epoch reach the offset (a negative one: unknown). It returns the
// topic's ID.
//
// A topic that was deleted and recreated, or mirrored, has another ID. A topic that lost its end in a leader
// election and grew again has other records at the same offsets, which only the leader epoch shows.
func (n *Node) sameTopic(ctx context.Context, topic string, partition int32, id kafka.TopicID, leaderEpoch int32, offset int64) (now kafka.TopicID, err error) {
	err = kafka.Doubted(ctx, n.cfg.doubt, ErrBroken, func() (err error) {
		now, err = n.isTopic(ctx, topic, partition, id, leaderEpoch, offset)
		return err
	})
	return now, err
}

// isTopic is sameTopic by what the leader says now.
func (n *Node) isTopic(ctx context.Context, topic string, partition int32, id kafka.TopicID, leaderEpoch int32, offset int64) (kafka.TopicID, error) {
	if id == (kafka.TopicID{}) || offset < 0 {
		return n.history.TopicID(ctx, topic, partition)
	}
	place, err := n.history.Place(ctx, topic, partition, leaderEpoch)
	switch {
	case err != nil:
		return id, err
	case place.Topic != id:
		return id, fmt.Errorf("%w: the ID of %s is %s, it was %s", ErrBroken, topic, place.Topic, id)
	case place.EpochEnd < offset:
		return id, fmt.Errorf("%w: %s/%d has records up to offset %d in leader epoch %d, but the state is at offset %d", ErrBroken, topic, partition, place.EpochEnd, leaderEpoch, offset)
	}
	return place.Topic, nil
}

// moved translates a former generation's position to the current raw topic. If the topic was replaced, offsets mean
// nothing, but blocks do: the last block tells what was published. A topic that was ingested again may have no barrier of it, where
// it has no logs: then its child's names it, and the block whose barrier comes before that.
func (n *Node) moved(ctx context.Context, partition int32, former progress) (progress, error) {
	id, err := n.history.TopicID(ctx, n.input, partition)
	if err != nil || former.Raw == id || former.Raw == (kafka.TopicID{}) {
		return former, err
	}
	now := unopened().Progress
	now.Floor, now.Rebuild.Settled = min(former.Floor, former.At.Number), former.Rebuild.Settled // a floor may be ahead of the block
	previous := former.At
	err = n.history.ReadBack(ctx, n.input, partition, 0, func(r *kafka.Record) bool {
		raw, _ := topics.DecodeRaw(r.Value)
		end, ok := raw.(*topics.BlockEnd)
		if !ok {
			return true
		}
		if end.Block.Same(former.At) || end.Block.Same(previous) {
			now.Input = r.Offset + 1
			return false
		}
		if end.Linked && end.Parent == former.At.Hash {
			previous = end.Previous
		}
		return true
	})
	if err == nil && now.Input < 0 && former.Input >= 0 {
		n.logger.Warn("the raw topic was replaced and lacks the last block: publishing events again", partitionField(partition),
			zap.Uint64("block", former.At.Number), zap.Stringer("hash", former.At.Hash))
	}
	return now, err
}
