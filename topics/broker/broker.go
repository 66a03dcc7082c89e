// Package broker starts Kafka brokers: the embedded one of `lienstream up`, and Apache Kafka for tests and
// benchmarks. It must know no topic: they are provisioned as on any other broker.
package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lienstream/lienstream/topics"
)

// Config of an embedded broker.
type Config struct {
	Dir  string // directory of its log; empty: in memory
	Port int    // on loopback; 0: a free one

	// Nodes is the number of brokers of the cluster; default 1.
	Nodes int

	// Scratch is for a log of this run alone: it is deleted at the start and at the end.
	Scratch bool

	// Listen opens a broker's port; nil: the machine's loopback.
	Listen func(network, addr string) (net.Listener, error)
}

// Broker is an embedded broker (kfake) in this process.
//
// Invariants:
//  1. only one process at a time uses the directory: it holds a lock file, which ends with the process;
//  2. a log is only opened after a clean stop. After a crash kfake may show aborted records and hide committed
//     ones, so a dirty flag is set while it runs, and a log found with the flag is deleted.
type Broker struct {
	cluster *kfake.Cluster
	epochs  *epochs
	dir     string
	scratch bool
	lock    *os.File
	fresh   bool
	saved   *saveErrors
	close   sync.Once
	err     error
}

// saveErrors watches kfake's log, the only place where it reports errors of its files.
type saveErrors struct {
	mu   sync.Mutex
	errs []error
}

// Logf implements kfake.Logger.
func (s *saveErrors) Logf(level kfake.LogLevel, format string, args ...any) {
	if level == kfake.LogLevelError {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errs = append(s.errs, fmt.Errorf(format, args...))
	}
}

func (s *saveErrors) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// ErrLocked: another process runs a broker on the directory.
var ErrLocked = errors.New("directory is in use by another broker")

const (
	lockFile  = "lock"
	dirtyFile = "dirty"
	logDir    = "log"
)

// Settings are the broker's.
func Settings() map[string]string {
	return map[string]string{
		"log.retention.ms":       "-1",
		"message.max.bytes":      fmt.Sprint(topics.MaxRecordBytes),
		"log.cleaner.backoff.ms": "86400000", // never: compaction moves the log's start under who reads it
	}
}

// Open starts a broker.
func Open(cfg Config) (*Broker, error) {
	b := &Broker{dir: cfg.Dir, scratch: cfg.Scratch, fresh: true, saved: &saveErrors{}}
	opts := []kfake.Opt{
		kfake.NumBrokers(max(cfg.Nodes, 1)),
		kfake.ClusterID("lienstream"),
		kfake.WithLogger(b.saved),
		kfake.BrokerConfigs(Settings()),
	}
	if cfg.Port != 0 {
		opts = append(opts, kfake.Ports(cfg.Port))
	}
	if cfg.Listen != nil {
		opts = append(opts, kfake.ListenFn(cfg.Listen))
	}
	if cfg.Dir != "" {
		if err := b.claim(); err != nil {
			return nil, fmt.Errorf("embedded broker in %s: %w", cfg.Dir, err)
		}
		opts = append(opts, kfake.DataDir(filepath.Join(cfg.Dir, logDir)))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		b.release()
		return nil, fmt.Errorf("embedded broker: %w", err)
	}
	WholeFetches(cluster)
	b.cluster, b.epochs = cluster, watchEpochs(cluster)
	return b, nil
}

// WholeFetches has each partition's limit of a fetch be the only one. Where the limit of a whole answer cuts a partition's records,
// this broker does not say which of them were aborted, and they are taken for committed.
func WholeFetches(cluster *kfake.Cluster) {
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		req.(*kmsg.FetchRequest).MaxBytes = math.MaxInt32
		return nil, nil, false
	})
}

