package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// backfill measures how long an empty pipeline takes to be ready, each run paired with the bare client, and leaves the
// last one running. The first run on real brokers does not count: they create their internal topics then.
func (b *bench) backfill(ctx context.Context, w *world) (*pipeline, error) {
	counted := w.kind == embedded
	var ours, ratios []float64
	for {
		logs := float64(b.chain.logs)
		bare, err := bareClient(ctx, b.chain, b.chain.head)
		if err != nil {
			return nil, err
		}
		p, err := w.fresh()
		if err != nil {
			return nil, err
		}
		took, err := p.ready(ctx)
		if err != nil {
			return nil, err
		}
		used, err := p.cpu()
		if err != nil {
			return nil, err
		}
		b.note("run %d: backfill %.2f s (%.2f s of processor time), bare client %.2f s", w.runs, took.Seconds(), used.Seconds(), bare.Seconds())
		if counted {
			us, them := logs/took.Seconds(), logs/bare.Seconds()
			ours, ratios = append(ours, us), append(ratios, us/them)
		}
		if counted = true; len(ours) == b.runs {
			r := median(ratios)
			b.add("backfill to readiness, "+w.kind, "events/s", median(ours), median(ours)/r, goal{least: 60_000, ratio: 0.6})
			return p, b.peak(w, p)
		}
		if err := p.stop(); err != nil {
			return nil, err
		}
	}
}

// peak is the peak memory of a backfill, where no server is in the same process.
func (b *bench) peak(w *world, p *pipeline) error {
	if w.kind == embedded {
		return nil
	}
	bytes, err := p.status("VmHWM") // the peak
	if err == nil {
		b.add("peak memory of a backfill, "+w.kind, "MB", float64(bytes)/1e6, 0, goal{most: 300})
	}
	return err
}

// rebuild measures how fast the state is built from the raw topic, from the start of the process.
func (b *bench) rebuild(ctx context.Context, w *world, p *pipeline) error {
	var rates []float64
	for run := range b.runs {
		began := time.Now()
		if err := p.stop(); err != nil {
			return err
		}
		stopped := time.Now()
		if err := p.start(append(b.chain.flags(false), "--rebuild")...); err != nil {
			return err
		}
		if _, err := p.ready(ctx); err != nil {
			return err
		}
		took := time.Since(stopped)
		used, err := p.cpu()
		if err != nil {
			return err
		}
		b.note("run %d: stop %.2f s, rebuild %.2f s (%.2f s of processor time)", run+1, stopped.Sub(began).Seconds(), took.Seconds(), used.Seconds())
		rates = append(rates, float64(b.chain.logs)/took.Seconds())
	}
	b.add("rebuild from the raw topic, "+w.kind, "events/s", median(rates), 0, goal{least: 150_000})
	return nil
}

// latency measures the time from a block's announcement by the node until /deals/:id shows its change.
func (b *bench) latency(ctx context.Context, w *world, p *pipeline, how string, samples int, p50, p95 float64) error {
	c, err := dial(ctx, p.addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	random := rand.New(rand.NewPCG(b.seed, 1))
	var all, mining []float64
	for i := range samples {
		amount := uint64(5_000_000_000_000 + i)
		id, err := b.chain.change(ctx, amount)
		if err != nil {
			return err
		}
		want := fmt.Appendf(nil, "%q", fmt.Sprint(amount))
		path := fmt.Sprintf("/deals/%d", id)
		pause(ctx, time.Duration(30+random.IntN(120))*time.Millisecond)
		began := time.Now()
		if err := b.chain.mine(ctx, 1); err != nil {
			return err
		}
		mined := time.Now()
		mining = append(mining, float64(mined.Sub(began))/float64(time.Millisecond))
		for {
			_, body, err := c.get(path)
			if err != nil {
				return err
			}
			if bytes.Contains(body, want) {
				break
			}
			if time.Since(mined) > 10*time.Second {
				return fmt.Errorf("%s: %s after 10 s: %s", path, want, body)
			}
			nap(100 * time.Microsecond)
		}
		all = append(all, float64(time.Since(mined))/float64(time.Millisecond))
	}
	b.note("before that, mining took %.1f ms, p50, and %.1f ms, p95", quantile(mining, 0.5), quantile(mining, 0.95))
	if p50 > 0 {
		b.add(fmt.Sprintf("mined to visible by %s, p50, %s", how, w.kind), "ms", quantile(all, 0.5), 0, goal{most: p50})
	}
	b.add(fmt.Sprintf("mined to visible by %s, p95, %s", how, w.kind), "ms", quantile(all, 0.95), 0, goal{most: p95})
	return nil
}

// nap sleeps for less than a millisecond. Where a process has nothing else to do time.Sleep takes at least one, which is half of
// what is measured.
func nap(d time.Duration) {
	of := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&of, nil)
}

// route is a question, or many of one kind, and what is asked of its answers.
type route struct {
	name  string
	paths []string
	ratio float64 // least, of requests/s
	most  float64 // p99, in ms
}

