package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// History reads partitions backwards. It is safe for concurrent use.
type History struct {
	cl      *kgo.Client
	conns   *dialer
	timeout time.Duration
	ids     map[uint32]uint32
}

// NewHistory makes a History. It connects on the first read.
func NewHistory(cfg Config) (*History, error) {
	cl, conns, err := cfg.client("history", nil)
	if err != nil {
		return nil, err
	}
	return &History{cl: cl, conns: conns, timeout: cfg.Timeout, ids: cfg.SchemaIDs}, nil
}

// Close releases the client, in bounded time.
func (h *History) Close() { closeClient(h.cl, h.conns) }

// ReadBack is History.ReadBack with a temporary History.
func ReadBack(ctx context.Context, cfg Config, topic string, partition int32, n int, fn func(*Record) bool) error {
	h, err := NewHistory(cfg)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.ReadBack(ctx, topic, partition, n, fn)
}

// ReadBack calls fn with the committed records of a partition from the last one backwards, until fn returns
// false, n records were passed or the partition has no more. n <= 0: no limit.
//
// It fetches windows of offsets that grow up to a bound. The first has room for one record and the marker of its transaction: a
// broker sends whole batches, so a larger one would most often fetch what was committed before. A window may have only
// transaction markers, aborted records or offsets removed by compaction. So it uses raw fetch requests, whose responses tell how
// far they reach; a consumer would wait for a record that never comes.
func (h *History) ReadBack(ctx context.Context, topic string, partition int32, n int, fn func(*Record) bool) error {
	b := &backwards{cl: h.cl, topic: topic, partition: partition, rewrite: newRewriter(h.ids)}
	call := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, h.timeout)
		defer cancel()
		return supervise(ctx, func(ctx context.Context) error { return b.atLeader(ctx, f) })
	}
	if err := call(func(context.Context) error { return nil }); err != nil {
		return fmt.Errorf("read back %s/%d: %w", topic, partition, err)
	}
	given := 0
	for end, window := b.end, int64(firstWindow); end > b.start; window = min(max(2*window, secondWindow), lastWindow) {
		from := max(b.start, end-window)
		var records []*Record
		for at := from; at < end; {
			var part []*Record // next and part are read only if the call has ended
			var next int64
			err := call(func(ctx context.Context) (err error) {
				part, next, err = b.fetch(ctx, at, end)
				return err
			})
			if err != nil {
				return fmt.Errorf("read back %s/%d from %d: %w", topic, partition, at, classify(err))
			}
			records, at = append(records, part...), next
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

// Windows of offsets: the largest is held in memory.
const (
	firstWindow  = 2
	secondWindow = 64
	lastWindow   = 8192
)

// TopicID distinguishes topics that had the same name one after the other.
type TopicID [16]byte

// String is the ID in the format of Kafka's tools.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// Place is the topic ID of a partition, and the offset after the last record of a leader epoch or earlier ones; -1: the epoch is
// unknown.
type Place struct {
	Topic    TopicID
	EpochEnd int64
}

// Place fetches a partition's place. With a negative epoch EpochEnd is the high watermark.
func (h *History) Place(ctx context.Context, topic string, partition, epoch int32) (Place, error) {
	return h.place(ctx, topic, partition, func(ctx context.Context, b *backwards) (int64, error) { return b.epochEnd(ctx, epoch) })
}

// TopicID fetches the ID of a partition's topic, which takes no request where the client knows it.
func (h *History) TopicID(ctx context.Context, topic string, partition int32) (TopicID, error) {
	place, err := h.place(ctx, topic, partition, func(context.Context, *backwards) (int64, error) { return 0, nil })
	return place.Topic, err
}

func (h *History) place(ctx context.Context, topic string, partition int32, end func(context.Context, *backwards) (int64, error)) (Place, error) {
	b := &backwards{cl: h.cl, topic: topic, partition: partition, endless: true}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	var place Place // read only if the call has ended
	err := supervise(ctx, func(ctx context.Context) error {
		return b.atLeader(ctx, func(ctx context.Context) error {
			end, err := end(ctx, b)
			place = Place{Topic: b.topicID, EpochEnd: end}
			return err
		})
	})
	if err != nil {
		return Place{}, fmt.Errorf("locate %s/%d: %w", topic, partition, err)
	}
	return place, nil
}

// Ends returns the offset after the last record of each partition of a topic, decided or not.
func (h *History) Ends(ctx context.Context, topic string) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	listed := make(chan kadm.ListedOffsets, 1)
	err := supervise(ctx, func(ctx context.Context) error {
		all, err := kadm.NewClient(h.cl).ListEndOffsets(ctx, topic)
		if err == nil {
			err = all.Error()
		}
		listed <- all
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", topic, err)
	}
	ends := map[int32]int64{}
	(<-listed).Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends, nil
}

// epochEnd is the end offset of a leader epoch in the leader's log.
func (b *backwards) epochEnd(ctx context.Context, epoch int32) (int64, error) {
	if epoch < 0 {
		return b.offset(ctx, endTimestamp, readUncommitted)
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = b.partition, -1, epoch
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = b.topic
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, b.cl.Broker(int(b.leader)))
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("response has %d topics, expected one", len(resp.Topics))
	}
	answer := resp.Topics[0].Partitions[0]
	return answer.EndOffset, kerr.ErrorForCode(answer.ErrorCode)
}

// backwards reads one partition by offset.
type backwards struct {
	cl         *kgo.Client
	topic      string
	partition  int32
	endless    bool // the end is not needed
	located    bool // the leader and the end are known
	topicID    TopicID
	leader     int32
	start, end int64 // start: no record is below; end: the last stable offset, above which transactions are undecided
	rewrite    *rewriter
}

// atLeader calls f once the leader and the end are known. Where that broker dies, or another one is elected, it asks who leads
// instead, and calls f again, until ctx is done.
func (b *backwards) atLeader(ctx context.Context, f func(context.Context) error) error {
	for {
		again, err := b.locate(ctx)
		if err == nil {
			err = f(ctx)
			again = passes(err)
		}
		if !again {
			return err
		}
		b.located = false
		select {
		case <-time.After(metadataMinAge): // before that the client would say the same
		case <-ctx.Done():
			return err
		}
	}
}

// passes says whether an error of a request to the leader is over once another broker leads. A request to a certain broker is not
// repeated by the client.
func passes(err error) bool {
	if kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err) // it refuses connections
	return ok && op.Op == "dial"
}

