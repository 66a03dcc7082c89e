package read

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/lienstream/lienstream/topics"
)

// Config of a Router. Application and Partitions are required, and Local or Owners.
type Config struct {
	Application string // name of the application to read
	Partitions  int32
	Local       Source               // the partitions of this process, called directly; nil: none
	Instance    string               // name of this process in the owners topic, where its own records are ignored
	Owners      func() (Feed, error) // opens the owners topic at its start; nil: there are no other nodes
	Timeout     time.Duration        // of a call to another node; default 1 s
	Patience    time.Duration        // of a read while holders change or disagree; default 500 ms
	Interval    time.Duration        // after which silent nodes are polled again; default 50 ms
	Token       string               // token of other nodes' read API; empty: none
	Registerer  prometheus.Registerer
	Logger      *zap.Logger

	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // to other nodes; nil: the machine's network
}

func (c *Config) setDefaults() {
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	if c.Patience == 0 {
		c.Patience = 500 * time.Millisecond
	}
	if c.Interval == 0 {
		c.Interval = 50 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
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
		if d.d < 0 {
			faults = append(faults, fmt.Errorf("%s: %s is negative", d.name, d.d))
		}
	}
	return errors.Join(faults...)
}

// Router reads an application from the nodes that hold its partitions, this process among them.
//
// Invariants:
//  1. An answer is as of one block, number and hash, on every partition that it spans.
//  2. No part of an answer is from an incarnation older than the newest known.
//  3. An answer is never as of an earlier block, by reverts and number, than an answer of any of its
//     partitions that was returned before the request. Only a request that names a block gets an older one.
//  4. Rounds, waits and remote calls are bounded.
type Router struct {
	cfg     Config
	nodes   *nodes
	all     []int32
	hedges  *semaphore.Weighted
	metrics *metrics
}

// NewRouter makes a router. Run finds other nodes.
func NewRouter(cfg Config) (*Router, error) {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Router{cfg: cfg, nodes: newNodes(cfg.Partitions, cfg.Local, Application{Name: cfg.Application}), hedges: semaphore.NewWeighted(maxHedges), metrics: newMetrics(cfg.Registerer, cfg.Application)}
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

// Lowest is the watermark that is least far: all partitions can answer as of its block, or could until
// recently. It is never before a block that was shown. It uses no network. ErrUnavailable: a partition has no
// holder.
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

// Head is how far all partitions are. It uses no network.
func (r *Router) Head(context.Context) (Head, error) {
	marks, err := r.Watermarks()
	if err != nil {
		return Head{}, err
	}
	h := Head{Indexed: lowestOf(marks).At, ObservedAt: marks[0].ObservedAt}
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
