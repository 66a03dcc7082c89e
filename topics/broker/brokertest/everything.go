package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Everything is what the brokers hold, the keys, values and headers of all records of each topic: aborted ones and those
// of the brokers' own topics too.
func Everything(t testing.TB, brokers []string) map[string][]byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var names []string
	ends := map[string]map[int32]int64{} // of partitions with records
	admin(t, brokers, func(adm *kadm.Client) error {
		topics, err := adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		names = topics.Names()
		offsets, err := adm.ListEndOffsets(ctx, names...)
		if err != nil {
			return err
		}
		offsets.Each(func(o kadm.ListedOffset) {
			if o.Offset == 0 {
				return
			}
			if ends[o.Topic] == nil {
				ends[o.Topic] = map[int32]int64{}
			}
			ends[o.Topic][o.Partition] = o.Offset
		})
		return nil
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(names...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	all := map[string][]byte{}
	for len(ends) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read all topics: %v, with %v left", err, ends)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			all[r.Topic] = append(append(append(all[r.Topic], r.Key...), 0), r.Value...)
			for _, h := range r.Headers {
				all[r.Topic] = append(append(append(all[r.Topic], 0), h.Key...), h.Value...)
			}
			all[r.Topic] = append(all[r.Topic], 0)
			if r.Offset+1 >= ends[r.Topic][r.Partition] {
				delete(ends[r.Topic], r.Partition)
			}
			if len(ends[r.Topic]) == 0 {
				delete(ends, r.Topic)
			}
		})
	}
	return all
}