// reads measures routes at 16 connections, in turns with the bare handler.
func (b *bench) reads(ctx context.Context, w *world, p *pipeline) error {
	var deals []string
	for i := range 200 {
		deals = append(deals, fmt.Sprintf("/deals/%d", 1+uint64(i)*b.chain.market.deals/200))
	}
	return b.measureRoutes(ctx, p.addr, w.kind, slices.Concat([]route{
		{"/listings?limit=50", []string{"/listings?limit=50"}, 0.6, 6},
		{"/deals/:id", deals, 0.6, 6},
	}, b.anyDeal(), []route{
		{"/pool", []string{"/pool"}, 0.6, 10},
		{"/portfolio/:wallet", []string{fmt.Sprintf("/portfolio/%s", b.chain.market.accounts[0])}, 0, 10},
		{"/stats", []string{"/stats"}, 0, 10},
	}))
}

// apart measures deals at random where the serving process is none of the processors.
func (b *bench) apart(ctx context.Context, w *world) error {
	f, err := w.newFleet(ctx)
	if f != nil {
		defer f.close()
	}
	if err != nil {
		return err
	}
	return b.measureRoutes(ctx, f.addr, "a process a role", b.anyDeal())
}

// anyDeal is all deals at random.
func (b *bench) anyDeal() []route {
	return []route{
		{"/deals/:id, uniform", randomDeals(b.seed, b.chain.market.deals, uniform), 0.5, 6},
		{"/deals/:id, Zipf", randomDeals(b.seed, b.chain.market.deals, func(r *rand.Rand, n uint64) uint64 { return rand.NewZipf(r, 1.1, 1, n-1).Uint64() }), 0.5, 6},
	}
}

// measureRoutes measures each route with and without new blocks.
func (b *bench) measureRoutes(ctx context.Context, addr, where string, routes []route) error {
	for _, route := range routes {
		if err := b.measureRoute(ctx, addr, where, route); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measureRoute(ctx context.Context, addr, where string, route route) error {
	bare, err := startBare(ctx, b.config, addr, gets(route.paths))
	if err != nil {
		return err
	}
	defer bare.close()
	for _, busy := range []bool{false, true} {
		name := fmt.Sprintf("GET %s, %s", route.name, where)
		if busy {
			name = fmt.Sprintf("GET %s under 10 blocks/s, %s", route.name, where)
		}
		us, them, err := b.press(ctx, addr, bare.addr, route.paths, busy)
		if err != nil {
			return err
		}
		b.add(name, "requests/s", us.rate(), them.rate(), goal{ratio: route.ratio})
		b.add(name+", p99", "ms", quantile(us.latencies, 0.99), quantile(them.latencies, 0.99), goal{most: route.most})
	}
	return nil
}

// randomDeals is a random sequence of n deals: more than the response cache holds between blocks.
func randomDeals(seed, n uint64, draw func(r *rand.Rand, n uint64) uint64) []string {
	r := rand.New(rand.NewPCG(seed, 2))
	paths := make([]string, 50_000)
	for i := range paths {
		paths[i] = fmt.Sprintf("/deals/%d", 1+draw(r, n))
	}
	return paths
}

func uniform(r *rand.Rand, n uint64) uint64 { return r.Uint64N(n) }

// Turns are short, so that other load of the machine affects both.
const (
	turns = 6
	turn  = time.Second
)

func (b *bench) press(ctx context.Context, ours, bare string, paths []string, busy bool) (us, them load, err error) {
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	if busy {
		g.Go(func() error { return b.blocks(ctx, 100*time.Millisecond, 20) })
	}
	g.Go(func() error {
		defer cancel()
		for i := range 2 * turns {
			to, l := ours, &us
			if i%2 == 1 {
				to, l = bare, &them
			}
			part, err := press(ctx, to, gets(paths))
			if err != nil {
				return err
			}
			l.merge(part)
		}
		return nil
	})
	return us, them, g.Wait()
}

// blocks mines until ctx ends.
func (b *bench) blocks(ctx context.Context, every time.Duration, logs int) error {
	return steadily(ctx, every, func(ctx context.Context) error {
		if logs == 0 {
			return b.chain.mine(ctx, 1)
		}
		return b.chain.block(ctx, logs)
	})
}

// steadily makes blocks until ctx ends. That does not end one that has begun: a transaction that was sent has to be mined, or the
// next nonce is wrong.
func steadily(ctx context.Context, every time.Duration, block func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := block(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}

// restart kills the pipeline and measures the time from its next start until it answers.
func (b *bench) restart(ctx context.Context, w *world, p *pipeline) error {
	var all []float64
	for range b.runs {
		p.kill()
		began := time.Now()
		if err := p.start(b.chain.flags(false)...); err != nil {
			return err
		}
		err := until(ctx, p.process, func(ctx context.Context) error {
			body, _, status, err := fetch(ctx, "http://"+p.addr+"/deals/1")
			if err == nil && status != 200 {
				err = fmt.Errorf("%d %s", status, body)
			}
			return err
		})
		if err != nil {
			return err
		}
		all = append(all, time.Since(began).Seconds())
		if _, err := p.ready(ctx); err != nil {
			return err
		}
	}
	b.add("SIGKILL to the first answer, "+w.kind, "s", median(all), 0, goal{most: 1})
	return nil
}

// pause waits, where there is nothing to poll.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
