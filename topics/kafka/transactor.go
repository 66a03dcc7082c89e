package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	Linger      time.Duration // of records before they leave together; Commit ends it. 100 ms
	Timeout     time.Duration // of Init, Commit and Abort; the broker aborts what is open for longer. 10 s
	MaxBuffered int           // records; Produce blocks above it
	Registerer  prometheus.Registerer
	Logger      *zap.Logger
}

// Transactor writes transactions under one transactional ID, which it takes from whoever held it.
// It belongs to one goroutine, but for Kill.
//
// Invariants:
//  1. nothing is committed unless every record of the transaction was acknowledged;
//  2. after an error of Commit or Abort it is dead: it commits nothing any more, and what the broker
//     made of the last transaction is read back from the topic, never guessed;
//  3. no call outlives its timeout, whatever the broker does; a Commit that failed may ask for takenTimeout
//     more what became of it.
type Transactor struct {
	cl      *kgo.Client
	conns   *dialer
	txID    string
	timeout time.Duration
	began   time.Time // the open transaction
	logger  *zap.Logger
	rewrite *rewriter
	promise func(*Record, error) // acknowledged, a method value made once
	close   sync.Once

	mu  sync.Mutex
	err error // the first error of a produce; the client's goroutines set it
}

// NewTransactor makes a Transactor; it reaches no broker before Init.
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
		// A produce that comes while the markers of the last transaction are still being written is
		// answered CONCURRENT_TRANSACTIONS and waits for a metadata update: by default one every 5 s.
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

// Init takes the transactional ID: a former holder is fenced and what it left open is aborted.
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
	return nil
}

// Produce adds a record to the open transaction. Its Topic and Partition must be set; it belongs to the
// Transactor until the commit has returned, and has its Offset from then on. It blocks while MaxBuffered
// records are on their way. An error is kept for Commit.
func (t *Transactor) Produce(ctx context.Context, r *Record) {
	t.rewrite.outgoing(r)
	t.cl.Produce(ctx, r, t.promise)
}

// Flush sends what was produced and waits until it is acknowledged. Commit does as much: before it, this
// bounds what is sent at once. An error is kept for Commit; after one it does nothing.
func (t *Transactor) Flush(ctx context.Context) {
	if t.failure() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if err := supervise(ctx, t.cl.Flush); err != nil {
		t.fail(fmt.Errorf("flush: %w", classify(err)))
	}
}

func (t *Transactor) acknowledged(r *Record, err error) {
	if err != nil {
		t.fail(fmt.Errorf("produce to %s/%d: %w", r.Topic, r.Partition, classify(err)))
	}
}

// Commit commits the open transaction. After any error the Transactor is dead, and unless the error is
// one of a produce, nobody knows the outcome. It is ErrFenced where another holder has the transactional
// ID, and else ErrUnknown.
func (t *Transactor) Commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	// EndTransaction does not flush: records that are still buffered would be dropped without an error.
	t.Flush(ctx)
	if err := t.failure(); err != nil {
		return t.die(err)
	}
	id, epoch, err := t.cl.ProducerID(ctx) // no call: the records were acknowledged under it
	if err == nil {
		err = supervise(ctx, func(ctx context.Context) error { return t.cl.EndTransaction(ctx, kgo.TryCommit) })
	}
	if err == nil {
		return nil
	}
	if err = classify(err); errors.Is(err, ErrFenced) {
		return t.die(fmt.Errorf("commit: %w", err))
	}
	if t.taken(context.WithoutCancel(ctx), id, epoch, errors.Is(err, kerr.InvalidTxnState)) {
		return t.die(fmt.Errorf("commit: %w: %w", ErrFenced, err))
	}
	return t.die(fmt.Errorf("commit: %w: %w", ErrUnknown, err))
}

// taken says whether another holder has the transactional ID. A commit that meets its Init is answered
// with whatever the coordinator was about (INVALID_TXN_STATE, UNKNOWN_SERVER_ERROR), and who takes that
// for his own trouble takes the ID back, for ever in turns. So the coordinator is asked: what no holder of
// that epoch leaves behind, another one did. Refused: the commit was, as one that had succeeded would not be.
func (t *Transactor) taken(ctx context.Context, id int64, epoch int16, refused bool) bool {
	if t.conns.killed() {
		return false
	}
	young := time.Since(t.began) < t.timeout
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
		return false // it cannot be told, and whoever holds it now will tell
	}
	now := <-described
	switch now.State {
	case "PrepareAbort", "CompleteAbort", "PrepareEpochFence":
		return young // else the coordinator may have aborted it for its age
	case "Ongoing":
		return now.ProducerID != id || now.ProducerEpoch != epoch
	default: // a commit of ours moves the epoch on by one, or not at all
		return now.ProducerID == id && (now.ProducerEpoch > epoch+1 || refused && now.ProducerEpoch > epoch)
	}
}

const takenTimeout = 2 * time.Second

// Abort drops the open transaction. After an error the Transactor is dead; the transaction is aborted
// by the next holder's Init or by the broker's timeout.
func (t *Transactor) Abort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	err := supervise(ctx, func(ctx context.Context) error {
		if err := t.cl.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		return t.cl.EndTransaction(ctx, kgo.TryAbort)
	})
	if err != nil {
		return t.die(fmt.Errorf("abort: %w", classify(err)))
	}
	t.mu.Lock()
	t.err = nil
	t.mu.Unlock()
	return nil
}

// Kill cuts every connection at once, as if the process had died, and fails the call that is waiting.
// It may be called from any goroutine.
func (t *Transactor) Kill() {
	t.fail(ErrKilled)
	t.conns.kill()
	go t.Close()
}

// Close releases the client, in bounded time. What is open is left to the next holder's Init.
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
