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
	honestEvery = 10 * time.Millisecond // of each honest client
	hostileTurn = 2 * time.Second
)

// hostile measures by how much one hostile client slows 16 honest ones down. All come through a proxy that the service
// trusts, in turns with the hostile one and without.
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
	var alone, beside []float64
	var asked int
	for range turns {
		for _, attacked := range []bool{false, true} {
			latencies, n, err := b.honest(ctx, p.addr, attacked)
			if err != nil {
				return err
			}
			asked += n
			if attacked {
				beside = append(beside, latencies...)
			} else {
				alone = append(alone, latencies...)
			}
		}
	}
	quiet, loud := quantile(alone, 0.99), quantile(beside, 0.99)
	b.note("16 honest clients: %d requests alone, %d beside a hostile one that made %d", len(alone), len(beside), asked)
	b.add("p99 of 16 honest clients, "+w.kind, "ms", quiet, 0, goal{})
	b.add("the same beside a hostile client, "+w.kind, "ms", loud, 0, goal{})
	b.add("by which a hostile client multiplies it, "+w.kind, "times", loud/quiet, 0, goal{most: 1.5})
	return nil
}

// honest is the latencies of 16 clients, each with an address of its own, that ask for random deals. asked is how many
// requests the hostile one sent meanwhile.
func (b *bench) honest(ctx context.Context, addr string, attacked bool) (latencies []float64, asked int, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostileTurn)
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
		var random [connections]*rand.Rand
		for i := range random {
			random[i] = rand.New(rand.NewPCG(b.seed, uint64(i)))
		}
		latencies, err = steady(gctx, addr, honestEvery, func(conn int) request {
			return request{path: fmt.Sprintf("/deals/%d", 1+random[conn].Uint64N(b.chain.market.deals)), from: fmt.Sprintf("10.0.0.%d", 1+conn)}
		})
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
