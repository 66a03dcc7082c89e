package brokertest

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lienstream/lienstream/topics/broker"
)

// Refusing is a broker that can take nothing for a while.
type Refusing struct {
	Addrs []string
	why   atomic.Pointer[kerr.Error]
	n     atomic.Int64
}

// RefuseForNow has it answer all requests to produce with an error that passes, until Take.
func (r *Refusing) RefuseForNow() { r.why.Store(kerr.NotEnoughReplicas) }

// Refuse has it answer all requests to produce with an error that does not pass, until Take.
func (r *Refusing) Refuse() { r.why.Store(kerr.MessageTooLarge) }

// Take has it take what is produced.
func (r *Refusing) Take() { r.why.Store(nil) }

// Refused is how many requests it has refused.
func (r *Refusing) Refused() int { return int(r.n.Load()) }

// StartRefusing starts one, which takes all until Refuse.
func StartRefusing(t testing.TB) *Refusing {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(broker.Settings()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	broker.WholeFetches(cluster)
	r := &Refusing{Addrs: cluster.ListenAddrs()}
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		why := r.why.Load()
		if why == nil {
			return nil, nil, false
		}
		r.n.Add(1)
		return refused(req.(*kmsg.ProduceRequest), why), nil, true
	})
	return r
}

func refused(r *kmsg.ProduceRequest, why *kerr.Error) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.ProduceResponse)
	for _, of := range r.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = of.Topic, of.TopicID
		for _, p := range of.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition, partition.ErrorCode = p.Partition, why.Code
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
