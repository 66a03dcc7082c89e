package brokertest

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Deposed is a broker that reports a former end of a partition once, as one does that was frozen and still believes that it leads.
type Deposed struct {
	Addrs []string
	Old   atomic.Int64 // the end that it says next; 0: the true one
	Told  atomic.Int64 // how often it has
}

// StartDeposed starts one that does so for a partition, in requests for its end alone or first, at an isolation level.
func StartDeposed(t testing.TB, topic string, partition int32, isolation int8) *Deposed {
	t.Helper()
	cluster := embedded(t)
	d := &Deposed{Addrs: cluster.ListenAddrs()}
	cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		r, ok := req.(*kmsg.ListOffsetsRequest)
		if !ok || r.IsolationLevel != isolation || len(r.Topics) != 1 || r.Topics[0].Topic != topic || r.Topics[0].Partitions[0].Partition != partition || r.Topics[0].Partitions[0].Timestamp != -1 {
			return nil, nil, false
		}
		end := d.Old.Swap(0)
		if end == 0 {
			return nil, nil, false
		}
		d.Told.Add(1)
		resp, rt, rp := kmsg.NewPtrListOffsetsResponse(), kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		rp.Partition, rp.Offset = partition, end
		rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
		resp.Version, resp.Topics = r.Version, append(resp.Topics, rt)
		return resp, nil, true
	})
	return d
}
