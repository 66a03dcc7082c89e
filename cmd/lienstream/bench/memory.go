package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
	"github.com/lienstream/lienstream/topics"
)

// allBudgets are those of the table of docs/operations.md.
var allBudgets = []string{"256MiB", "350MiB", "512MiB", "1GiB", "2GiB"}

// budgets measures what the processors do with more or less memory, on one raw topic that is there: everything from it with
// events, everything without (--rebuild), and the state alone, from the changelog. In turns, so that other load of the
// machine affects all.
func (b *bench) budgets(ctx context.Context) error {
	return b.onWarmRaw(ctx, 8*time.Minute, b.byBudget)
}

func (b *bench) byBudget(ctx context.Context, raw *raw) error {
	took := map[string][]float64{}
	used := map[string][]float64{}
	peak := map[string]float64{}
	for range b.runs {
		for _, budget := range allBudgets {
			err := raw.replays(ctx, budget, func(way string, t taken) {
				name := fmt.Sprintf("processors in %s, %s, %s", budget, way, raw.w.kind)
				took[name], used[name] = append(took[name], t.wall.Seconds()), append(used[name], t.used.Seconds())
				peak[budget] = max(peak[budget], float64(t.peak))
				b.note("%s: %.2f s (%.2f s of processor time), %d MB", name, t.wall.Seconds(), t.used.Seconds(), t.peak/1e6)
			})
			if err != nil {
				return err
			}
		}
	}
	for _, budget := range allBudgets {
		for _, way := range replays {
			name := fmt.Sprintf("processors in %s, %s, %s", budget, way.name, raw.w.kind)
			b.addSpread(name, "s", took[name], nil, goal{})
			b.addSpread(name+", processor time", "s", used[name], nil, goal{})
		}
		var most memory.Budget
		if err := most.Set(budget); err != nil {
			return err
		}
		b.add("peak memory of processors in "+budget+", "+raw.w.kind, "MB", peak[budget]/1e6, 0, goal{most: float64(most) / 1e6})
	}
	return nil
}

// raw is a raw topic with the whole chain, and the directory of processors on it.
type raw struct {
	*pipeline // its topics

	out  *outside
	data string
	args []string
	head uint64 // of the history

	patience time.Duration // with processors; 0: that of all
}

// replays are the ways in which processors come to the state of a raw topic that is there.
var replays = []struct {
	name  string
	flags []string
	wiped bool
}{
	{"from the raw topic, with events", nil, false},
	{"rebuild", []string{"--rebuild"}, false},
	{"restore", nil, true},
}

// replays runs processors in a budget of memory each way.
func (r *raw) replays(ctx context.Context, budget string, took func(way string, t taken)) error {
	if err := r.forget(ctx); err != nil {
		return err
	}
	for _, way := range replays {
		if way.wiped {
			if err := os.RemoveAll(r.data); err != nil {
				return err
			}
		}
		t, err := r.process(ctx, append(way.flags, "--memory="+budget)...)
		if err != nil {
			return fmt.Errorf("%s in %s: %w", way.name, budget, err)
		}
		took(way.name, t)
	}
	return nil
}

// onWarmRaw is onRaw once a fresh broker has made its own topics, of transactions and of groups. It ends after five minutes and so
// long for each run.
func (b *bench) onWarmRaw(ctx context.Context, run time.Duration, fn func(context.Context, *raw) error) error {
	limit := 5*time.Minute + time.Duration(b.runs)*run
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	return b.onRaw(ctx, func(raw *raw) error {
		if _, err := raw.process(ctx); err != nil {
			return err
		}
		return fn(ctx, raw)
	})
}

// onRaw calls fn with a raw topic of the whole chain, on an Apache Kafka of its own.
func (b *bench) onRaw(ctx context.Context, fn func(*raw) error) error {
	w, err := newWorld(ctx, b.config, b.chain, real)
	if err != nil {
		return err
	}
	defer w.close()
	out, err := newOutside(w.kafka.Addrs())
	if err != nil {
		return err
	}
	defer out.close()
	began := time.Now()
	r, err := w.newRaw(ctx, out)
	if err != nil {
		return err
	}
	b.note("raw topic by the ingester in %.1f s", time.Since(began).Seconds())
	return fn(r)
}

