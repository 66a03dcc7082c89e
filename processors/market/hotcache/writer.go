package hotcache

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/pause"
)

// Views opens views of the partitions that this node owns, as a read.Source does.
type Views interface {
	View(ctx context.Context, partition int32, at *topics.BlockRef) (state.View, error)
}

// barriersKept is how many barriers of a partition Redis keeps: how far a serving node's watermark may be
// behind without a miss.
const barriersKept = 64

// lingerFor is how long a write waits for the partitions that reach its block next. One write for all of them costs
// less than two, and leaves the CPU to reads of the new block.
const lingerFor = 2 * time.Millisecond

// Writer keeps the listings of the partitions that this node owns in Redis. It is an engine.Observer.
type Writer struct {
	cfg     Config
	keys    keys
	client  redis.UniversalClient
	source  Views
	pending *pending
	metrics *writerMetrics
	log     *zap.Logger

	id     string // of this writer: makes its states unique
	seq    atomic.Uint64
	states map[int32]*written // used by Run's goroutine; each by the writer of the partition
}

// rebuilders is how many partitions are rebuilt concurrently.
const rebuilders = 2

// written is a partition's state in Redis as this writer left it.
type written struct {
	incarnation int64
	state       string // byte for byte; empty: not ours, or unknown
	reverts     uint64
	at          time.Time

	refused      string // the state of a newer owner
	refusedSince time.Time
}

// NewWriter makes a writer. Run connects.
func NewWriter(cfg Config, source Views, log *zap.Logger, registerer prometheus.Registerer) (*Writer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := cfg.client(cfg.WriteTimeout, 2)
	if err != nil {
		return nil, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Writer{
		cfg: cfg, keys: cfg.keys(), client: client, source: source, pending: newPending(cfg.MaxPending, cfg.KeepExpired),
		metrics: newWriterMetrics(registerer), log: log.Named("hotcache"),
		id: hex.EncodeToString(id[:]), states: make(map[int32]*written),
	}, nil
}

// Run writes the tasks' changes until ctx is done. After a failure it retries with growing pauses; the tasks
// are not affected.
//
//	tasks ── Opened, Applied, Closed   ──► pending ── wake ──► Run ── scripts ──► Redis
//	                                                    beat ──┘
func (w *Writer) Run(ctx context.Context) error {
	defer func() {
		if err := w.client.Close(); err != nil {
			w.log.Debug("close redis client", zap.Error(err))
		}
	}()
	beat := time.NewTicker(w.cfg.Beat / 2)
	defer beat.Stop()
	var backoff time.Duration
	fresh := true // the connection is new, so the server must be checked
	for beats := 0; ; {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-w.pending.wake:
			err = w.linger(ctx)
		case <-beat.C:
			if beats++; beats%10 == 0 && !fresh {
				err = w.sweep(ctx)
			}
		}
		if err == nil {
			err = w.flush(ctx)
		}
		switch {
		case err == nil:
			if backoff > 0 {
				w.log.Info("redis accepts writes again")
			}
			if fresh {
				w.checkEviction(ctx)
			}
			backoff, fresh = 0, false
			continue
		case ctx.Err() != nil:
			return nil
		case backoff == 0:
			w.log.Warn("write listings to redis: will retry", zap.Error(err))
		}
		fresh = true
		backoff = min(max(2*backoff, 50*time.Millisecond), w.cfg.MaxBackoff)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
			w.pending.signal()
		}
	}
}

// linger waits for other partitions. The next flush writes their rows too.
func (w *Writer) linger(ctx context.Context) error {
	err := pause.For(ctx, lingerFor)
	select {
	case <-w.pending.wake:
	default:
	}
	return err
}

