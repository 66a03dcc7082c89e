package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReaderOptions tune a Reader. The zero value works.
type ReaderOptions struct {
	MaxBytes   int32         // of one fetch: bounds what a partition buffers. 5 MiB
	MaxWait    time.Duration // a fetch of a quiet partition; new records end it at once. 500 ms
	MaxRecords int           // of one Poll. 20,000
	Registerer prometheus.Registerer
}

// Reader reads one partition, read-committed, from an offset on. It never jumps: an offset that is not
// there is ErrOutOfRange. It belongs to one goroutine, but for Kill.
type Reader struct {
	cl      *kgo.Client
	conns   *dialer
	max     int
	rewrite *rewriter
	close   sync.Once
}

// Start as an offset is the first that the partition still has.
const Start int64 = -2

// NewReader makes a Reader; it fetches from the first Poll on, and ahead of it.
func NewReader(cfg Config, topic string, partition int32, offset int64, opt ReaderOptions) (*Reader, error) {
	if opt.MaxBytes == 0 {
		opt.MaxBytes = 5 << 20
	}
	if opt.MaxWait == 0 {
		opt.MaxWait = 500 * time.Millisecond
	}
	if opt.MaxRecords == 0 {
		opt.MaxRecords = 20_000
	}
	cl, conns, err := cfg.client(fmt.Sprintf("%s/%d", topic, partition), opt.Registerer,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(offset)}}),
		kgo.FetchMaxWait(opt.MaxWait),
		kgo.FetchMaxBytes(opt.MaxBytes),
		kgo.FetchMaxPartitionBytes(opt.MaxBytes),
	)
	if err != nil {
		return nil, err
	}
	return &Reader{cl: cl, conns: conns, max: opt.MaxRecords, rewrite: newRewriter(cfg.SchemaIDs)}, nil
}

// Poll appends records to dst[:0] and returns it: it waits until at least one is there, ctx is done, or
// the Reader is killed. Records and their bytes stay valid for as long as they are kept.
func (r *Reader) Poll(ctx context.Context, dst []*Record) ([]*Record, error) {
	dst = dst[:0]
	for {
		fetches := r.cl.PollRecords(ctx, r.max)
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
