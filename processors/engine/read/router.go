package read

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/lienstream/lienstream/topics"
)

// Config of a Router. Application and Partitions are required, and Local or Owners.
type Config struct {
	Application string // name of the application to read
	Partitions  int32
	Shared      bool                 // all partitions have the same blocks, those of a chain; else each has its own, as those of commands do
	Local       Source               // the partitions of this process, asked by a direct call; nil: none
	Instance    string               // this process in the owners topic: what it says there is passed over
	Owners      func() (Feed, error) // opens the owners topic at its start; nil: there is nobody else
	Timeout     time.Duration        // of a call to another node
	Patience    time.Duration        // of a read while holders move or disagree
	Interval    time.Duration        // until a node that did not tell its watermarks is asked again
	Token       string               // that other nodes ask for; empty: none
	Registerer  prometheus.Registerer
	Logger      *zap.Logger

	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // to other nodes; nil: the machine's network
}

// DefaultConfig lacks the application, its partitions, and who holds them.
func DefaultConfig() Config {
	return Config{Timeout: time.Second, Patience: 500 * time.Millisecond, Interval: 50 * time.Millisecond, Logger: zap.NewNop()}
}

// Validate reports all errors at once.
func (c *Config) Validate() error {
	var faults []error
	if c.Application == "" {
		faults = append(faults, errors.New("application: required"))
	}
	if c.Partitions < 1 || c.Partitions > maxPartitions {
		faults = append(faults, fmt.Errorf("partitions: %d is not in 1-%d", c.Partitions, maxPartitions))
	}
	if c.Local == nil && c.Owners == nil {
		faults = append(faults, errors.New("neither local partitions nor an owners topic is set"))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"timeout", c.Timeout}, {"patience", c.Patience}, {"interval", c.Interval}} {
		if d.d <= 0 {
			faults = append(faults, fmt.Errorf("%s: %s is not positive", d.name, d.d))
		}
	}
	return errors.Join(faults...)
}

// Router reads an application from the nodes that hold its partitions, this process among them.
//
// Invariants:
//  1. An answer is true as of one block, number and hash, on every partition that it spans.
//  2. No part of an answer comes from an older incarnation than the router knows of.
//  3. An answer is never as of an earlier block than one that was given, of any of its partitions, before it
//     was asked for: by reverts and number, whoever owns them. Only who names a block gets an older one, or, with
//     minBlock, a later one that does not count for others.
//  4. Where partitions share blocks, reads of any of them are as of the same one, the frontier: what one of them has
//     beyond it is shown once all have it. So no answer keeps a later one, of other partitions, from being given.
//  5. A read ends: rounds, waits and remote calls are all bounded.
type Router struct {
	cfg     Config
	nodes   *nodes
	all     []int32
	hedges  *semaphore.Weighted
	metrics *metrics
}

// NewRouter makes a router. Run finds other nodes.
func NewRouter(cfg Config) (*Router, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Router{cfg: cfg, nodes: newNodes(cfg.Partitions, cfg.Local, Application{Name: cfg.Application}), hedges: semaphore.NewWeighted(maxHedges), metrics: newMetrics(cfg.Registerer, cfg.Application)}
	r.nodes.shared = cfg.Shared
	for p := range cfg.Partitions {
		r.all = append(r.all, p)
	}
	return r, nil
}

// Watermarks is how far each partition is, ascending by partition. It uses no network: those of other nodes are
// as last reported. ErrUnavailable: a partition has no holder.
func (r *Router) Watermarks() ([]Watermark, error) {
	marks, ok := r.nodes.watermarks()
	if !ok {
		return nil, ErrUnavailable
	}
	return marks, nil
}

// Lowest is the watermark that is least far, without a network: all partitions can answer as of its
// block, or could until lately. It is the frontier where there is one, and never before what was shown.
// ErrUnavailable: a partition has no holder.
func (r *Router) Lowest() (Watermark, error) {
	f := r.nodes.frontier()
	if !f.known {
		return Watermark{}, ErrUnavailable
	}
	return f.lowest, nil
}

// Shown records that an answer about all partitions was found by other means than Read: no later answer will be
// as of an earlier moment.
func (r *Router) Shown(at Moment) { r.nodes.shown(at, r.all) }

// Empty reports whether no block is indexed yet, as far as is known. It uses no network, and no lock while nothing
// changes.
func (r *Router) Empty() bool {
	t := r.nodes.frontier()
	return t.known && t.lowest.At.Hash == (common.Hash{})
}

// Head is how far all partitions are. It uses no network.
func (r *Router) Head(context.Context) (Head, error) {
	marks, err := r.Watermarks()
	if err != nil {
		return Head{}, err
	}
	lowest := lowestOf(marks)
	h := Head{Indexed: lowest.At, Reverts: lowest.Reverts, ObservedAt: marks[0].ObservedAt}
	if at, ok := r.asOf(); ok {
		h.Indexed, h.Reverts = at.Block, at.Reverts
	}
	for _, w := range marks {
		h.Latest = max(h.Latest, w.Latest)
		if w.ObservedAt.Before(h.ObservedAt) {
			h.ObservedAt = w.ObservedAt
		}
	}
	return h, nil
}

// PartitionOf is the partition of a key of the application's input.
func (r *Router) PartitionOf(key []byte) int32 { return topics.Partition(key, r.cfg.Partitions) }

// All are all partitions, ascending. It is read-only.
func (r *Router) All() []int32 { return r.all }

// outcome is the metric label of a read.
func outcome(a *Response, err error) string {
	switch {
	case err == nil && len(a.Items) == 0:
		return "empty"
	case err == nil:
		return "ok"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	default:
		return "error"
	}
}
