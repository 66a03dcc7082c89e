package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Config of a node. Start from DefaultConfig.
type Config struct {
	Kafka     kafka.Config
	Catalogue topics.Catalogue
	AppName   string // of the application, in the names of its topics, groups and transactions
	Instance  string // unique name of this node, stable over restarts
	Addr      string // host:port of this node's read API, for other nodes; empty: none
	Dir       string // directory of the state, of this application alone
	Standbys  int    // nodes that follow a partition's changelog besides its owner

	// HeadCommands publishes the commands for other applications together with their block, and retracts them
	// on a reorg. Otherwise they are published once their block is final.
	HeadCommands bool

	// Rebuild drops the state and reprocesses the raw topic from its start, once.
	Rebuild bool

	// At the tip each block is a commit, or those of TipInterval are. Behind the tip a commit spans CommitRecords
	// or CommitInterval. Far behind, where nobody waits for it, it spans farInterval or what fits into memory:
	// `committers` tasks of a node apply and commit at a time, and share CommitBytes.
	TipInterval    time.Duration
	CommitRecords  int
	CommitInterval time.Duration
	CommitBytes    int
	CommitTimeout  time.Duration
	FetchBytes     int32 // per fetch and partition: bounds memory

	// DrainBytes of events are sent at a time before the commit, far behind the head. They are of some twenty topics, with a batch
	// for each: the larger the batches, the less each record costs the brokers.
	DrainBytes int

	// Lease is how long an owner that cannot commit keeps serving: long enough for reads to survive an outage
	// of Kafka, and an upper bound for the stale reads of a node that lost its partition without noticing.
	Lease time.Duration

	SessionTimeout time.Duration // of the consumer group that assigns partitions

	Memory state.Memory // of the stores
	FS     vfs.FS       // file system of Dir

	Registerer prometheus.Registerer // nil: none
	Logger     *zap.Logger

	renewal     time.Duration // see there; tests need it shorter
	rebuildLook time.Duration // so does this
	turn        int64         // turnRecords; tests need fewer

	doubt time.Duration // kafka.Doubt; tests need it shorter

	// crash lets tests stop a task at a point of its loop.
	crash func(partition int32, point string) bool
}

// DefaultConfig lacks the brokers, the catalogue, the application, the instance and the directory.
func DefaultConfig() Config {
	return Config{
		Standbys:       1,
		CommitRecords:  20_000,
		CommitInterval: 100 * time.Millisecond,
		CommitBytes:    24 << 20,
		CommitTimeout:  10 * time.Second,
		FetchBytes:     256 << 10,
		DrainBytes:     flushBytes,
		Lease:          read.MaxStandstill,
		SessionTimeout: kafka.DefaultSessionTimeout,
		Memory:         state.DefaultMemory(),
		FS:             vfs.Default,
		Logger:         zap.NewNop(),
		renewal:        renewal,
		rebuildLook:    rebuildLook,
		turn:           turnRecords,
		doubt:          kafka.Doubt,
		crash:          func(int32, string) bool { return false },
	}
}

// Validate reports all errors at once.
func (c Config) Validate() error {
	errs := []error{c.Kafka.Validate()}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(c.Instance == "", "instance: required, as the host has no name")
	fault(c.AppName == "", "application: required")
	fault(c.Dir == "", "dir: required")
	fault(c.Catalogue.Partitions <= 0, "kafka-partitions: %d is not positive", c.Catalogue.Partitions)
	fault(c.Standbys < 0, "standbys: %d is negative", c.Standbys)
	fault(c.TipInterval < 0, "tip-commit-interval: %s is negative", c.TipInterval)
	fault(c.FS == nil, "file system: required")
	for _, n := range []struct {
		name string
		is   int64
	}{
		{"commit records", int64(c.CommitRecords)},
		{"commit bytes", int64(c.CommitBytes)},
		{"fetch bytes", int64(c.FetchBytes)},
		{"drain bytes", int64(c.DrainBytes)},
		{"cache bytes", c.Memory.Blocks},
		{"memtable bytes", int64(c.Memory.MemTable)},
		{"row cache bytes", int64(c.Memory.Rows)},
		{"load bytes", int64(c.Memory.Load)},
	} {
		fault(n.is <= 0, "%s: %d is not positive", n.name, n.is)
	}
	for _, d := range []struct {
		name string
		is   time.Duration
	}{
		{"commit interval", c.CommitInterval},
		{"commit timeout", c.CommitTimeout},
		{"lease", c.Lease},
		{"session-timeout", c.SessionTimeout},
	} {
		fault(d.is <= 0, "%s: %s is not positive", d.name, d.is)
	}
	return errors.Join(errs...)
}
