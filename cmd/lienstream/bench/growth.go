package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// logsPerDeal are what newMarketThatGrows needs for a deal.
const logsPerDeal = 3.9

// growthPace is the least that is waited for: it bounds how long a size takes.
const growthPace = 5_000 // logs/s

// growth measures how the processors grow with the number of deals, on a raw topic that is written straight: the first time,
// with events; the state from the raw topic and from the changelog; then at the tip, at ten blocks a second of 20 logs, how
// long a change takes and how long reads do. Each figure's reference is that of the size before, and may be no more than the
// ratio of their logarithms; memory is to stay within --memory.
func (b *bench) growth(ctx context.Context) error {
	var before *grown
	for _, deals := range b.sizes {
		g := &grown{bench: b, deals: deals, all: map[string][]float64{}, units: map[string]string{}}
		if err := g.take(ctx); err != nil {
			return fmt.Errorf("%s deals: %w", format(float64(deals)), err)
		}
		g.figures(before)
		before = g
	}
	return nil
}

// grown is a size, and its figures.
type grown struct {
	*bench

	deals uint64
	logs  float64
	all   map[string][]float64
	rows  []string
	units map[string]string
}

func (g *grown) took(name, unit string, value float64) {
	if _, ok := g.all[name]; !ok {
		g.rows = append(g.rows, name)
	}
	g.all[name] = append(g.all[name], value)
	g.units[name] = unit
	g.note("%s deals, %s: %s %s", format(float64(g.deals)), name, format(value), unit)
}

// figures adds medians beside those of the size before. Memory has a bound, however many deals there are.
func (g *grown) figures(before *grown) {
	for _, name := range g.rows {
		bound, reference := goal{}, 0.0
		if before != nil {
			reference = median(before.all[name])
			bound.share = math.Log(float64(g.deals)) / math.Log(float64(before.deals))
		}
		if g.units[name] == "MB" {
			bound = goal{most: float64(g.memoryOf) / 1e6}
		}
		g.add(fmt.Sprintf("%s, %s deals", name, format(float64(g.deals))), g.units[name], median(g.all[name]), reference, bound)
	}
}

func (g *grown) take(ctx context.Context) error {
	cfg := g.config
	cfg.dir = filepath.Join(g.dir, fmt.Sprint(g.deals))
	if err := os.Mkdir(cfg.dir, 0o700); err != nil {
		return err
	}
	w, err := newWorld(ctx, cfg, nil, real)
	if err != nil {
		return err
	}
	err = g.on(ctx, w)
	w.close()
	if err != nil {
		return err
	}
	return os.RemoveAll(cfg.dir) // the disk has no room for two sizes
}

func (g *grown) on(ctx context.Context, w *world) error {
	out, err := newOutside(w.kafka.Addrs())
	if err != nil {
		return err
	}
	defer out.close()
	m, err := newMarketThatGrows(g.seed, g.deals)
	if err != nil {
		return err
	}
	p, err := w.provisioned()
	if err != nil {
		return err
	}
	d, file, err := deploymentOf(w.cfg.dir, nowhere("vault"), nowhere("registry"))
	if err != nil {
		return err
	}
	h, err := newWriter(ctx, p, out, m, d)
	if err != nil {
		return err
	}
	defer h.close()
	r := &raw{
		pipeline: p, out: out, data: filepath.Join(w.cfg.dir, "state"), args: append(p.topics, "--deployment="+file),
		head: uint64(math.Ceil(float64(g.deals) * logsPerDeal / writtenBlock)),
	}
	began := time.Now()
	if err := h.history(ctx, r.head); err != nil {
		return fmt.Errorf("write the raw topic: %w", err)
	}
	g.logs = float64(h.logs)
	g.note("%s logs of %s deals, %s of them listed, in %s blocks, written in %.1f s", format(g.logs), format(float64(m.deals)), format(float64(len(m.listed))),
		format(float64(r.head)), time.Since(began).Seconds())
	r.patience = max(patience, time.Duration(g.logs/growthPace)*time.Second)
	if g.Logs += h.logs; g.Blocks < r.head {
		g.Blocks = r.head
	}
	for range g.runs {
		err := r.replays(ctx, g.memoryOf.String(), func(way string, t taken) {
			g.took(way+", per log", "µs", t.wall.Seconds()*1e6/g.logs)
			g.took(way+", processor time per log", "µs", t.used.Seconds()*1e6/g.logs)
			g.took(way+", the broker's per log", "µs", t.brokers.Seconds()*1e6/g.logs)
			g.took(way+", peak memory", "MB", float64(t.peak)/1e6)
		})
		if err != nil {
			return err
		}
	}
	if err := g.weigh(ctx, r); err != nil {
		return err
	}
	return g.live(ctx, r, h)
}

