package engine

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Config of a node.
type Config struct {
	Kafka     kafka.Config
	Catalogue topics.Catalogue
	AppName   string // of the changelog: topics.AppMarket
	Instance  string // of this node among the others; the same after a restart. The host's name
	Addr      string // host:port of this node's read API, for other nodes; empty: none
	Dir       string // of the state
	Standbys  int    // nodes that follow a partition's changelog, beside its owner

	// Rebuild drops the state and applies the raw topic again from its start, once.
	Rebuild bool

	CheckpointDir      string        // where copies of the state go; empty: none
	CheckpointInterval time.Duration // 10 min

	// At the tip a commit is one block. Behind it, it spans CommitRecords, 20,000, or CommitInterval, 100 ms.
	// Far behind, where nobody waits for it, it spans farInterval, or as much as fits: the tasks of a node
	// that are there share CommitBytes of memory, 24 MiB, and committers of them commit at a time.
	CommitRecords  int
	CommitInterval time.Duration
	CommitBytes    int
	CommitTimeout  time.Duration // 10 s
	FetchBytes     int32         // of one fetch of a partition: bounds memory. 256 KiB

	// Lease is how long an owner that cannot commit goes on serving: long enough for reads to outlive an
	// outage of Kafka, and an end to what a node that lost its partition unawares can tell. 5 min
	Lease time.Duration

	SessionTimeout time.Duration // of the group that shares out the partitions. 10 s
	StayOnStop     bool          // a node that stops keeps its partitions for a SessionTimeout

	CacheBytes int64  // of Pebble blocks, for all partitions
	FS         vfs.FS // of Dir and CheckpointDir; nil: the disk

	Registerer prometheus.Registerer
	Logger     *zap.Logger

	// crash is how tests let a task die at a point of its loop; nil: it does not.
	crash func(partition int32, point string) bool
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.AppName == "" {
		c.AppName = topics.AppMarket
	}
	if c.Instance == "" {
		c.Instance, _ = os.Hostname() // Validate names what is missing
	}
	if c.CommitRecords == 0 {
		c.CommitRecords = 20_000
	}
	if c.CommitBytes == 0 {
		c.CommitBytes = 24 << 20
	}
	if c.FetchBytes == 0 {
		c.FetchBytes = 256 << 10
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = state.DefaultCacheBytes
	}
	set(&c.CheckpointInterval, 10*time.Minute)
	set(&c.CommitInterval, 100*time.Millisecond)
	set(&c.CommitTimeout, 10*time.Second)
	set(&c.Lease, 5*time.Minute)
	set(&c.SessionTimeout, 10*time.Second)
	if c.FS == nil {
		c.FS = vfs.Default
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

// Validate reports every fault at once.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := []error{c.Kafka.Validate()}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("processors: "+format, args...))
		}
	}
	fault(c.Instance == "", "instance: none, and the host has no name")
	fault(c.Dir == "", "dir: none")
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
		{"checkpoint interval", c.CheckpointInterval},
		{"commit interval", c.CommitInterval},
		{"commit timeout", c.CommitTimeout},
		{"lease", c.Lease},
		{"session timeout", c.SessionTimeout},
	} {
		fault(d.is < 0, "%s: negative", d.name)
	}
	return errors.Join(errs...)
}
