package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

// Rows of the table, at the tip.
const (
	rowKilled  = "after SIGKILL"
	rowWiped   = "state wiped"
	rowLatency = "raw appended to row readable"
	rowShort   = "the same, Streams commits every 10 ms"
	rowTip     = "cores at the tip"
)

// For how long latencies are taken, and which of them do not count.
const (
	latencyTime = 12 * time.Second
	latencySkip = 2 * time.Second
)

// live compares both at the tip, at ten blocks a second of 20 logs: latency, and how long rows take to come after a SIGKILL and
// without the state. At the end both have the same rows again.
func (c *comparison) live(ctx context.Context) (err error) {
	ingest, err := c.raw.ingest(ctx)
	if err != nil {
		return err
	}
	defer ingest.kill()
	g, inner := errgroup.WithContext(ctx)
	blocks, stop := context.WithCancel(inner)
	g.Go(func() error { return c.blocks(blocks, 100*time.Millisecond, 20) })
	g.Go(func() error {
		defer stop()
		for range c.runs {
			for side := range c.both() {
				if err := c.atTip(inner, side); err != nil {
					return fmt.Errorf("%s at the tip: %w", contenders[side], err)
				}
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	c.raw.head = c.chain.head
	if err := errors.Join(c.raw.published(ctx, ingest), ingest.stop()); err != nil {
		return err
	}
	// Ours show a block before it is committed: so they run until the rows were compared.
	for side, of := range c.both() {
		p, err2 := of.launch(how{})
		if err2 == nil {
			defer func() { err = errors.Join(err, p.stop()) }()
			err2 = until(ctx, p, of.atEnd)
		}
		if err2 != nil {
			return fmt.Errorf("%s, to the end: %w", contenders[side], err2)
		}
	}
	return c.equal(ctx, ", after kills and wipes")
}

// atTip takes the figures of one of the two.
func (c *comparison) atTip(ctx context.Context, side int) error {
	of := c.both()[side]
	p, err := c.latency(ctx, side, rowLatency, how{tip: true})
	if err != nil {
		return err
	}
	p.kill()
	if p, err = c.returns(ctx, side, rowKilled); err != nil {
		return err
	}
	if err := errors.Join(p.stop(), os.RemoveAll(of.state())); err != nil {
		return err
	}
	if p, err = c.returns(ctx, side, rowWiped); err != nil {
		return err
	}
	if err := p.stop(); err != nil || side == 0 {
		return err
	}
	if p, err = c.latency(ctx, side, rowShort, how{tip: true, commit: 10 * time.Millisecond}); err != nil {
		return err
	}
	return p.stop()
}

// latency starts one and, once it is at the tip, measures how long a change takes.
func (c *comparison) latency(ctx context.Context, side int, row string, as how) (*process, error) {
	p, err := c.begin(ctx, side, as, func(time.Duration, time.Duration) {})
	if err != nil {
		return nil, err
	}
	w, err := c.raw.out.watch(ctx, c.raw.catalogue().Raw(), c.both()[side].topic("deal"))
	if err != nil {
		p.kill()
		return nil, err
	}
	defer w.close()
	before, err1 := p.cpu()
	began := time.Now()
	all, err2 := w.latencies(ctx, latencyTime, latencySkip)
	after, err3 := p.cpu()
	if err := errors.Join(err1, err2, err3); err != nil {
		p.kill()
		return nil, err
	}
	p50, p95 := quantile(all, 0.5), quantile(all, 0.95)
	c.took(row+", p50", side, p50)
	c.took(row+", p95", side, p95)
	if row == rowLatency {
		c.took(rowTip, side, (after-before).Seconds()/time.Since(began).Seconds())
	}
	if side == 0 { // ours has no such interval
		c.took(rowShort+", p50", side, p50)
		c.took(rowShort+", p95", side, p95)
	}
	c.note("%s, %s: %.1f ms, p50, %.1f ms, p95, of %d", contenders[side], row, p50, p95, len(all))
	return p, nil
}

// returns starts one and measures how long rows take to come.
func (c *comparison) returns(ctx context.Context, side int, row string) (*process, error) {
	return c.begin(ctx, side, how{tip: true}, func(first, all time.Duration) {
		c.took(row+": first row", side, first.Seconds())
		c.took(row+": all partitions", side, all.Seconds())
		c.note("%s, %s: first row %.2f s, all partitions %.2f s", contenders[side], row, first.Seconds(), all.Seconds())
	})
}

// begin starts one, and waits until rows of every partition have come.
func (c *comparison) begin(ctx context.Context, side int, as how, took func(first, all time.Duration)) (*process, error) {
	of := c.both()[side]
	w, err := c.raw.out.watch(ctx, c.raw.catalogue().Raw(), of.topic("deal"))
	if err != nil {
		return nil, err
	}
	defer w.close()
	began := time.Now()
	p, err := of.launch(as)
	if err != nil {
		return nil, err
	}
	first, all, err := w.returns(ctx)
	if err != nil {
		p.kill()
		return nil, err
	}
	took(first.Sub(began), all.Sub(began))
	return p, nil
}