// newRaw ingests the chain into topics of its own.
func (w *world) newRaw(ctx context.Context, out *outside) (*raw, error) {
	p, err := w.provisioned()
	if err != nil {
		return nil, err
	}
	r := &raw{pipeline: p, out: out, data: filepath.Join(w.cfg.dir, p.name), args: append(p.topics, w.chain.flags(false)...), head: w.chain.head}
	ingest, err := r.ingest(ctx)
	if err != nil {
		return nil, err
	}
	return r, ingest.stop()
}

// ingest starts an ingester, and waits until it has published the chain's head.
func (r *raw) ingest(ctx context.Context) (*process, error) {
	r.ops = address()
	p, err := start(r.w.cfg, r.name+"-ingest", append([]string{"ingest", "--ops-addr=" + r.ops}, r.args...)...)
	if err != nil {
		return nil, err
	}
	if err := r.published(ctx, p); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// published waits until the ingester has published the chain's head.
func (r *raw) published(ctx context.Context, ingest *process) error {
	return until(ctx, ingest, func(ctx context.Context) error {
		return reached(ctx, r.ops, "lienstream_ingest_published_block ", 1, r.w.chain.head)
	})
}

// launch starts processors; ops is where their metrics are.
func (r *raw) launch(flags ...string) (p *process, ops string, err error) {
	ops = address()
	query := address()
	p, err = start(r.w.cfg, r.name+"-processors", append(append([]string{
		"processors", "--applications=market", "--instance=one", "--data-dir=" + r.data, "--ops-addr=" + ops, "--query-addr=" + query, "--advertise=" + query,
	}, flags...), r.args...)...)
	return p, ops, err
}

// atEnd is satisfied once every partition shows the last block of the chain's history. Far from the head it is committed then.
func (r *raw) atEnd(ctx context.Context, ops string) error {
	return reached(ctx, ops, "lienstream_processors_block_number{", r.w.cfg.partitions, r.head)
}

// taken is what a run of processors took.
type taken struct {
	wall, used, brokers time.Duration // by the clock, and of processor time
	peak                int64         // of memory, in bytes
}

// process runs processors until every partition has the last block.
func (r *raw) process(ctx context.Context, flags ...string) (t taken, err error) {
	broker, err := cpuOf(r.w.kafka.PID())
	if err != nil {
		return t, err
	}
	began := time.Now()
	p, ops, err := r.launch(flags...)
	if err != nil {
		return t, err
	}
	if err := untilIn(ctx, p, max(r.patience, patience), func(ctx context.Context) error { return r.atEnd(ctx, ops) }); err != nil {
		p.kill()
		return t, err
	}
	t.wall = time.Since(began)
	var err1, err2, err3 error
	t.used, err1 = p.cpu()
	t.peak, err2 = p.status("VmHWM")
	t.brokers, err3 = cpuOf(r.w.kafka.PID())
	t.brokers -= broker
	return t, errors.Join(err1, err2, err3, p.stop())
}

// forget drops the state and every topic but the raw one.
func (r *raw) forget(ctx context.Context) error {
	c := r.catalogue()
	if err := errors.Join(r.out.remove(ctx, c.Prefix+".", c.Raw()), os.RemoveAll(r.data)); err != nil {
		return err
	}
	return r.w.provision(r.pipeline)
}

func (r *raw) catalogue() topics.Catalogue {
	return topics.Catalogue{Prefix: r.name, ChainID: chainID, Partitions: int32(r.w.cfg.partitions)}
}

// reached reports whether so many series of a gauge are at a block.
func reached(ctx context.Context, ops, gauge string, series int, block uint64) error {
	text, _, _, err := fetch(ctx, "http://"+ops+"/metrics")
	if err != nil {
		return err
	}
	at := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, gauge) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			return err
		}
		if uint64(value) >= block {
			at++
		}
	}
	if at < series {
		return fmt.Errorf("%d of %d %s at block %d", at, series, gauge, block)
	}
	return nil
}
