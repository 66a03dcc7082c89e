package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lienstream/lienstream/topics"
)

// ErrRefused: the record was not and will not be written, because too many records are in flight or the broker
// rejects it. Send it again later.
var ErrRefused = errors.New("record was not written")

// ProducerOptions tune a Producer. The zero value works.
type ProducerOptions struct {
	Timeout     time.Duration // of Send; default 5 s
	MaxBuffered int           // records in flight, above which Send refuses; default 10,000
	Registerer  prometheus.Registerer
}

// Producer writes single records synchronously: idempotent, acknowledged by all in-sync replicas, without a
// transaction. It is safe for concurrent use.
type Producer struct {
	cl      *kgo.Client
	conns   *dialer
	timeout time.Duration
	close   sync.Once

	known  atomic.Bool   // it has its producer ID
	asking chan struct{} // semaphore of who asks for it
}

// NewProducer makes a Producer. It connects on Send.
func NewProducer(cfg Config, name string, opt ProducerOptions) (*Producer, error) {
	if opt.Timeout == 0 {
		opt.Timeout = 5 * time.Second
	}
	if opt.MaxBuffered == 0 {
		opt.MaxBuffered = 10_000
	}
	cl, conns, err := cfg.client(name, opt.Registerer,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(opt.Timeout),
		kgo.ProducerBatchCompression(cfg.codec()),
		kgo.ProducerBatchMaxBytes(topics.MaxRecordBytes-batchOverhead),
		kgo.MaxBufferedRecords(opt.MaxBuffered),
		kgo.MetadataMinAge(leastMetadataAge),
	)
	if err != nil {
		return nil, err
	}
	return &Producer{cl: cl, conns: conns, timeout: opt.Timeout, asking: make(chan struct{}, 1)}, nil
}

// Send writes a record to its Topic and Partition, and returns its offset once all in-sync replicas have it.
// ErrRefused: it was not written. ErrUnknown: it may have been, or may be a little later.
func (p *Producer) Send(ctx context.Context, r *Record) (offset int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := p.identify(ctx); err != nil {
		return 0, sent(r, err)
	}
	type result struct {
		offset int64
		err    error
	}
	done := make(chan result, 1)
	// The record is not bound to ctx: once in flight it is not cancelled when the caller stops waiting.
	p.cl.TryProduce(context.WithoutCancel(ctx), r, func(r *Record, err error) { done <- result{r.Offset, err} })
	select {
	case got := <-done:
		return got.offset, sent(r, got.err)
	case <-ctx.Done():
		return 0, sent(r, fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx)))
	}
}

// identify gets the producer's ID before its first record, for one caller. Otherwise the client asks for it with the first records to
// each broker, and those of the others wait at a mutex meanwhile. The time of a simulation stands while any goroutine waits at one.
func (p *Producer) identify(ctx context.Context) error {
	if p.known.Load() {
		return nil
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.known.Load() {
		return nil
	}
	_, _, err := p.cl.ProducerID(ctx)
	p.known.Store(err == nil)
	return err
}

// sent classifies the error of a produced record.
func sent(r *Record, err error) error {
	var refusal *kerr.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnknown):
	case errors.Is(err, kgo.ErrMaxBuffered), errors.Is(err, kgo.ErrClientClosed), errors.As(err, &refusal) && !refusal.Retriable:
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	default:
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return fmt.Errorf("send to %s/%d: %w", r.Topic, r.Partition, err)
}

// Close releases the client, in bounded time; records in flight may or may not be written.
func (p *Producer) Close() { p.close.Do(func() { closeClient(p.cl, p.conns) }) }
