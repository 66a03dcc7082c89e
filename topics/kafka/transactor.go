package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
)

// TransactorOptions tune a Transactor. The zero value works.
type TransactorOptions struct {
	Linger      time.Duration // maximum delay of records before they are sent; Commit ends it; default 100 ms
	Timeout     time.Duration // of Init and Commit, and the broker's transaction timeout; default 10 s
	MaxBuffered int           // records, above which Produce blocks
	Registerer  prometheus.Registerer
	Logger      *zap.Logger
}

// Transactor writes transactions under one transactional ID, which it takes over from its former holder. It
// belongs to one goroutine, except Kill.
//
// Invariants:
//  1. a transaction commits only if all its records were acknowledged;
//  2. after an error of Commit it is dead and commits nothing any more; the outcome of the last
//     transaction must be read from the topic, never guessed;
//  3. every call is bounded by its timeout; after a failed Commit it may take takenTimeout more to find out
//     why.
type Transactor struct {
	cl      *kgo.Client
	conns   *dialer
	txID    string
	timeout time.Duration
	began   time.Time   // start of the open transaction
	id      int64       // the producer that it is written as
	epoch   int16       // negative: nothing was produced yet
	open    atomic.Bool // the coordinator has it, because a record was acknowledged
	logger  *zap.Logger
	rewrite *rewriter
	promise func(*Record, error) // the method value acknowledged, allocated once
	close   sync.Once

	mu  sync.Mutex
	err error // the first produce error, set by the client's goroutines
}

