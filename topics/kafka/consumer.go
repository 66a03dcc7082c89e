package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ConsumerOptions tune a Consumer. The zero value works.
type ConsumerOptions struct {
	MaxBytes          int32 // of a fetch; default 4 MiB
	MaxPartitionBytes int32 // of a partition in a fetch; default 1 MiB
	Unread            int   // bytes buffered for a partition, above which it is not fetched; default 1 MiB
}

// consumerWait is how long a fetch waits without new records; a newly opened partition waits for it. On an idle chain
// a quarter of it made fetches half of what the broker did.
const consumerWait = 100 * time.Millisecond

// Consumer reads many partitions, read-committed, with one client: a fetch takes from a broker what is new in
// any of them. Each partition is read by its own goroutine at its own pace.
//
// Invariants:
//  1. records returned by Poll are never delivered again, and none is skipped: partitions are added and
//     removed between two polls of the client, in its goroutine;
//  2. a partition that is not read blocks no other: it is paused meanwhile.
type Consumer struct {
	cl      *kgo.Client
	conns   *dialer
	unread  int
	rewrite *rewriter
	ended   chan struct{}

	mu        sync.Mutex
	open      map[topicPartition]*PartitionReader
	changes   []func()           // of the set of partitions
	interrupt context.CancelFunc // of the running poll
	closed    bool
}

type topicPartition struct {
	topic     string
	partition int32
}

// alone is the partition in the form that the client's methods take.
func (at topicPartition) alone() map[string][]int32 {
	return map[string][]int32{at.topic: {at.partition}}
}

// PartitionReader reads one partition of a Consumer. It never skips records: an offset outside the partition is
// ErrOutOfRange, and nothing follows an error, after which the client may read on from elsewhere. It belongs to one
// goroutine.
type PartitionReader struct {
	c  *Consumer
	at topicPartition

	news chan struct{} // there are records to read, or an error

	// Guarded by the Consumer's mu:
	fetched bool // what the client returns is from its offset on, not left by a reader before it
	next    int64
	queue   []*Record
	bytes   int
	leftOut bool
	err     error
}

// NewConsumer makes a Consumer. It connects on Open.
func NewConsumer(cfg Config, name string, opt ConsumerOptions) (*Consumer, error) {
	if opt.MaxBytes == 0 {
		opt.MaxBytes = 4 << 20
	}
	if opt.MaxPartitionBytes == 0 {
		opt.MaxPartitionBytes = 1 << 20
	}
	if opt.Unread == 0 {
		opt.Unread = 1 << 20
	}
	cl, conns, err := cfg.client(name, nil, append(committed(consumerWait, opt.MaxBytes, opt.MaxPartitionBytes),
		kgo.MetadataMinAge(leastMetadataAge))...) // a newly opened partition waits for metadata
	if err != nil {
		return nil, err
	}
	c := &Consumer{
		cl: cl, conns: conns, unread: opt.Unread, rewrite: newRewriter(cfg.SchemaIDs), ended: make(chan struct{}),
		open: map[topicPartition]*PartitionReader{}, interrupt: func() {},
	}
	go c.run()
	return c, nil
}

// Open reads a partition from an offset on. It is an error if the partition already has a reader.
func (c *Consumer) Open(topic string, partition int32, offset int64) (*PartitionReader, error) {
	r := &PartitionReader{c: c, at: topicPartition{topic, partition}, next: offset, news: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrKilled
	}
	if c.open[r.at] != nil {
		return nil, fmt.Errorf("%s/%d already has a reader", topic, partition)
	}
	c.open[r.at] = r
	c.change(func() {
		c.cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(offset)}})
		c.mu.Lock()
		defer c.mu.Unlock()
		r.fetched = true
	})
	return r, nil
}

// change calls f between two polls of the client.
func (c *Consumer) change(f func()) {
	c.changes = append(c.changes, f)
	c.interrupt()
}

