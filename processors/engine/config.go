package engine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Config of a node.
type Config struct {
	Kafka     kafka.Config
	Catalogue topics.Catalogue
	AppName   string // of the application, in the names of its topics, groups and transactions
	Instance  string // unique name of this node, stable over restarts; default: the host name
	Addr      string // host:port of this node's read API, for other nodes; empty: none
	Dir       string // directory of the state, of this application alone
	Standbys  int    // nodes that follow a partition's changelog besides its owner

	// HeadCommands publishes the commands for other applications together with their block, and retracts them
	// on a reorg. Otherwise they are published once their block is final.
	HeadCommands bool

	// Rebuild drops the state and reprocesses the raw topic from its start, once.
	Rebuild bool

	// At the tip a commit is one block. Behind the tip it spans CommitRecords or CommitInterval. Far behind,
	// where nobody waits for it, it spans farInterval or what fits into memory: the tasks of a node that are
	// far behind share CommitBytes, and at most `committers` of them commit at a time.
	CommitRecords  int
	CommitInterval time.Duration
	CommitBytes    int
	CommitTimeout  time.Duration
	FetchBytes     int32 // per fetch and partition: bounds memory

	// Lease is how long an owner that cannot commit keeps serving: long enough for reads to survive an outage
	// of Kafka, and an upper bound for the stale reads of a node that lost its partition without noticing.
	Lease time.Duration

	SessionTimeout time.Duration // of the consumer group that assigns partitions

	CacheBytes int64  // cache of Pebble blocks, for all partitions
	FS         vfs.FS // file system of Dir; nil: the disk

	Registerer prometheus.Registerer
	Logger     *zap.Logger

	// crash lets tests stop a task at a point of its loop; nil: never.
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
		Lease:          5 * time.Minute,
		SessionTimeout: kafka.DefaultSessionTimeout,
		CacheBytes:     state.DefaultCacheBytes,
		FS:             vfs.Default,
	}
}

// withDefaults fills in zero fields except Standbys, which may be zero.
func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if c.Instance == "" {
		c.Instance, _ = os.Hostname() // Validate reports an empty name
	}
	c.CommitRecords = cmp.Or(c.CommitRecords, d.CommitRecords)
	c.CommitInterval = cmp.Or(c.CommitInterval, d.CommitInterval)
	c.CommitBytes = cmp.Or(c.CommitBytes, d.CommitBytes)
	c.CommitTimeout = cmp.Or(c.CommitTimeout, d.CommitTimeout)
	c.FetchBytes = cmp.Or(c.FetchBytes, d.FetchBytes)
	c.Lease = cmp.Or(c.Lease, d.Lease)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, d.SessionTimeout)
	c.CacheBytes = cmp.Or(c.CacheBytes, d.CacheBytes)
	if c.FS == nil {
		c.FS = d.FS
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.crash == nil {
		c.crash = func(int32, string) bool { return false }
	}
	return c
}

// Validate reports all errors at once.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Kafka.Validate()}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("processors: "+format, args...))
		}
	}
	fault(c.Instance == "", "instance: required, as the host has no name")
	fault(c.AppName == "", "application: required")
	fault(c.Dir == "", "dir: required")
	fault(c.Catalogue.Partitions <= 0, "partitions: %d", c.Catalogue.Partitions)
	fault(c.Standbys < 0, "standbys: %d", c.Standbys)
	fault(c.CommitRecords < 0, "commit records: %d", c.CommitRecords)
	fault(c.CommitBytes < 0, "commit bytes: %d", c.CommitBytes)
	fault(c.FetchBytes < 0, "fetch bytes: %d", c.FetchBytes)
	fault(c.CacheBytes < 0, "cache bytes: %d", c.CacheBytes)
	for _, d := range []struct {
		name string
		is   time.Duration
	}{
		{"commit interval", c.CommitInterval},
		{"commit timeout", c.CommitTimeout},
		{"lease", c.Lease},
		{"session timeout", c.SessionTimeout},
	} {
		fault(d.is < 0, "%s: negative", d.name)
	}
	return errors.Join(errs...)
}
