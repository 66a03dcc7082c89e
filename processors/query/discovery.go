package query

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Feed is the owners topic from its start on. A *kafka.Reader is one.
type Feed interface {
	Poll(ctx context.Context, dst []*kafka.Record) ([]*kafka.Record, error)
	Close()
}

// reopenWait is the pause after the owners topic failed. What is known stays known: nodes tell of
// themselves too.
const reopenWait = time.Second

// Run finds other nodes and follows their watermarks until ctx is done.
//
//	follow: owners topic ──► nodes ◄── watch: one goroutine a node, asks it every Interval
//	forget: drops silent nodes ──┘
func (r *Router) Run(ctx context.Context) error {
	if r.cfg.Owners == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	client := newClient()
	defer client.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	watch := func(addr string) *node {
		own, stop := context.WithCancel(ctx)
		h := &node{asker: &remote{addr: addr, client: client, timeout: r.cfg.Timeout}, stop: stop}
		g.Go(func() error { r.watch(own, h); return nil })
		return h
	}
	g.Go(func() error { return r.follow(ctx, watch) })
	g.Go(func() error { return r.forget(ctx) })
	return g.Wait()
}

// follow reads the owners topic, and opens it again when it fails.
func (r *Router) follow(ctx context.Context, watch func(addr string) *node) error {
	for {
		if err := r.readOwners(ctx, watch); ctx.Err() == nil {
			r.cfg.Logger.Warn("owners topic", zap.Error(err))
		}
		if err := pause(ctx, reopenWait); err != nil {
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
				r.cfg.Logger.Warn("record of the owners topic passed over", zap.Int64("offset", rec.Offset), zap.Error(err))
				continue
			}
			if o.Instance == r.cfg.Instance {
				continue
			}
			if fresh := r.nodes.announced(o, gone, watch); fresh != nil {
				r.cfg.Logger.Info("found a processor node", zap.String("instance", o.Instance), zap.String("addr", o.Addr))
			}
		}
		r.metrics.nodes.Set(float64(r.nodes.count()))
	}
}

// silence is how long a node may take to tell its watermarks, which cost it nothing, until others are
// asked in its stead.
const silence = 200 * time.Millisecond

// watch asks a node for its watermarks, until it is forgotten.
func (r *Router) watch(ctx context.Context, h *node) {
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	for {
		soon, cancel := context.WithTimeout(ctx, silence)
		a, err := h.ask(soon, &request{Op: opWatermarks})
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.nodes.silent(h)
		default:
			r.nodes.told(h, a.Watermarks)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
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
