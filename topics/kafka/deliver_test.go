package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What the client fetched for a reader that has ended is not for the one that was opened since, elsewhere.
func TestDeliverToTheNext(t *testing.T) {
	c := &Consumer{unread: 1 << 20, open: map[topicPartition]*PartitionReader{}, interrupt: func() {}}
	fetched := func(offset int64) kgo.Fetches {
		return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{
			{Partition: 1, Records: []*Record{{Topic: "t", Partition: 1, Offset: offset}}},
		}}}}}
	}
	r, err := c.Open("t", 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	c.deliver(fetched(100)) // polled before the client knew of r
	if records, err := r.take(nil); len(records) > 0 || err != nil {
		t.Errorf("a reader from offset 7 on got offset %d (%v)", records[0].Offset, err)
	}
	r.fetched = true
	c.deliver(fetched(7))
	if records, err := r.take(nil); len(records) != 1 || err != nil {
		t.Errorf("got %d records, want what was fetched for it (%v)", len(records), err)
	}
}
