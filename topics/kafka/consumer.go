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
	MaxBytes          int32         // of a fetch; default 4 MiB
	MaxPartitionBytes int32         // of a partition in a fetch; default 1 MiB
	Unread            int           // bytes buffered for a partition, above which it is not fetched; default 1 MiB
	Held              int           // bytes of all partitions, above which none is read ahead; default eight times Unread
	Wait              time.Duration // of a fetch without new records; default 100 ms: at 25 ms fetches were half of an idle broker's work
	Fresh             time.Duration // how long after the last Open partitions are fresh, and after the end of their backlog; default 250 ms
}

// freshWait is how long a fetch of fresh partitions waits for records, and with it the next one that is opened: the least
// that franz-go allows.
const freshWait = 10 * time.Millisecond

// Consumer reads many partitions, read-committed, with two clients: a fetch takes from a broker what is new in
// any of a client's partitions. Each partition is read by its own goroutine at its own pace.
//
// A partition that is added to a client, or was paused, waits until the client's running fetch ends. So what was just opened is
// fetched by a client that hardly waits, and moves to the one whose fetches wait long and cost the broker little once there is
// no backlog of it: else each part of a backlog could wait for partitions that have nothing new.
//
// Invariants:
//  1. records returned by Poll are never delivered again, and none is skipped: partitions are added to a client and
//     removed between two of its polls, in its goroutine, and a reader takes from one client at a time;
//  2. a partition that is not read blocks no other: it is paused meanwhile;
//  3. while all that was fetched, and is buffered or in use, is more than Held, a partition of which much was fetched waits
//     until that is no longer in use.
type Consumer struct {
	opt           ConsumerOptions
	rewrite       *rewriter
	fresh, steady *fetcher

	mu     sync.Mutex
	open   map[topicPartition]*PartitionReader
	held   int         // bytes that are buffered or in use
	settle *time.Timer // moves what is fresh
	closed bool
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
	by      *fetcher
	fetched bool // what the client returns is from its offset on, not left by a reader before it
	next    int64
	queue   []*Record
	bytes   int // of the queue
	inUse   int // bytes that the last Poll returned
	lately  int // bytes that were fetched since moveFresh looked
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
	if opt.Held == 0 {
		opt.Held = 8 * opt.Unread
	}
	if opt.Wait == 0 {
		opt.Wait = 100 * time.Millisecond
	}
	if opt.Fresh == 0 {
		opt.Fresh = 250 * time.Millisecond
	}
	c := &Consumer{opt: opt, rewrite: newRewriter(cfg.SchemaIDs), open: map[topicPartition]*PartitionReader{}}
	var err error
	if c.fresh, err = c.newFetcher(cfg, name, freshWait); err != nil {
		return nil, err
	}
	if c.steady, err = c.newFetcher(cfg, name, opt.Wait); err != nil {
		closeClient(c.fresh.cl, c.fresh.conns)
		return nil, err
	}
	c.settle = time.AfterFunc(opt.Fresh, c.moveFresh)
	go c.fresh.run()
	go c.steady.run()
	return c, nil
}

// Open reads a partition from an offset on. It is an error if the partition already has a reader.
func (c *Consumer) Open(topic string, partition int32, offset int64) (*PartitionReader, error) {
	r := &PartitionReader{c: c, at: topicPartition{topic, partition}, by: c.fresh, next: offset, news: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrKilled
	}
	if c.open[r.at] != nil {
		return nil, fmt.Errorf("%s/%d already has a reader", topic, partition)
	}
	c.open[r.at] = r
	r.by.add([]*PartitionReader{r})
	c.settle.Reset(c.opt.Fresh)
	return r, nil
}

// moveFresh lets the steady client go on with what the fresh one has read to its end.
func (c *Consumer) moveFresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh.change(func() { c.fresh.cl.RemoveConsumePartitions(c.takeFresh()) })
}

// takeFresh gives what the fresh client reads to the steady one.
func (c *Consumer) takeFresh() map[string][]int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var readers []*PartitionReader
	moved := map[string][]int32{}
	later := false
	for at, r := range c.open {
		if r.by != c.fresh || r.err != nil {
			continue
		}
		if !r.fetched || r.backlog() {
			later = true
			continue
		}
		r.by, r.fetched = c.steady, false
		readers = append(readers, r)
		moved[at.topic] = append(moved[at.topic], at.partition)
	}
	if len(readers) > 0 {
		c.steady.add(readers)
	}
	if later && !c.closed {
		c.settle.Reset(c.opt.Fresh)
	}
	return moved
}

// backlog reports whether more of the partition was fetched since it was last asked than what comes new, or waits to be read.
func (r *PartitionReader) backlog() bool {
	lately := r.lately
	r.lately = 0
	return r.leftOut || lately >= int(r.c.opt.MaxPartitionBytes)/4
}

// deliver distributes errors and records of a client to their readers.
func (c *Consumer) deliver(by *fetcher, fetches kgo.Fetches) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range fetches.Errors() {
		if errors.Is(e.Err, context.Canceled) {
			continue // a change is pending
		}
		for at, r := range c.open {
			if of := (topicPartition{e.Topic, e.Partition}); r.by == by && r.fetched && (e.Topic == "" || at == of) {
				r.fail(fmt.Errorf("fetch %s/%d: %w", at.topic, at.partition, classify(e.Err)))
			}
		}
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if r := c.open[topicPartition{p.Topic, p.Partition}]; r != nil && r.by == by && r.fetched && r.err == nil && len(p.Records) > 0 {
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
	before := r.bytes
	for _, rec := range records {
		r.c.rewrite.incoming(rec)
		r.bytes += size(rec)
	}
	r.c.held += r.bytes - before
	r.lately += r.bytes - before
	r.queue = append(r.queue, records...)
	if r.bytes >= r.c.opt.Unread && !r.leftOut {
		r.leftOut = true
		r.by.cl.PauseFetchPartitions(r.at.alone())
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
	r.done()
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
	r.inUse, r.bytes = r.bytes, 0
	if r.c.held < r.c.opt.Held {
		r.resume()
	}
	return records, nil
}

// done tells that what the last Poll returned is no longer in use.
func (r *PartitionReader) done() {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.held -= r.inUse
	r.inUse = 0
	if len(r.queue) == 0 {
		r.resume()
	}
}

// resume has the partition fetched again.
func (r *PartitionReader) resume() {
	if r.leftOut {
		r.leftOut = false
		r.by.cl.ResumeFetchPartitions(r.at.alone())
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
	by := r.by
	by.change(func() { by.cl.RemoveConsumePartitions(r.at.alone()) })
	c.held -= r.bytes + r.inUse
	r.bytes, r.inUse = 0, 0
	r.resume()
}

// Close releases the clients, in bounded time. Waiting Polls return ErrKilled.
func (c *Consumer) Close() {
	c.mu.Lock()
	c.closed = true
	c.settle.Stop()
	for _, r := range c.open {
		r.fail(ErrKilled)
	}
	clear(c.open)
	for _, f := range []*fetcher{c.fresh, c.steady} {
		f.interrupt()
	}
	c.mu.Unlock()
	for _, f := range []*fetcher{c.fresh, c.steady} {
		closeClient(f.cl, f.conns)
		<-f.ended
	}
}