// NewTransactor makes a Transactor. It connects on Init.
func NewTransactor(cfg Config, txID string, opt TransactorOptions) (*Transactor, error) {
	if opt.Linger == 0 {
		opt.Linger = 100 * time.Millisecond
	}
	if opt.Timeout == 0 {
		opt.Timeout = DefaultConfig().Timeout
	}
	if opt.MaxBuffered == 0 {
		opt.MaxBuffered = 200_000
	}
	if opt.Logger == nil {
		opt.Logger = zap.NewNop()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = opt.Timeout
	}
	cl, conns, err := cfg.client(txID, opt.Registerer,
		kgo.TransactionalID(txID),
		kgo.TransactionTimeout(opt.Timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(opt.Linger),
		kgo.ProducerBatchCompression(cfg.codec()),
		kgo.ProducerBatchMaxBytes(topics.MaxRecordBytes-batchOverhead),
		kgo.MaxBufferedRecords(opt.MaxBuffered),
		// A produce request is answered with CONCURRENT_TRANSACTIONS while the markers of the last transaction
		// are still being written. The client then waits for a metadata update: by default every 5 s.
		kgo.MetadataMinAge(leastMetadataAge),
	)
	if err != nil {
		return nil, err
	}
	t := &Transactor{
		cl: cl, conns: conns, txID: txID, timeout: opt.Timeout,
		logger:  opt.Logger.With(zap.String("transactionalID", txID)),
		rewrite: newRewriter(cfg.SchemaIDs),
	}
	t.promise = t.acknowledged
	return t, nil
}

// batchOverhead keeps a full batch below the topics' limit.
const batchOverhead = 4 << 10

// Init takes the transactional ID: a former holder is fenced, and its open transaction is aborted.
func (t *Transactor) Init(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	err := supervise(ctx, func(ctx context.Context) error {
		_, _, err := t.cl.ProducerID(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("init producer: %w", classify(err))
	}
	return nil
}

// Begin opens a transaction.
func (t *Transactor) Begin() error {
	if err := t.failure(); err != nil {
		return err
	}
	if err := t.cl.BeginTransaction(); err != nil {
		return fmt.Errorf("begin transaction: %w", classify(err))
	}
	t.began = time.Now()
	t.open.Store(false)
	t.epoch = -1
	return nil
}

// Produce adds a record to the open transaction. Its Topic and Partition must be set. It belongs to the
// Transactor until Commit returns, and then has its Offset. Produce blocks while MaxBuffered records are in
// flight. An error is kept for Commit.
func (t *Transactor) Produce(ctx context.Context, r *Record) {
	if t.epoch < 0 {
		var err error
		if t.id, t.epoch, err = t.cl.ProducerID(ctx); err != nil { // no request: it was initialized
			t.epoch = -1
			t.fail(fmt.Errorf("produce to %s/%d: %w", r.Topic, r.Partition, classify(err)))
		}
	}
	t.rewrite.outgoing(r)
	t.cl.Produce(ctx, r, t.promise)
}

// Flush sends the buffered records and waits for their acknowledgement, as Commit does; calling it before
// bounds what is sent at once. An error is kept for Commit; after one Flush does nothing. If it succeeds, the records
// are the caller's again.
func (t *Transactor) Flush(ctx context.Context) (ok bool) {
	if t.failure() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if err := supervise(ctx, t.cl.Flush); err != nil {
		t.fail(fmt.Errorf("flush: %w", classify(err)))
	}
	return t.failure() == nil
}

func (t *Transactor) acknowledged(r *Record, err error) {
	switch {
	case err == nil && !t.open.Load():
		t.open.Store(true)
	case err != nil:
		t.fail(fmt.Errorf("produce to %s/%d: %w", r.Topic, r.Partition, classify(err)))
	}
}

// Commit commits the open transaction. After any error the Transactor is dead, and unless a produce failed, the
// outcome is unknown. The error is ErrFenced if another producer holds the transactional ID; if a commit was tried, or the
// coordinator has aborted the transaction because of its age, it is otherwise ErrUnknown.
func (t *Transactor) Commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	// EndTransaction does not flush: buffered records would be dropped without an error.
	t.Flush(ctx)
	if err := t.failure(); err != nil {
		return t.die(t.fenced(ctx, err))
	}
	err := supervise(ctx, func(ctx context.Context) error { return t.cl.EndTransaction(ctx, kgo.TryCommit) })
	if err == nil {
		return nil
	}
	if err = fmt.Errorf("commit: %w", classify(err)); errors.Is(err, ErrFenced) {
		return t.die(t.fenced(ctx, err))
	}
	if t.taken(ctx, errors.Is(err, kerr.InvalidTxnState)) {
		return t.die(fmt.Errorf("%w: %w", ErrFenced, err))
	}
	return t.die(fmt.Errorf("%w: %w", ErrUnknown, err))
}

// fenced makes an error ErrUnknown that says fenced only because the coordinator aborted the open transaction, which raises
// the producer epoch too: it does so once it is older than its timeout, as that of a process that was stopped for a while.
func (t *Transactor) fenced(ctx context.Context, err error) error {
	if !errors.Is(err, ErrFenced) || t.young() || t.taken(ctx, true) {
		return err
	}
	err = fmt.Errorf("%w: the transaction was aborted because of its age: %v", ErrUnknown, err) //nolint:errorlint // it was not fenced
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	return err
}

// young reports whether the open transaction is too young to be aborted because of its age. The wall clock counts as well: the
// other one stands while the machine sleeps.
func (t *Transactor) young() bool {
	return max(time.Since(t.began), time.Now().Round(0).Sub(t.began)) < t.timeout
}

// taken reports whether another producer holds the transactional ID. A commit during that producer's Init fails
// with varying errors (INVALID_TXN_STATE, UNKNOWN_SERVER_ERROR). Mistaking them for a temporary problem would
// make two producers take the ID from each other forever. So the coordinator is asked whether the producer
// epoch was increased by somebody else. refused: the commit was refused, which it would not be had it
// succeeded.
func (t *Transactor) taken(ctx context.Context, refused bool) bool {
	if t.conns.killed() || t.epoch < 0 || errors.Is(ctx.Err(), context.Canceled) { // who ends waits for no answer
		return false
	}
	young := t.young()
	now, err := t.describe(context.WithoutCancel(ctx))
	if err != nil {
		return false // unknown; the present holder will find out
	}
	var own int16 // by how much the epoch is increased by the end of our own transaction
	if !young && t.open.Load() {
		own = 1
	}
	switch now.State {
	case "PrepareAbort", "CompleteAbort", "PrepareEpochFence":
		return young // the coordinator may have aborted an old one because of its age
	case "Ongoing":
		return now.ProducerID != t.id || now.ProducerEpoch > t.epoch+own
	default: // our own commit increases the epoch by at most one
		if !refused {
			own = 1
		}
		return now.ProducerID == t.id && now.ProducerEpoch > t.epoch+own
	}
}

const takenTimeout = 2 * time.Second

// describe asks the coordinator for the state of the transactional ID.
func (t *Transactor) describe(ctx context.Context) (kadm.DescribedTransaction, error) {
	ctx, cancel := context.WithTimeout(ctx, takenTimeout)
	defer cancel()
	described := make(chan kadm.DescribedTransaction, 1)
	err := supervise(ctx, func(ctx context.Context) error {
		all, err := kadm.NewClient(t.cl).DescribeTransactions(ctx, t.txID)
		if err != nil {
			return err
		}
		now, err := all.On(t.txID, func(now *kadm.DescribedTransaction) error { return now.Err })
		described <- now
		return err
	})
	if err != nil {
		return kadm.DescribedTransaction{}, err
	}
	return <-described, nil
}

// Taken reports whether another producer has taken the transactional ID, or may have, where no transaction is open and the
// last commit succeeded.
func (t *Transactor) Taken(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, takenTimeout)
	defer cancel()
	id, epoch, err := t.cl.ProducerID(ctx) // no request: it was initialized
	if err != nil {
		return true
	}
	now, err := t.describe(ctx)
	return err != nil || now.ProducerID != id || now.ProducerEpoch != epoch
}

// Kill cuts every connection, as if the process had died, and fails a waiting call. It is safe for concurrent
// use.
func (t *Transactor) Kill() {
	t.fail(ErrKilled)
	t.conns.kill()
	go t.Close()
}

// Close releases the client, in bounded time. An open transaction is left to the next holder's Init.
func (t *Transactor) Close() { t.close.Do(func() { closeClient(t.cl, t.conns) }) }

func (t *Transactor) die(err error) error {
	t.fail(err)
	t.conns.kill()
	t.logger.Warn("transaction ended in an error", zap.Error(err))
	return err
}

func (t *Transactor) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
}

func (t *Transactor) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
