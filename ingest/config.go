package ingest

import (
	"errors"
	"fmt"
	"time"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Finality says how finality is decided. Blocks within the reorg window are never final.
type Finality string

const (
	// FinalityTag: by the nodes' finalized block. While they have none, no block is final.
	FinalityTag Finality = "tag"
	// FinalityWindow: by the reorg window alone, for chains whose nodes know no finalized block.
	FinalityWindow Finality = "window"
)

// Config of an Ingester.
type Config struct {
	Deployment contracts.Deployment
	Kafka      kafka.Config
	Partitions int32      // of the raw topic
	RPC        rpc.Config // chain ID, addresses and topics are the deployment's

	Finality    Finality
	ReorgWindow uint64 // newest blocks that may be reverted, whatever the chain calls final
	Ranges      int    // ranges fetched concurrently in backfill, per endpoint
	RangeBlocks uint64 // maximum blocks of a range
	// SparseBlocks is the maximum size of a range without its empty blocks: see RPC.Proof.
	SparseBlocks uint64
	RangeLogs    int // number of logs that the size of ranges aims at

	BatchRecords int // maximum records of a transaction; a block is never split
	LedgerShares int // maximum shares of a token's ledger in a block: the rest comes with the next blocks
	BatchBytes   int

	PollInterval   time.Duration // of the head, if no endpoint announces heads
	PollBackup     time.Duration // of the head, if an endpoint does
	FinalizedEvery time.Duration // interval of polling the finalized block
	MarkEvery      time.Duration // a barrier is published at least this often while blocks are empty
	Heartbeat      time.Duration // the last barrier is repeated this often on an idle chain
	ShortPatience  time.Duration // how long a chain may end below the published blocks before that is an error
	ProbeTimeout   time.Duration // of the probes of a block, longer than the wait for a silent endpoint
	ReadyAge       time.Duration // the ingester is ready while the last commit and the last head are at most this old

	// Rewind allows reverting final blocks, for one run: an operator's answer to follow.ErrDeepReorg. The
	// processors stop at the first such revert until they are rebuilt.
	Rewind bool

	Standby       bool          // wait while another ingester is active, and after being fenced
	TakeoverAfter time.Duration // after which the active ingester counts as gone; several heartbeats
}

// DefaultConfig has everything but the deployment, the brokers and the endpoints.
func DefaultConfig() Config {
	return Config{
		Kafka: kafka.DefaultConfig(), Partitions: topics.DefaultPartitions, RPC: rpc.DefaultConfig(),
		Finality: FinalityTag, ReorgWindow: follow.DefaultConfig().Window,
		Ranges: 4, RangeBlocks: 2000, SparseBlocks: 40_000, RangeLogs: 1250, BatchRecords: 10_000, BatchBytes: 16 << 20, LedgerShares: 4096,
		PollInterval: 100 * time.Millisecond, PollBackup: time.Second, FinalizedEvery: 2 * time.Second,
		MarkEvery: 200 * time.Millisecond, Heartbeat: 2 * time.Second, TakeoverAfter: 6 * time.Second,
		ShortPatience: 30 * time.Second, ProbeTimeout: 10 * time.Second, ReadyAge: 15 * time.Second,
	}
}

// rpc is the client's configuration.
func (c Config) rpc() rpc.Config {
	r := c.RPC
	r.ChainID = c.Deployment.ChainID
	r.Addresses = contracts.NewDecoder(c.Deployment).Addresses()
	r.Topics = contracts.TokenTopics()
	return r
}

// follow is the machine's configuration.
func (c Config) follow() follow.Config {
	f := follow.DefaultConfig()
	f.Start, f.Window, f.Dense = c.Deployment.StartBlock, c.ReorgWindow, c.RangeBlocks
	f.Votes = len(c.RPC.Endpoints) > 1
	if c.RPC.Proof == rpc.ProofSparse {
		f.Sparse = c.SparseBlocks
	}
	return f
}

// rangeSize is the size of the range after one of `size`, which fetched this many blocks with this many records.
func (c *Config) rangeSize(size, blocks uint64, records int) uint64 {
	want := 2 * size
	if records > 0 {
		want = uint64(c.RangeLogs) * blocks / uint64(records)
	}
	want = min(max(want, size/2), 2*size)
	return min(max(want, 1), max(c.RangeBlocks, c.SparseBlocks))
}

// limits bound a transaction.
func (c Config) limits() follow.Limits {
	return follow.Limits{Records: c.BatchRecords, Bytes: c.BatchBytes}
}

// Validate reports all errors.
func (c Config) Validate() error {
	followed := c.follow()
	errs := []error{c.Deployment.Validate(), c.Kafka.Validate(), c.rpc().Validate(), followed.Validate()}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"kafka-partitions", int64(c.Partitions)},
		{"ranges", int64(c.Ranges)},
		{"range blocks", int64(c.RangeBlocks)},
		{"sparse blocks", int64(c.SparseBlocks)},
		{"range logs", int64(c.RangeLogs)},
		{"batch records", int64(c.BatchRecords)},
		{"ledger-shares", int64(c.LedgerShares)},
		{"batch bytes", int64(c.BatchBytes)},
		{"poll interval", int64(c.PollInterval)},
		{"poll backup", int64(c.PollBackup)},
		{"finalized every", int64(c.FinalizedEvery)},
		{"mark every", int64(c.MarkEvery)},
		{"heartbeat", int64(c.Heartbeat)},
		{"short patience", int64(c.ShortPatience)},
		{"probe timeout", int64(c.ProbeTimeout)},
		{"ready age", int64(c.ReadyAge)},
	} {
		if n.value < 1 {
			errs = append(errs, fmt.Errorf("%s: %d is not positive", n.name, n.value))
		}
	}
	if c.LedgerShares > topics.MaxShares {
		errs = append(errs, fmt.Errorf("ledger-shares: %d is more than the %d that a record may have", c.LedgerShares, topics.MaxShares))
	}
	if c.Finality != FinalityTag && c.Finality != FinalityWindow {
		errs = append(errs, fmt.Errorf("finality: %q is not tag or window", c.Finality))
	}
	if c.TakeoverAfter < 2*c.Heartbeat {
		errs = append(errs, fmt.Errorf("takeover after: %s is less than two heartbeats (%s): a standby would fence an active ingester", c.TakeoverAfter, 2*c.Heartbeat))
	}
	return errors.Join(errs...)
}
