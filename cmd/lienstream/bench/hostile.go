package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
)

// The hostile client sends the most expensive requests over as many connections as all others have, each as soon as
// the last was answered.
const (
	honestEvery  = 10 * time.Millisecond // of each honest client
	hostileSlice = time.Second
	slicesOfEach = 12 // with the hostile client, and without
)

// hostile measures by how much one hostile client slows 16 honest ones down. All come through a proxy that the service
// trusts, in slices with the hostile one and without, in turns: what else the machine does falls on both, and the median of the
// slices leaves out where it fell on one.
func (b *bench) hostile(ctx context.Context, w *world, p *pipeline) error {
	if err := p.stop(); err != nil {
		return err
	}
	if err := p.start(append(b.chain.flags(false), "--trusted-proxies=127.0.0.0/8")...); err != nil {
		return err
	}
	if _, err := p.ready(ctx); err != nil {
		return err
	}
	var random [connections]*rand.Rand // goes on from slice to slice: what a slice asked for is not what the next one finds kept
	for i := range random {
		random[i] = rand.New(rand.NewPCG(b.seed, uint64(i)))
	}
	next := func(conn int) request {
		return request{path: fmt.Sprintf("/deals/%d", 1+random[conn].Uint64N(b.chain.market.deals)), from: fmt.Sprintf("10.0.0.%d", 1+conn)}
	}
	var p99 [2][]float64 // of the slices: alone, beside the hostile client
	var requests [2]int
	var asked int
	for range slicesOfEach {
		for i, attacked := range []bool{false, true} {
			latencies, n, err := b.honest(ctx, p.addr, attacked, next)
			if err != nil {
				return err
			}
			asked += n
			requests[i] += len(latencies)
			p99[i] = append(p99[i], quantile(latencies, 0.99))
		}
	}
	b.note("16 honest clients: %d requests alone, %d beside a hostile one that made %d", requests[0], requests[1], asked)
	b.addSpread("p99 of 16 honest clients, median of slices, "+w.kind, "ms", p99[0], nil, goal{})
	b.addSpread("the same beside a hostile client, "+w.kind, "ms", p99[1], nil, goal{})
	b.add("by which a hostile client multiplies it, "+w.kind, "times", median(p99[1])/median(p99[0]), 0, goal{most: 1.5})
	return nil
}

// honest is the latencies of 16 clients in a slice. asked is how many requests the hostile one sent meanwhile.
func (b *bench) honest(ctx context.Context, addr string, attacked bool, next func(conn int) request) (latencies []float64, asked int, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostileSlice)
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	var hostile [connections]int
	if attacked {
		for i := range connections {
			g.Go(func() (err error) {
				hostile[i], err = b.attack(gctx, addr, i)
				return err
			})
		}
	}
	g.Go(func() (err error) {
		latencies, err = steady(gctx, addr, honestEvery, next)
		return err
	})
	err = g.Wait()
	for _, n := range hostile {
		asked += n
	}
	return latencies, asked, err
}

// attack asks for portfolios, lists with the rarest filters and deals that are not cached, without a pause.
func (b *bench) attack(ctx context.Context, addr string, conn int) (asked int, err error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	r := rand.New(rand.NewPCG(b.seed, uint64(1000+conn)))
	for ; ctx.Err() == nil; asked++ {
		paths := [...]string{
			fmt.Sprintf("/portfolio/%s", b.chain.market.accounts[r.IntN(len(b.chain.market.accounts))]),
			fmt.Sprintf("/listings?sort=cost&limit=%d&term=604800&lane=POSITION", 1+r.IntN(200)),
			fmt.Sprintf("/deals?state=CLAIMED&limit=%d", 1+r.IntN(200)),
			fmt.Sprintf("/deals/%d", 1+r.Uint64N(b.chain.market.deals)),
		}
		if _, _, err := c.ask(request{path: paths[r.IntN(len(paths))], from: "10.9.9.9"}); err != nil {
			return asked, err
		}
	}
	return asked, nil
}
