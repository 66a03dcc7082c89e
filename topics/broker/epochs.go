package broker

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// epochs keeps where each leader epoch of a partition began, as Apache Kafka does. kfake looks for the first record of a later
// epoch instead: of one whose leader has written nothing yet it says that no former epoch is known, which readers take for a loss.
type epochs struct {
	cluster *kfake.Cluster

	mu     sync.Mutex
	starts map[partition][]epochStart // ascending
}

type partition struct {
	topic  [16]byte // its ID: a name may be another topic's later
	number int32
}

type epochStart struct {
	epoch  int32
	offset int64
}

// watchEpochs answers for partitions that are moved from now on.
func watchEpochs(cluster *kfake.Cluster) *epochs {
	e := &epochs{cluster: cluster, starts: map[partition][]epochStart{}}
	cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp, answered := e.answer(req.(*kmsg.OffsetForLeaderEpochRequest))
		return resp, nil, answered
	})
	return e
}

// Move makes another node lead a partition.
func (b *Broker) Move(topic string, number, node int32) error {
	if err := b.cluster.MoveTopicPartition(topic, number, node); err != nil {
		return err
	}
	if of, info := b.cluster.TopicInfo(topic), b.cluster.PartitionInfo(topic, number); of != nil && info != nil {
		b.epochs.mu.Lock()
		defer b.epochs.mu.Unlock()
		p := partition{of.TopicID, number}
		b.epochs.starts[p] = append(b.epochs.starts[p], epochStart{info.Epoch, info.HighWatermark})
	}
	return nil
}

// answer answers a request if it asks for former epochs of moved partitions alone, and of this node. Else kfake's own answer is right.
func (e *epochs) answer(req *kmsg.OffsetForLeaderEpochRequest) (*kmsg.OffsetForLeaderEpochResponse, bool) {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch = p.Partition, p.LeaderEpoch
			of, info := e.cluster.TopicInfo(t.Topic), e.cluster.PartitionInfo(t.Topic, p.Partition)
			if of == nil || info == nil || info.Leader != e.cluster.CurrentNode() || p.LeaderEpoch >= info.Epoch {
				return nil, false
			}
			switch current := p.CurrentLeaderEpoch; {
			case current >= 0 && current < info.Epoch:
				rp.ErrorCode = kerr.FencedLeaderEpoch.Code
			case current > info.Epoch:
				rp.ErrorCode = kerr.UnknownLeaderEpoch.Code
			default:
				end, known := e.end(partition{of.TopicID, p.Partition}, p.LeaderEpoch)
				if !known {
					return nil, false
				}
				rp.EndOffset = end
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, true
}

// end is where the next epoch began.
func (e *epochs) end(p partition, epoch int32) (offset int64, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.starts[p] {
		if s.epoch > epoch {
			return s.offset, true
		}
	}
	return 0, false
}