// weigh measures what is on disk.
func (g *grown) weigh(ctx context.Context, r *raw) error {
	state, err := sizeOf(r.data)
	if err != nil {
		return err
	}
	g.took("state on disk, per deal", "bytes", state/float64(g.deals))
	sizes, err := r.out.sizes(ctx)
	if err != nil {
		return err
	}
	var rest float64
	for name, size := range sizes {
		if name != r.catalogue().Raw() {
			rest += size
		}
	}
	g.took("raw topic, per log", "bytes", sizes[r.catalogue().Raw()]/g.logs)
	g.took("other topics, per log", "bytes", rest/g.logs)
	return nil
}

// live takes what the tip has.
func (g *grown) live(ctx context.Context, r *raw, h *writer) error {
	p, ops, err := r.launch("--memory=" + g.memoryOf.String())
	if err != nil {
		return err
	}
	defer p.kill()
	if err := until(ctx, p, func(ctx context.Context) error { return r.atEnd(ctx, ops) }); err != nil {
		return err
	}
	query, addr := address(), address()
	s, err := start(r.w.cfg, r.name+"-serving", append([]string{
		"serving", "--services=indexer", "--indexer-addr=" + addr, "--ops-addr=" + address(), "--query-addr=" + query, "--advertise=" + query,
	}, r.args...)...)
	if err != nil {
		return err
	}
	defer s.kill()
	both, inner := errgroup.WithContext(ctx)
	blocks, stop := context.WithCancel(inner)
	both.Go(func() error {
		return steadily(blocks, 100*time.Millisecond, func(ctx context.Context) error { return h.block(ctx, 20) })
	})
	both.Go(func() error {
		defer stop()
		return g.atTip(inner, r, s, addr, h.market.deals)
	})
	if err := both.Wait(); err != nil {
		return err
	}
	rss, err := p.status("VmHWM")
	if err == nil {
		g.took("at the tip, peak memory", "MB", float64(rss)/1e6)
	}
	return err
}

func (g *grown) atTip(ctx context.Context, r *raw, serving *process, addr string, deals uint64) error {
	if err := until(ctx, serving, indexed(addr, r.head)); err != nil {
		return err
	}
	watch, err := r.out.watch(ctx, r.catalogue().Raw(), r.catalogue().Ent("deal"))
	if err != nil {
		return err
	}
	defer watch.close()
	all, err := watch.latencies(ctx, latencyTime, latencySkip)
	if err != nil {
		return err
	}
	g.took("raw appended to row readable, p50", "ms", quantile(all, 0.5))
	g.took("raw appended to row readable, p95", "ms", quantile(all, 0.95))
	for _, route := range []struct {
		name  string
		paths []string
	}{
		{"/listings?limit=50", []string{"/listings?limit=50"}},
		{"/deals/:id, uniform", randomDeals(g.seed, deals, uniform)},
	} {
		var l load
		for range turns {
			part, err := press(ctx, addr, gets(route.paths))
			if err != nil {
				return err
			}
			l.merge(part)
		}
		g.took("GET "+route.name+", time of each over 16 connections", "µs", 1e6/l.rate())
		g.took("GET "+route.name+", p99", "ms", quantile(l.latencies, 0.99))
	}
	return nil
}

// sizeOf is how many bytes a directory's files have.
func sizeOf(dir string) (bytes float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			bytes += float64(info.Size())
		}
		return err
	})
	return bytes, err
}