// flush writes everything pending: small changes of all partitions in one round trip, the rest partition by
// partition.
func (w *Writer) flush(ctx context.Context) (err error) {
	start := time.Now()
	defer func() { w.metrics.pending.Set(float64(w.pending.size())) }()
	owned := w.pending.owned()
	w.forget(owned)

	var (
		batch    []*write
		rebuilds errgroup.Group
	)
	rebuilds.SetLimit(rebuilders)
	defer func() { err = errors.Join(err, rebuilds.Wait()) }()
	for _, id := range owned {
		job, ok := w.pending.take(id)
		if !ok {
			continue
		}
		s := w.states[id]
		if s == nil || s.incarnation != job.owner.Incarnation {
			s = &written{incarnation: job.owner.Incarnation}
			w.states[id] = s
		}
		switch {
		case job.rebuild == "" && !job.moved && start.Sub(s.at) < w.cfg.Beat:
			continue
		case job.rebuild != "" || s.state == "":
			rebuilds.Go(func() error {
				err := w.rebuild(ctx, &job, s)
				if err != nil {
					w.lost(id, s, "error")
					w.metrics.errors.Inc()
				}
				return err
			})
			continue
		}
		next, err := w.delta(ctx, &job, s)
		if err != nil {
			return w.abandon(batch, err)
		}
		if next != nil {
			batch = append(batch, next)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	err = w.execute(ctx, batch)
	w.metrics.seconds.Observe(time.Since(start).Seconds())
	return err
}

// forget drops the states of partitions that are no longer ours.
func (w *Writer) forget(owned []int32) {
	for id := range w.states {
		found := false
		for _, o := range owned {
			found = found || o == id
		}
		if !found {
			delete(w.states, id)
			w.metrics.ready.DeleteLabelValues(strconv.Itoa(int(id)))
		}
	}
}

// delta prepares the write of a partition's changes; nil: they were written otherwise, or cannot be written
// now.
func (w *Writer) delta(ctx context.Context, job *work, s *written) (*write, error) {
	entries := make([]entry, 0, len(job.changed))
	if len(job.changed) > 0 {
		view, ok := w.view(ctx, job)
		if !ok {
			return nil, nil
		}
		defer view.Close()
		for key := range job.changed {
			e, err := load(view, job.owner.ID, []byte(key), w.pending.expiredBefore(job.at.Timestamp))
			if err != nil {
				w.lost(job.owner.ID, s, "unreadable")
				return nil, fmt.Errorf("read partition %d at block %d: %w", job.owner.ID, job.at.Number, err)
			}
			entries = append(entries, e)
		}
	}
	keep := barriersKept
	if s.reverts != job.owner.Reverts {
		keep = 1 // a reorg: earlier barriers may not be ancestors
	}
	if len(entries) > w.cfg.ChunkRows {
		// A single script would block the readers; this way they miss meanwhile.
		err := w.replace(ctx, job, s, s.state, false, func(put func(entry) error) error {
			for _, e := range entries {
				if err := put(e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			w.lost(job.owner.ID, s, "error")
		}
		return nil, err
	}
	return &write{
		partition: job.owner.ID, state: s, from: s.state, to: w.ready(job),
		barrier: barrier(job.at), keep: keep, entries: entries, job: job,
	}, nil
}

// view opens the partition at the block of the changes. If the engine no longer has that view, the changes wait
// for a later block.
func (w *Writer) view(ctx context.Context, job *work) (state.View, bool) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
	defer cancel()
	v, err := w.source.View(ctx, job.owner.ID, &job.at)
	if err == nil && v.At() == job.at {
		return v, true
	}
	if err == nil {
		v.Close()
	}
	w.metrics.viewMisses.Inc()
	w.pending.putBack(job)
	return nil, false
}

// lost records that the partition's state in Redis is unknown, or not ours.
func (w *Writer) lost(partition int32, s *written, reason string) {
	s.state = ""
	w.metrics.ready.WithLabelValues(strconv.Itoa(int(partition))).Set(0)
	w.pending.again(partition, reason)
}

// abandon gives up prepared writes because of err.
func (w *Writer) abandon(batch []*write, err error) error {
	for _, b := range batch {
		w.lost(b.partition, b.state, "error")
	}
	w.metrics.errors.Inc()
	return err
}

// ready is a state that readers accept: see page.lua.
func (w *Writer) ready(job *work) string {
	return fmt.Sprintf("r %d %s %d %d %x %d %d %d", job.owner.Incarnation, w.id, w.seq.Add(1),
		job.at.Number, job.at.Hash, job.at.Timestamp, job.owner.Reverts, job.changedAt.Number)
}

// building is a state that readers reject.
func (w *Writer) building(job *work) string {
	return fmt.Sprintf("b %d %s %d", job.owner.Incarnation, w.id, w.seq.Add(1))
}

// owner is the incarnation in a state; false: it has none, or a script was aborted.
func owner(s string) (incarnation int64, ok bool) {
	fields := strings.SplitN(s, " ", 3)
	if len(fields) < 3 {
		return 0, false
	}
	incarnation, err := strconv.ParseInt(fields[1], 10, 64)
	return incarnation, err == nil
}
