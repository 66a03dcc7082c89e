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
			ours:   &processors{raw: raw, memory: b.memoryOf.String()},
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
	// prefix is how the names of its topics begin.
	prefix() string
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

	// Of the topics that rowEvents leaves, but the raw one: both kinds of events, rows and changelogs.
	rowRecords    = rowEvents + ": records per log, markers too"
	rowBytes      = rowEvents + ": written to the broker per log"
	rowBatch      = rowEvents + ": of a batch"
	rowCompressed = rowEvents + ": compressed to the part"
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
	logs := float64(c.Logs)
	c.took(name+": the broker's per log", side, (after-broker).Seconds()*1e6/logs)
	if as.events && len(c.all[name][side]) == 1 { // each time they write the same
		v, err := c.raw.out.volume(ctx, of.prefix(), c.raw.catalogue().Raw())
		if err != nil {
			return err
		}
		c.took(rowRecords, side, v.records/logs)
		c.took(rowBytes, side, v.size/logs)
		c.took(rowBatch, side, v.size/v.batches)
		c.took(rowCompressed, side, v.size/v.uncompressed)
	}
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

// What the comparison as a whole is to show: twice as good at every job, in a third of the memory.
const (
	twice = 0.5
	third = 1.0 / 3
)

// figures adds medians, with the least and the greatest. A goal in seconds is of the machine on which Streams took what its
// share divides by.
func (c *comparison) figures() {
	for _, row := range []struct {
		name, unit         string
		most, share, title float64
	}{
		{rowRebuild, "s", 7, 7 / 14.8, twice},
		{rowRebuild + ": processor time", "s", 0, 0, 0},
		{rowRebuild + ": the broker's", "s", 0, 0, 0},
		{rowRebuild + ": peak memory", "MB", 600, third, third},
		{rowRebuild + ": the broker's per log", "µs", 0, 0, 0},
		{rowEvents, "s", 11, 11 / 22.2, twice},
		{rowEvents + ": processor time", "s", 0, 0, 0},
		{rowEvents + ": the broker's", "s", 5.3, 1, 0},
		{rowEvents + ": peak memory", "MB", 600, third, third},
		{rowEvents + ": the broker's per log", "µs", 0, 0, 0},
		{rowRecords, "", 0, 0, 0},
		{rowBytes, "bytes", 0, 0, 0},
		{rowBatch, "bytes", 0, 0, 0},
		{rowCompressed, "", 0, 0, 0},
		{rowWiped + ": first row", "s", 1, 1 / 2.1, twice},
		{rowWiped + ": all partitions", "s", 1.8, 1.8 / 3.7, twice},
		{rowKilled + ": first row", "s", 0, 0, twice},
		{rowKilled + ": all partitions", "s", 0, 0, twice},
		{rowLatency + ", p50", "ms", 8, 8.0 / 83, twice},
		{rowLatency + ", p95", "ms", 12, 12.0 / 143, twice},
		{rowShort + ", p50", "ms", 0, 0, twice},
		{rowShort + ", p95", "ms", 0, 0, twice},
		{rowTip, "", 0, 0, 0},
	} {
		taken := c.all[row.name]
		if taken == nil || len(taken[1]) == 0 {
			continue // the run ended before
		}
		g := goal{title: row.title}
		if c.Logs >= goalLogs {
			g.most, g.share = row.most, row.share
		}
		c.addSpread(row.name, row.unit, taken[0], taken[1], g)
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

func (p *processors) prefix() string { return p.raw.catalogue().Prefix + "." }

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

func (s *streamsApp) prefix() string { return s.id() }

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