// claim locks the directory, deletes a log that was not closed cleanly, and sets the dirty flag.
func (b *Broker) claim() error {
	if err := os.MkdirAll(b.dir, 0o750); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(b.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return errors.Join(ErrLocked, err)
	}
	b.lock = lock
	logs, dirty := filepath.Join(b.dir, logDir), filepath.Join(b.dir, dirtyFile)
	if _, err := os.Stat(dirty); err == nil || b.scratch {
		if err := os.RemoveAll(logs); err != nil {
			b.release()
			return fmt.Errorf("delete the log of a former broker: %w", err)
		}
	}
	entries, err := os.ReadDir(logs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.release()
		return err
	}
	b.fresh = len(entries) == 0
	if err := os.WriteFile(dirty, nil, 0o600); err != nil {
		b.release()
		return err
	}
	return nil
}

func (b *Broker) release() {
	if b.lock != nil {
		_ = b.lock.Close() // releases the lock
	}
}

// Addrs are the addresses to connect to.
func (b *Broker) Addrs() []string { return b.cluster.ListenAddrs() }

// Fresh reports whether the log was empty at the start: new, in memory, or deleted after an unclean stop. State
// derived from it must be deleted too.
func (b *Broker) Fresh() bool { return b.fresh }

// Bounds of Run.
const (
	cleanEvery   = time.Minute
	compactBytes = 128 << 20 // a smaller log is not compacted
)

// Run keeps the log on disk small until ctx is done. The broker answers no request while it compacts, and a restore that
// a compaction overtakes starts again.
func (b *Broker) Run(ctx context.Context) error {
	tick := time.NewTicker(cleanEvery)
	defer tick.Stop()
	for left := int64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var err error
		if left, err = b.clean(max(left, compactBytes/2)); err != nil {
			return err
		}
	}
}

// clean applies retention, and compacts once the log is twice as large as after the last compaction: then compactions
// write no more than producers do. It returns the size after the last compaction.
func (b *Broker) clean(left int64) (int64, error) {
	b.cluster.ApplyRetention()
	size, err := b.size()
	if err != nil || size < 2*left {
		return left, err
	}
	b.cluster.Compact()
	return b.size()
}

// size is the size of the log on disk, in bytes.
func (b *Broker) size() (bytes int64, err error) {
	err = filepath.WalkDir(filepath.Join(b.dir, logDir), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreMissing(err)
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return ignoreMissing(err)
	})
	return bytes, err
}

// ignoreMissing: segments are deleted while they are counted.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// MoveCoordinators moves groups and transactions to other coordinators.
func (b *Broker) MoveCoordinators() { b.cluster.RehashCoordinators() }

// AnswerInParts has every second fetch answered with one batch of records, until stop: what was written together is then not
// read together.
func (b *Broker) AnswerInParts() (stop func()) {
	var stopped atomic.Bool
	fetches := 0
	b.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if stopped.Load() {
			b.cluster.DropControl()
			return nil, nil, false
		}
		if fetches++; fetches%2 == 0 {
			for _, t := range req.(*kmsg.FetchRequest).Topics {
				for i := range t.Partitions {
					t.Partitions[i].PartitionMaxBytes = 1
				}
			}
		}
		return nil, nil, false
	})
	return func() { stopped.Store(true) }
}

// Compact compacts the compacted ones of these topics; false: a transaction is open, and nothing was done. Apache Kafka
// leaves such a transaction's records alone. This broker would take them for the newest of their keys, and an abort would
// lose what they replaced: so nobody may write meanwhile.
func (b *Broker) Compact(topics ...string) bool {
	for _, t := range topics {
		for _, p := range b.cluster.PartitionInfos(t) {
			if p.LastStableOffset < p.HighWatermark {
				return false
			}
		}
	}
	b.cluster.Compact()
	return true
}

// Close stops the broker cleanly; its clients must have stopped before. After an error the log counts as dirty,
// and the next Open deletes it.
func (b *Broker) Close() error {
	b.close.Do(func() {
		logs := filepath.Join(b.dir, logDir)
		if b.scratch {
			_ = os.RemoveAll(logs) // else the cluster syncs every partition for those who come after
		}
		b.cluster.Close()
		switch {
		case b.dir == "":
		case b.scratch:
			b.err = errors.Join(os.RemoveAll(logs), os.Remove(filepath.Join(b.dir, dirtyFile)))
		default:
			if b.err = b.saved.err(); b.err == nil {
				b.err = os.Remove(filepath.Join(b.dir, dirtyFile))
			}
		}
		b.release()
	})
	return b.err
}
