package read

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/pause"
)

// Feed reads the owners topic from its start. A *kafka.Reader is one.
type Feed interface {
	Poll(ctx context.Context, dst []*kafka.Record) ([]*kafka.Record, error)
	Close()
}

// reopenWait is the pause after reading the owners topic failed. Known nodes stay known: they also report
// themselves.
const reopenWait = time.Second

// Run discovers other nodes and follows their watermarks until ctx is done.
//
//	follow: owners topic ──► nodes ◄── watch: a goroutine per node polls its watermarks
//	forget: drops silent nodes ──┘
//	keep: tells this process which moment it must be read at
func (r *Router) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.keep(ctx) })
	if r.cfg.Owners == nil {
		return g.Wait()
	}
	open := inTime(r.cfg.Dial)
	client := newClient(open)
	defer client.CloseIdleConnections()
	watch := func(addr string) *node {
		own, stop := context.WithCancel(ctx)
		to := &remote{addr: addr, client: client, dial: open, timeout: r.cfg.Timeout, token: r.cfg.Token}
		h := &node{asker: to, stop: stop}
		g.Go(func() error {
			defer to.links.close()
			r.watch(own, h)
			return nil
		})
		return h
	}
	g.Go(func() error { return r.follow(ctx, watch) })
	g.Go(func() error { return r.forget(ctx) })
	return g.Wait()
}

// follow reads the owners topic, and reopens it when it fails.
func (r *Router) follow(ctx context.Context, watch func(addr string) *node) error {
	for {
		if err := r.readOwners(ctx, watch); ctx.Err() == nil {
			r.cfg.Logger.Warn("reading the owners topic failed, retrying", zap.Error(err))
		}
		if err := pause.For(ctx, reopenWait); err != nil {
			return err
		}
	}
}

func (r *Router) readOwners(ctx context.Context, watch func(addr string) *node) error {
	feed, err := r.cfg.Owners()
	if err != nil {
		return err
	}
	defer feed.Close()
	var records []*kafka.Record
	for {
		if records, err = feed.Poll(ctx, records); err != nil {
			return err
		}
		for _, rec := range records {
			o, gone, err := topics.DecodeOwner(rec.Key, rec.Value)
			if err != nil {
				r.cfg.Logger.Warn("skipped an invalid record of the owners topic", zap.Int64("offset", rec.Offset), zap.Error(err))
				continue
			}
			if o.Instance == r.cfg.Instance || o.Application != r.cfg.Application {
				continue
			}
			if fresh := r.nodes.announced(o, gone, watch); fresh != nil {
				r.cfg.Logger.Info("found a processor node", zap.String("instance", o.Instance), zap.String("addr", o.Addr))
			}
		}
		r.metrics.nodes.Set(float64(r.nodes.count()))
	}
}

const (
	// watchWait is how long a node waits for its watermarks to change before it returns them anyway.
	watchWait = 100 * time.Millisecond
	// silence is how much longer a response may take before other nodes are used instead.
	silence = 150 * time.Millisecond
	// gather is the minimum interval of polls: the partitions of a block advance one after another.
	gather = time.Millisecond
)

// watch polls the watermarks of a node until it is forgotten. The node responds when they differ from those it
// sent last, so a new block is known at once, and a frozen node is detected by its silence.
func (r *Router) watch(ctx context.Context, h *node) {
	var seen uint64
	wait := min(watchWait, r.cfg.Timeout/2)
	for {
		began := time.Now()
		soon, cancel := context.WithTimeout(ctx, wait+silence)
		at, _ := r.asOf()
		a, err := h.ask(soon, &nodeRequest{Application: r.cfg.Application, Operation: watermarks, query: &watch{Seen: seen, Wait: wait, Keep: at.Point()}})
		cancel()
		if ctx.Err() != nil {
			return
		}
		rest := r.cfg.Interval
		if err != nil {
			r.nodes.silent(h)
			seen = 0
		} else {
			r.nodes.told(h, a.Watermarks)
			news := digest(a.Watermarks)
			if news != seen || time.Since(began) >= wait { // a node that does not wait
				rest = gather
			}
			seen = news
		}
		if pause.For(ctx, rest-time.Since(began)) != nil {
			return
		}
	}
}

// keep has this process keep views of what is read while nobody reads.
func (r *Router) keep(ctx context.Context) error {
	tick := time.NewTicker(watchWait)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.nodes.frontier()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *Router) forget(ctx context.Context) error {
	tick := time.NewTicker(forgottenFor / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.nodes.forget()
			r.metrics.nodes.Set(float64(r.nodes.count()))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
