package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func unconnected() *Consumer {
	c := &Consumer{opt: ConsumerOptions{Unread: 1 << 20}, open: map[topicPartition]*PartitionReader{}, settle: time.NewTimer(time.Hour)}
	c.fresh = &fetcher{c: c, interrupt: func() {}}
	return c
}

// What the client fetched for a reader that has ended is not for the one that was opened since, elsewhere.
func TestDeliverToTheNext(t *testing.T) {
	c := unconnected()
	fetched := func(offset int64) kgo.Fetches {
		return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{
			{Partition: 1, Records: []*Record{{Topic: "t", Partition: 1, Offset: offset}}},
		}}}}}
	}
	r, err := c.Open("t", 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	c.deliver(c.fresh, fetched(100)) // polled before the client knew of r
	if records, err := r.take(nil); len(records) > 0 || err != nil {
		t.Errorf("a reader from offset 7 on got offset %d (%v)", records[0].Offset, err)
	}
	r.fetched = true
	c.deliver(c.fresh, fetched(7))
	if records, err := r.take(nil); len(records) != 1 || err != nil {
		t.Errorf("got %d records, want what was fetched for it (%v)", len(records), err)
	}
}

// After lost records the client reads on from elsewhere, beside its error or without one. A reader gets nothing of that.
func TestNothingIsDeliveredFromElsewhere(t *testing.T) {
	lost := &kgo.ErrDataLoss{Topic: "t", Partition: 1, ConsumedTo: 9, ResetTo: 5}
	fetched := func(err error, offsets ...int64) kgo.Fetches {
		p := kgo.FetchPartition{Partition: 1, Err: err}
		for _, at := range offsets {
			p.Records = append(p.Records, &Record{Topic: "t", Partition: 1, Offset: at})
		}
		return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{p}}}}}
	}
	for name, polls := range map[string][]kgo.Fetches{
		"an error, then records": {fetched(nil, 7, 8), fetched(lost), fetched(nil, 5, 6)},
		"both at once":           {fetched(nil, 7, 8), append(fetched(nil, 5, 6), fetched(lost)...)},
		"no error":               {fetched(nil, 7, 8), fetched(nil, 5, 6)},
		"from the beginning":     {fetched(nil, 7, 8), fetched(nil, 0)},
		"again":                  {fetched(nil, 7, 8), fetched(nil, 8, 9)},
	} {
		t.Run(name, func(t *testing.T) {
			c := unconnected()
			r, err := c.Open("t", 1, 7)
			if err != nil {
				t.Fatal(err)
			}
			r.fetched = true
			for _, p := range polls {
				c.deliver(c.fresh, p)
			}
			records, err := r.take(nil)
			if len(records) != 2 || records[1].Offset != 8 || err != nil {
				t.Errorf("got %d records, want those at 7 and 8 (%v)", len(records), err)
			}
			if records, err = r.take(nil); len(records) > 0 || err == nil {
				t.Errorf("got %d more, and no error", len(records))
			}
		})
	}
}