// run polls the client until Close.
func (c *Consumer) run() {
	defer close(c.ended)
	for {
		ctx, changes := c.next()
		if ctx == nil {
			return
		}
		for _, f := range changes {
			f()
		}
		fetches := c.cl.PollFetches(ctx)
		if fetches.IsClientClosed() {
			return
		}
		c.deliver(fetches)
	}
}

// next returns the changes to make before the next poll, and its context; nil: there is no next poll.
func (c *Consumer) next() (ctx context.Context, changes []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupt()
	if c.closed {
		return nil, nil
	}
	ctx, c.interrupt = context.WithCancel(context.Background())
	changes, c.changes = c.changes, nil
	return ctx, changes
}

// deliver distributes errors and records to their readers.
func (c *Consumer) deliver(fetches kgo.Fetches) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range fetches.Errors() {
		if errors.Is(e.Err, context.Canceled) {
			continue // a change is pending
		}
		for at, r := range c.open {
			if of := (topicPartition{e.Topic, e.Partition}); r.fetched && (e.Topic == "" || at == of) {
				r.fail(fmt.Errorf("fetch %s/%d: %w", at.topic, at.partition, classify(e.Err)))
			}
		}
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if r := c.open[topicPartition{p.Topic, p.Partition}]; r != nil && r.fetched && r.err == nil && len(p.Records) > 0 {
			r.add(p.Records)
		}
	})
}

func (r *PartitionReader) add(records []*Record) {
	if first := records[0].Offset; first < r.next {
		r.fail(fmt.Errorf("fetch %s/%d: offset %d after %d", r.at.topic, r.at.partition, first, r.next-1))
		return
	}
	r.next = records[len(records)-1].Offset + 1
	for _, rec := range records {
		r.c.rewrite.incoming(rec)
		r.bytes += size(rec)
	}
	r.queue = append(r.queue, records...)
	if r.bytes >= r.c.unread && !r.leftOut {
		r.leftOut = true
		r.c.cl.PauseFetchPartitions(r.at.alone())
	}
	r.tell()
}

func (r *PartitionReader) fail(err error) {
	if r.err == nil {
		r.err = err
		r.tell()
	}
}

func (r *PartitionReader) tell() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// size is about how much memory a record takes.
func size(r *Record) int { return len(r.Key) + len(r.Value) + recordOverhead }

const recordOverhead = 200

// Poll returns new records: it waits until there is at least one, ctx is done, or the Consumer is closed. It
// reuses dst, whose records are no longer needed. Records and their bytes stay valid.
func (r *PartitionReader) Poll(ctx context.Context, dst []*Record) ([]*Record, error) {
	clear(dst)
	dst = dst[:0]
	for {
		if records, err := r.take(dst); len(records) > 0 || err != nil {
			return records, err
		}
		select {
		case <-r.news:
		case <-ctx.Done():
			return dst, ctx.Err()
		}
	}
}

// take returns the buffered records; an error is returned after all records before it.
func (r *PartitionReader) take(dst []*Record) ([]*Record, error) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if len(r.queue) == 0 {
		return dst, r.err
	}
	records := r.queue
	r.queue = dst
	r.emptied()
	return records, nil
}

// emptied resumes the fetching of the partition.
func (r *PartitionReader) emptied() {
	r.bytes = 0
	if r.leftOut {
		r.leftOut = false
		r.c.cl.ResumeFetchPartitions(r.at.alone())
	}
}

// Close stops reading the partition; it may be opened again at once.
func (r *PartitionReader) Close() {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[r.at] != r {
		return
	}
	delete(c.open, r.at)
	c.change(func() { c.cl.RemoveConsumePartitions(r.at.alone()) })
	r.emptied()
}

// Close releases the client, in bounded time. Waiting Polls return ErrKilled.
func (c *Consumer) Close() {
	c.mu.Lock()
	c.closed = true
	c.interrupt()
	for _, r := range c.open {
		r.fail(ErrKilled)
	}
	clear(c.open)
	c.mu.Unlock()
	closeClient(c.cl, c.conns)
	<-c.ended
}
