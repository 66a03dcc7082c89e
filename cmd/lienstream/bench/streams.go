package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// streams compares the processors with a Kafka Streams application (streams/) on one Apache Kafka and one raw topic, which
// the ingester wrote. They take turns, so that other load of the machine affects both. What Streams is spared and where it is
// helped is in README.md.
func (b *bench) streams(ctx context.Context) error {
	limit := time.Duration(9+5*b.runs) * time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	return b.onRaw(ctx, func(raw *raw) error {
		c := &comparison{
			bench: b, raw: raw,
			ours:   &processors{raw: raw, memory: b.memoryOf},
			theirs: &streamsApp{raw: raw, name: "streams", dir: filepath.Join(b.dir, "streams")},
			all:    map[string]*[2][]float64{},
		}
		if err := c.run(ctx); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		return nil
	})
}

// contender is one of the two.
type contender interface {
	// forget drops everything but the raw topic.
	forget(ctx context.Context) error
	launch(as how) (*process, error)
	// atEnd is satisfied once it has the end of the raw topic.
	atEnd(ctx context.Context) error
	// topic is the name of an entity's topic.
	topic(entity string) string
	// state is the directory of its state.
	state() string
}

// how one is started.
type how struct {
	events  bool          // they are published; ours always are, but in a rebuild
	rebuild bool          // from the raw topic, whatever state there is
	tip     bool          // for latency, not for throughput
	commit  time.Duration // the interval of Streams; 0: the one that is best for throughput
}

// comparison gathers the figures of both: ours first.
type comparison struct {
	*bench

	raw          *raw
	ours, theirs contender
	all          map[string]*[2][]float64
}

func (c *comparison) both() [2]contender { return [2]contender{c.ours, c.theirs} }

// took keeps a figure.
func (c *comparison) took(name string, side int, value float64) {
	if c.all[name] == nil {
		c.all[name] = &[2][]float64{}
	}
	c.all[name][side] = append(c.all[name][side], value)
}

// Rows of the table.
const (
	rowEvents  = "empty topics, events published"
	rowRebuild = "empty state, no events"
)

