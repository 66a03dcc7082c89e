package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ReaderOptions tune a Reader. The zero value works.
type ReaderOptions struct {
	MaxWait  time.Duration // of a fetch without new records; default 500 ms
	MaxBytes int32         // of a fetch; default 5 MiB
}

const readerRecords = 20_000 // of a Poll

// committed makes a client read committed records from exactly the given offsets.
func committed(wait time.Duration, bytes, partitionBytes int32) []kgo.Opt {
	return []kgo.Opt{
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(wait),
		kgo.FetchMaxBytes(bytes),
		kgo.FetchMaxPartitionBytes(partitionBytes),
	}
}

// Reader reads one partition, read-committed, from an offset on. It never skips records: an offset outside the
// partition is ErrOutOfRange. After an error the client may read on from elsewhere: make a new Reader. It belongs to one
// goroutine, except Kill.
type Reader struct {
	cl      *kgo.Client
	conns   *dialer
	rewrite *rewriter
	next    int64
	close   sync.Once
}

// Start stands for the first offset that a partition still has.
const Start int64 = -2

// NewReader makes a Reader. It fetches ahead from the first Poll on.
func NewReader(cfg Config, topic string, partition int32, offset int64, opt ReaderOptions) (*Reader, error) {
	if opt.MaxWait == 0 {
		opt.MaxWait = 500 * time.Millisecond
	}
	if opt.MaxBytes == 0 {
		opt.MaxBytes = 5 << 20
	}
	cl, conns, err := cfg.client(fmt.Sprintf("%s/%d", topic, partition), nil, append(committed(opt.MaxWait, opt.MaxBytes, opt.MaxBytes),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(offset)}}))...)
	if err != nil {
		return nil, err
	}
	return &Reader{cl: cl, conns: conns, rewrite: newRewriter(cfg.SchemaIDs), next: offset}, nil
}

// Poll appends records to dst[:0] and returns it: it waits until there is at least one, ctx is done, or the
// Reader is killed. Records and their bytes stay valid.
func (r *Reader) Poll(ctx context.Context, dst []*Record) ([]*Record, error) {
	dst = dst[:0]
	for {
		fetches := r.cl.PollRecords(ctx, readerRecords)
		if fetches.IsClientClosed() {
			return dst, ErrKilled
		}
		for _, e := range fetches.Errors() {
			if err := ctx.Err(); err == nil || !errors.Is(e.Err, err) {
				return dst, fmt.Errorf("fetch %s/%d: %w", e.Topic, e.Partition, classify(e.Err))
			}
		}
		for it := fetches.RecordIter(); !it.Done(); {
			rec := it.Next()
			if rec.Offset < r.next {
				return dst[:0], fmt.Errorf("fetch %s/%d: offset %d after %d", rec.Topic, rec.Partition, rec.Offset, r.next-1)
			}
			r.next = rec.Offset + 1
			r.rewrite.incoming(rec)
			dst = append(dst, rec)
		}
		if len(dst) > 0 {
			return dst, nil
		}
		if err := ctx.Err(); err != nil {
			return dst, err
		}
	}
}

// Kill cuts every connection and ends a waiting Poll. It is safe for concurrent use.
func (r *Reader) Kill() {
	r.conns.kill()
	go r.Close()
}

// Close releases the client, in bounded time.
func (r *Reader) Close() { r.close.Do(func() { closeClient(r.cl, r.conns) }) }
