package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ReadBack calls fn with the committed records of a partition from the last one backwards, until fn
// returns false, n records were handed out or the partition has no more. n <= 0 is no limit.
//
// It reads windows of offsets that double in size. A window may hold nothing but transaction markers,
// aborted records or offsets that compaction emptied; so it asks the broker itself, which says how far
// an answer reaches, and not through a consumer, which waits for a record that never comes.
func ReadBack(ctx context.Context, cfg Config, topic string, partition int32, n int, fn func(*Record) bool) error {
	cl, conns, err := cfg.client("readback", nil)
	if err != nil {
		return err
	}
	defer closeClient(cl, conns)
	b := &backwards{cl: cl, topic: topic, partition: partition, rewrite: newRewriter(cfg.SchemaIDs)}
	timeout := cfg.withDefaults().Timeout
	call := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return supervise(ctx, f)
	}
	if err := call(b.locate); err != nil {
		return fmt.Errorf("read back %s/%d: %w", topic, partition, err)
	}
	given := 0
	for end, window := b.end, int64(firstWindow); end > b.start; window *= 2 {
		from := max(b.start, end-window)
		var records []*Record
		for at := from; at < end; {
			err := call(func(ctx context.Context) (err error) {
				var part []*Record
				part, at, err = b.fetch(ctx, at, end)
				records = append(records, part...)
				return err
			})
			if err != nil {
				return fmt.Errorf("read back %s/%d from %d: %w", topic, partition, at, classify(err))
			}
		}
		for _, r := range slices.Backward(records) {
			if given++; !fn(r) || given == n {
				return nil
			}
		}
		end = from
	}
	return nil
}

const firstWindow = 64 // offsets

// backwards reads one partition by offset.
type backwards struct {
	cl         *kgo.Client
	topic      string
	partition  int32
	topicID    [16]byte
	leader     int32
	start, end int64 // end: the last stable offset, behind which nothing is decided
	rewrite    *rewriter
}

// locate finds the partition's leader and the range of its offsets.
func (b *backwards) locate(ctx context.Context) error {
	adm := kadm.NewClient(b.cl)
	md, err := adm.Metadata(ctx, b.topic)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	td := md.Topics[b.topic]
	if td.Err != nil {
		return fmt.Errorf("metadata: %w", td.Err)
	}
	pd, ok := td.Partitions[b.partition]
	if !ok {
		return kerr.UnknownTopicOrPartition
	}
	if pd.Err != nil {
		return fmt.Errorf("metadata: %w", pd.Err)
	}
	b.topicID, b.leader = td.ID, pd.Leader
	starts, err := adm.ListStartOffsets(ctx, b.topic)
	if err != nil {
		return fmt.Errorf("start offset: %w", err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, b.topic)
	if err != nil {
		return fmt.Errorf("last stable offset: %w", err)
	}
	s, _ := starts.Lookup(b.topic, b.partition)
	e, _ := ends.Lookup(b.topic, b.partition)
	if s.Err != nil || e.Err != nil {
		return fmt.Errorf("offsets: start: %w, end: %w", s.Err, e.Err)
	}
	b.start, b.end = s.Offset, e.Offset
	return nil
}

// fetch returns the committed records from offset at on, below end, as far as one answer reaches, and
// the offset to go on from: end where the answer said nothing more.
func (b *backwards) fetch(ctx context.Context, at, end int64) ([]*Record, int64, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID = -1, -1
	req.IsolationLevel = 1
	req.MaxWaitMillis = 0
	req.MinBytes = 0
	req.MaxBytes = readBackBytes
	req.SessionEpoch = -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition = b.partition
	p.FetchOffset = at
	p.PartitionMaxBytes = readBackBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = b.topic, b.topicID
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)

	resp, err := req.RequestWith(ctx, b.cl.Broker(int(b.leader)))
	if err != nil {
		return nil, at, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, at, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, at, fmt.Errorf("fetch answered %d topics for one", len(resp.Topics))
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at, IsolationLevel: kgo.ReadCommitted(), Topic: b.topic, Partition: b.partition,
	}, &resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		return nil, at, fp.Err
	}
	if next <= at {
		next = end // nothing below the last stable offset is left
	}
	records := fp.Records
	for i, r := range records {
		if r.Offset >= end {
			records = records[:i]
			break
		}
		b.rewrite.incoming(r)
	}
	return records, next, nil
}

const readBackBytes = 5 << 20