func (c *comparison) run(ctx context.Context) error {
	// A fresh broker makes its own topics, of transactions and of groups: that does not count.
	if err := c.once(ctx, "", 0, how{events: true}); err != nil {
		return err
	}
	for range c.runs {
		// Ours without events is a rebuild: it follows a life with events, and another one follows it.
		steps := []struct {
			name string
			side int
			as   how
		}{
			{rowRebuild, 0, how{rebuild: true}},
			{rowEvents, 1, how{events: true}},
			{rowEvents, 0, how{events: true}},
			{rowRebuild, 1, how{}},
		}
		for _, s := range steps {
			if err := c.once(ctx, s.name, s.side, s.as); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	if err := c.equal(ctx, ""); err != nil {
		return err
	}
	err := c.live(ctx)
	c.figures() // those that were taken
	return err
}

// once measures one run over the whole raw topic, from the start of the process until its end is committed.
func (c *comparison) once(ctx context.Context, name string, side int, as how) error {
	of := c.both()[side]
	if !as.rebuild {
		if err := of.forget(ctx); err != nil {
			return err
		}
	}
	broker, err := cpuOf(c.raw.w.kafka.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	p, err := of.launch(as)
	if err != nil {
		return err
	}
	if err := until(ctx, p, of.atEnd); err != nil {
		p.kill()
		return err
	}
	wall := time.Since(began)
	used, err1 := p.cpu()
	rss, err2 := p.status("VmHWM")
	after, err3 := cpuOf(c.raw.w.kafka.PID())
	if err := errors.Join(err1, err2, err3, p.stop()); err != nil {
		return err
	}
	c.note("%s, %s: %.2f s (%.1f s of processor time, the broker's %.1f), %d MB", contenders[side], name, wall.Seconds(), used.Seconds(), (after - broker).Seconds(), rss/1e6)
	if name == "" {
		return nil
	}
	c.took(name, side, wall.Seconds())
	c.took(name+": processor time", side, used.Seconds())
	c.took(name+": the broker's", side, (after - broker).Seconds())
	c.took(name+": peak memory", side, float64(rss)/1e6)
	return nil
}

var contenders = [2]string{"ours", "streams"}

// equal compares all rows of both.
func (c *comparison) equal(ctx context.Context, when string) error {
	rows, differ := 0, 0
	for _, entity := range comparedEntities {
		n, d, example, err := c.raw.out.compare(ctx, c.ours.topic(entity), c.theirs.topic(entity))
		if err != nil {
			return err
		}
		if d > 0 {
			c.note("%s: %d of %d differ, such as %s", entity, d, n, example)
		}
		rows, differ = rows+n, differ+d
	}
	c.add("rows of deals, bids, balances and assets"+when, "", float64(rows), 0, goal{})
	c.add("of them not the same in both"+when, "", float64(differ), 0, goal{})
	if differ > 0 {
		return fmt.Errorf("%d of %d rows differ", differ, rows)
	}
	return nil
}

// goalLogs is how many logs the goals are for.
const goalLogs = 2_000_000

// figures adds medians, with the least and the greatest.
func (c *comparison) figures() {
	for _, row := range []struct {
		name, unit string
		goal       goal
	}{
		{rowRebuild, "s", goal{most: 7}},
		{rowRebuild + ": processor time", "s", goal{}},
		{rowRebuild + ": the broker's", "s", goal{}},
		{rowRebuild + ": peak memory", "MB", goal{most: 600}},
		{rowEvents, "s", goal{most: 11}},
		{rowEvents + ": processor time", "s", goal{}},
		{rowEvents + ": the broker's", "s", goal{most: 5.3}},
		{rowEvents + ": peak memory", "MB", goal{most: 600}},
		{rowWiped + ": first row", "s", goal{most: 1}},
		{rowWiped + ": all partitions", "s", goal{most: 1.8}},
		{rowKilled + ": first row", "s", goal{}},
		{rowKilled + ": all partitions", "s", goal{}},
		{rowLatency + ", p50", "ms", goal{most: 8}},
		{rowLatency + ", p95", "ms", goal{most: 12}},
		{rowShort + ", p50", "ms", goal{}},
		{rowShort + ", p95", "ms", goal{}},
		{rowTip, "", goal{}},
	} {
		taken := c.all[row.name]
		if taken == nil || len(taken[1]) == 0 {
			continue // the run ended before
		}
		if c.Logs < goalLogs {
			row.goal = goal{}
		}
		c.addSpread(row.name, row.unit, taken[0], taken[1], row.goal)
	}
}

// processors are ours.
type processors struct {
	raw    *raw
	memory string
	ops    string // of the last start
}

func (p *processors) forget(ctx context.Context) error { return p.raw.forget(ctx) }

func (p *processors) launch(as how) (*process, error) {
	flags := []string{"--memory=" + p.memory}
	if as.rebuild {
		flags = append(flags, "--rebuild")
	}
	var started *process
	var err error
	started, p.ops, err = p.raw.launch(flags...)
	return started, err
}

func (p *processors) atEnd(ctx context.Context) error { return p.raw.atEnd(ctx, p.ops) }

func (p *processors) topic(entity string) string { return p.raw.catalogue().Ent(entity) }

func (p *processors) state() string { return p.raw.data }

// streamsApp is Kafka Streams.
type streamsApp struct {
	raw  *raw
	name string // of the application
	life int    // counts its names: a former one's offsets and transactions stay
	dir  string
}

func (s *streamsApp) id() string { return fmt.Sprintf("%s-%d", s.name, s.life) }

func (s *streamsApp) topic(entity string) string { return s.id() + ".ent." + entity }

func (s *streamsApp) state() string { return s.dir }

func (s *streamsApp) changelog() string { return s.id() + "-market-changelog" }

func (s *streamsApp) forget(ctx context.Context) error {
	if err := errors.Join(s.raw.out.remove(ctx, s.id()), os.RemoveAll(s.dir)); err != nil {
		return err
	}
	s.life++
	names := []string{s.changelog(), s.topic("event"), s.topic("final")}
	for _, e := range comparedEntities {
		names = append(names, s.topic(e))
	}
	return s.raw.out.create(ctx, s.raw.w.cfg.partitions, names...)
}

// heap is what Streams gets; with less it is slower.
const heap = "1536m"

func (s *streamsApp) launch(as how) (*process, error) {
	at, cfg := s.raw.w.chain.deployment, s.raw.w.cfg
	args := []string{
		"-Xms" + heap, "-Xmx" + heap, "-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", filepath.Join(cfg.repository, "bin/streams/classes") + ":" + filepath.Join(cfg.repository, "bin/streams/libs/*"), "com.lienstream.bench.App",
		"application.id=" + s.id(), "bootstrap.servers=" + s.raw.out.seed, "in=" + s.raw.catalogue().Raw(), "out=" + s.id() + ".ent.", "state.dir=" + s.dir,
		fmt.Sprintf("vault=0x%x", at.DealVault), fmt.Sprintf("registry=0x%x", at.AssetRegistry),
	}
	args = append(args, tuned...)
	if as.events {
		args = append(args, "events=yes")
	}
	if as.tip {
		args = append(args, "producer.linger.ms=0", "poll.ms=10")
	}
	if as.commit > 0 {
		args = append(args, fmt.Sprintf("commit.interval.ms=%d", as.commit.Milliseconds()))
	}
	return startCommand(cfg, s.name, "java", args...)
}

// tuned is what sweeps found best for Streams; of a setting that comes twice the last one counts.
var tuned = []string{
	"num.stream.threads=2", "commit.interval.ms=100", "statestore.cache.max.bytes=268435456", "enable.metrics.push=false",
	"producer.linger.ms=100", "producer.batch.size=1048576", "producer.buffer.memory=134217728", "producer.compression.type=lz4",
	"producer.retry.backoff.ms=1", "producer.max.request.size=8388608",
	"main.consumer.max.poll.records=5000", "main.consumer.max.partition.fetch.bytes=4194304", "main.consumer.fetch.max.bytes=67108864",
	"main.consumer.group.instance.id=one", "buffered.records.per.partition=5000", "topic.segment.index.bytes=262144",
	"restore.consumer.max.poll.records=50000", "restore.consumer.max.partition.fetch.bytes=8388608",
	"restore.consumer.fetch.max.bytes=67108864", "restore.consumer.receive.buffer.bytes=1048576",
}

func (s *streamsApp) atEnd(ctx context.Context) error {
	return s.raw.out.committed(ctx, s.id(), s.raw.catalogue().Raw())
}
