package brokertest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// RefusedProduce is the answer to a request to produce of which nothing is taken.
func RefusedProduce(r *kmsg.ProduceRequest, why *kerr.Error) kmsg.Response {
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