// locate finds the partition's leader and its end, if they are not known. again: it may succeed later.
func (b *backwards) locate(ctx context.Context) (again bool, err error) {
	if b.located {
		return false, nil
	}
	if err := b.findLeader(ctx); err != nil {
		return kerr.IsRetriable(err), err
	}
	if b.endless {
		b.located = true
		return false, nil
	}
	end := b.end
	if b.end, err = b.offset(ctx, endTimestamp, readCommitted); err != nil {
		return passes(err), fmt.Errorf("last stable offset: %w", err)
	}
	if b.end < end { // what is above it would be passed over
		b.end = end
		return true, kerr.OffsetNotAvailable
	}
	b.located = true
	return false, nil
}

func (b *backwards) findLeader(ctx context.Context) error {
	md, err := kadm.NewClient(b.cl).Metadata(ctx, b.topic)
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
	if !slices.Contains(md.Brokers.NodeIDs(), pd.Leader) {
		return kerr.LeaderNotAvailable
	}
	if id := TopicID(td.ID); b.topicID != (TopicID{}) && b.topicID != id {
		return fmt.Errorf("the ID of the topic is %s, it was %s", id, b.topicID)
	}
	b.topicID, b.leader = TopicID(td.ID), pd.Leader
	return nil
}

// Special timestamps in ListOffsets requests.
const (
	endTimestamp   = -1
	startTimestamp = -2
)

// Isolation levels.
const (
	readUncommitted int8 = 0
	readCommitted   int8 = 1
)

func (b *backwards) offset(ctx context.Context, timestamp int64, isolation int8) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = isolation
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = b.partition, timestamp
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = b.topic
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, b.cl.Broker(int(b.leader)))
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("response has %d topics, expected one", len(resp.Topics))
	}
	answer := resp.Topics[0].Partitions[0]
	return answer.Offset, kerr.ErrorForCode(answer.ErrorCode)
}

// fetch returns the committed records from offset at to below end, as far as one response reaches, and the next
// offset: end if the response has no more, or the partition's start if that is above at.
func (b *backwards) fetch(ctx context.Context, at, end int64) ([]*Record, int64, error) {
	records, next, err := b.fetchFrom(ctx, at, end)
	if !errors.Is(err, kerr.OffsetOutOfRange) {
		return records, next, err
	}
	start, err2 := b.offset(ctx, startTimestamp, readCommitted)
	if err2 != nil {
		return nil, at, fmt.Errorf("start offset: %w", err2)
	}
	if start <= at {
		return nil, at, err
	}
	b.start = start
	return nil, min(start, end), nil
}

func (b *backwards) fetchFrom(ctx context.Context, at, end int64) ([]*Record, int64, error) {
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
		return nil, at, fmt.Errorf("fetch response has %d topics, expected one", len(resp.Topics))
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at, IsolationLevel: kgo.ReadCommitted(), Topic: b.topic, Partition: b.partition,
	}, &resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		return nil, at, fp.Err
	}
	if next <= at {
		next = end // nothing is left below the last stable offset
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
