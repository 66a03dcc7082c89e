package main

import (
	"context"
	"fmt"
	"time"
)

// idle measures our processor time and the broker's at the tip: without blocks, and at ten blocks a second of 20 logs
// each.
func (b *bench) idle(ctx context.Context, w *world, p *pipeline) error {
	for _, at := range []struct {
		name  string
		every time.Duration
		logs  int
		cores float64 // of ours, at most
	}{
		{"2 empty blocks/s", 500 * time.Millisecond, 0, 0},
		{"10 blocks/s of 20 logs", 100 * time.Millisecond, 20, 0.25},
	} {
		ours, brokers, blocks, err := b.tip(ctx, w, p, at.every, at.logs)
		if err != nil {
			return err
		}
		b.add("processor at the tip, "+at.name+", "+w.kind, "cores", ours, 0, goal{most: at.cores})
		b.add("broker at the tip, "+at.name+", "+w.kind, "cores", brokers, 0, goal{})
		if blocks == 0 {
			return fmt.Errorf("%s: there was no block", at.name)
		}
		b.add("broker time per block, "+at.name+fmt.Sprintf(", %d partitions, ", b.partitions)+w.kind, "ms", brokers*idleSpan.Seconds()*1000/float64(blocks), 0, goal{})
		b.note("%s: %d blocks", at.name, blocks)
	}
	return nil
}

const idleSpan = 10 * time.Second // of each measurement

// tip is how many cores the pipeline and the broker take while blocks come.
func (b *bench) tip(ctx context.Context, w *world, p *pipeline, every time.Duration, logs int) (ours, brokers float64, blocks uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, idleSpan)
	defer cancel()
	took := func() (of [2]time.Duration, err error) {
		if of[0], err = p.cpu(); err == nil {
			of[1], err = cpuOf(w.kafka.PID())
		}
		return of, err
	}
	before, err := took()
	if err != nil {
		return 0, 0, 0, err
	}
	began, first := time.Now(), b.chain.head
	if err := b.blocks(ctx, every, logs); err != nil {
		return 0, 0, 0, err
	}
	after, err := took()
	elapsed := float64(time.Since(began))
	return float64(after[0]-before[0]) / elapsed, float64(after[1]-before[1]) / elapsed, b.chain.head - first, err
}
