package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ReaderOptions tune a Reader. The zero value works.
type ReaderOptions struct {
	MaxWait time.Duration // a fetch of a quiet partition; new records end it at once. 500 ms
}

// What a Reader takes at once: it bounds what it buffers.
const (
	readerBytes   = 5 << 20 // of a fetch
	readerRecords = 20_000  // of a Poll
)

// committed makes a client read what is committed, from the offsets that it is told and no others.
func committed(wait time.Duration, bytes, partitionBytes int32) []kgo.Opt {
	return []kgo.Opt{
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(wait),
		kgo.FetchMaxBytes(bytes),
		kgo.FetchMaxPartitionBytes(partitionBytes),
	}
}

// Reader reads one partition, read-committed, from an offset on. It never jumps: an offset that is not
// there is ErrOutOfRange. It belongs to one goroutine, but for Kill.
type Reader struct {
	cl      *kgo.Client
	conns   *dialer
	rewrite *rewriter
	close   sync.Once
}

// Start as an offset is the first that the partition still has.
const Start int64 = -2

// NewReader makes a Reader; it fetches from the first Poll on, and ahead of it.
func NewReader(cfg Config, topic string, partition int32, offset int64, opt ReaderOptions) (*Reader, error) {
	if opt.MaxWait == 0 {
		opt.MaxWait = 500 * time.Millisecond
	}
	cl, conns, err := cfg.client(fmt.Sprintf("%s/%d", topic, partition), nil, append(committed(opt.MaxWait, readerBytes, readerBytes),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(offset)}}))...)
	if err != nil {
		return nil, err
	}
	return &Reader{cl: cl, conns: conns, rewrite: newRewriter(cfg.SchemaIDs)}, nil
}

// Poll appends records to dst[:0] and returns it: it waits until at least one is there, ctx is done, or
// the Reader is killed. Records and their bytes stay valid for as long as they are kept.
func (r *Reader) Poll(ctx context.Context, dst []*Record) ([]*Record, error) {
	dst = dst[:0]
	for {
		fetches := r.cl.PollRecords(ctx, readerRecords)
		if fetches.IsClientClosed() {
			return dst, ErrKilled
		}
		for it := fetches.RecordIter(); !it.Done(); {
			rec := it.Next()
			r.rewrite.incoming(rec)
			dst = append(dst, rec)
		}
		if len(dst) > 0 {
			// An error that came along with records comes again with the next Poll.
			return dst, nil
		}
		if err := ctx.Err(); err != nil {
			return dst, err
		}
		for _, e := range fetches.Errors() {
			return dst, fmt.Errorf("fetch %s/%d: %w", e.Topic, e.Partition, classify(e.Err))
		}
	}
}

// Kill cuts every connection at once and ends the Poll that is waiting. It may be called from any
// goroutine.
func (r *Reader) Kill() {
	r.conns.kill()
	go r.Close()
}

// Close releases the client, in bounded time.
func (r *Reader) Close() { r.close.Do(func() { closeClient(r.cl, r.conns) }) }
