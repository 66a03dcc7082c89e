// Command bench measures the pipeline from outside: the built binary as processes on real servers, and
// beside each figure its reference of the same run. It must not reach into a stage.
//
//	market.go     a market's history as logs: the workload
//	chain.go      anvil with that history, which goes on as it is told
//	world.go      servers, and the pipeline on them; process.go: the binary as a process
//	reference.go  the bare client; bare.go: the bare handler
//	figures.go    what is measured, and the goals; load.go: 16 connections
//	payments.go   what a paid report takes, and what asking for its price does
//	sparse.go     a long chain of which few blocks have a log
//	agent.go      the agent API on the embedded chain
//	valuation.go  the valuation service on the embedded chain
//	notify.go     subscriptions to alerts
//	roles.go      the figures of several nodes; idle.go: processor time at the tip
//	memory.go     what the processors do with more or less memory
//	broker.go     what they ask of the broker, by compression
//	growth.go     how the processors grow with the number of deals; written.go: a raw topic without a chain
//	streams.go    the processors beside Kafka Streams; streams_live.go: at the tip; outside.go: what both are judged by
//	hostile.go    what one client can do to others
//	report.go     the table, and its JSON
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
)

const (
	embedded = "embedded"
	real     = "real"
)

type config struct {
	repository string
	binary     string
	dir        string // of everything that a run leaves
	json       string
	servers    []string
	only       []string
	logs       int
	partitions int
	runs       int
	seed       uint64
	memoryOf   memory.Budget // of the processors, where they are alone
	sizes      []uint64
}

// bench is a run.
type bench struct {
	config
	report
	chain *chain
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var (
		cfg                                  config
		servers, only, deals, bare, bareAddr string
	)
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&cfg.repository, "repository", ".", "root of the repository")
	flags.StringVar(&cfg.binary, "binary", "bin/lienstream", "lienstream binary to measure")
	flags.StringVar(&cfg.json, "json", "bin/bench.json", "file to write the figures to")
	flags.StringVar(&servers, "servers", "embedded,real", "servers to measure with, comma-separated: embedded (the embedded broker and Redis), real (Apache Kafka and redis-server)")
	flags.StringVar(&only, "only", "", "benchmarks to run, comma-separated: rebuild, latency, polling, reads, apart, hostile, idle, restart, sparse, proof, agent, valuation, notify, payments, roles; all by default; or one of memory, broker, streams and growth, which are taken by themselves")
	flags.IntVar(&cfg.logs, "logs", 200_000, "number of logs in the chain's history")
	flags.IntVar(&cfg.partitions, "partitions", 16, "number of partitions of the raw topic")
	flags.IntVar(&cfg.runs, "runs", 3, "runs of each benchmark; the median is reported")
	flags.Uint64Var(&cfg.seed, "seed", 1, "seed of the chain's history")
	cfg.memoryOf = 600e6
	flags.Var(&cfg.memoryOf, "memory", "memory that the processors get where only streams, broker or growth is taken")
	flags.StringVar(&deals, "deals", "100000,1000000,10000000", "numbers of deals, ascending, comma-separated (-only growth)")
	flags.StringVar(&bare, "bare", "", "serve the responses in this file with a bare HTTP handler, and measure nothing")
	flags.StringVar(&bareAddr, "bare-addr", "", "listen address of the bare handler")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if bare != "" {
		return serveBare(bare, bareAddr)
	}
	cfg.servers = strings.Split(servers, ",")
	if only != "" {
		cfg.only = strings.Split(only, ",")
	}
	for _, alone := range []string{"memory", "broker", "streams", "growth"} {
		if len(cfg.only) > 1 && slices.Contains(cfg.only, alone) {
			return fmt.Errorf("-only %s: %s is taken by itself", only, alone)
		}
	}
	for n := range strings.SplitSeq(deals, ",") {
		size, err := strconv.ParseUint(n, 10, 64)
		if err != nil || size < 1000 {
			return fmt.Errorf("-deals %s: %q is no number of at least 1000", deals, n)
		}
		cfg.sizes = append(cfg.sizes, size)
	}
	var err, err2, err3 error
	cfg.repository, err = filepath.Abs(cfg.repository)
	cfg.binary, err2 = filepath.Abs(cfg.binary)
	cfg.dir, err3 = os.MkdirTemp("", "lienstream-bench-")
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	b := &bench{config: cfg, report: report{Machine: machine(), Parts: cfg.partitions, progress: os.Stderr}}
	if err := b.run(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w (logs of the processes are in %s)", err, cfg.dir), b.table(os.Stdout)) // what was taken
	}
	if err := os.RemoveAll(cfg.dir); err != nil {
		return err
	}
	fmt.Println()
	if err := b.table(os.Stdout); err != nil {
		return err
	}
	if err := b.write(cfg.json); err != nil {
		return err
	}
	fmt.Printf("\nthe same as JSON: %s\n", cfg.json)
	return nil
}

func (b *bench) run(ctx context.Context) (err error) {
	if slices.Equal(b.only, []string{"growth"}) {
		return b.growth(ctx)
	}
	began := time.Now()
	if b.chain, err = newChain(ctx, b.config); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.chain.Close()) }()
	b.Logs, b.Blocks = b.chain.logs, b.chain.head
	b.note("%s logs in %s blocks on anvil, made in %.1f s", format(float64(b.Logs)), format(float64(b.Blocks)), time.Since(began).Seconds())
	switch { // what needs no whole pipeline
	case slices.Equal(b.only, []string{"streams"}):
		return b.streams(ctx)
	case slices.Equal(b.only, []string{"memory"}):
		return b.budgets(ctx)
	case slices.Equal(b.only, []string{"broker"}):
		return b.broker(ctx)
	}
	for _, kind := range b.servers {
		w, err := newWorld(ctx, b.config, b.chain, kind)
		if err != nil {
			return err
		}
		err = b.measure(ctx, w)
		w.close()
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

// measure takes all figures on one sort of servers.
func (b *bench) measure(ctx context.Context, w *world) error {
	p, err := b.backfill(ctx, w)
	if err != nil {
		return err
	}
	defer func() { p.kill() }()
	steps := []struct {
		name string
		take func() error
	}{
		{"rebuild", func() error { return b.rebuild(ctx, w, p) }},
		{"reads", func() error { return b.reads(ctx, w, p) }},
		{"latency", func() error { return b.latency(ctx, w, p, "WS", 200, 10, 20) }},
		{"idle", func() error { return b.idle(ctx, w, p) }},
		{"restart", func() error { return b.restart(ctx, w, p) }},
		{"hostile", func() error { return b.hostile(ctx, w, p) }},
		{"polling", func() error {
			if err := p.stop(); err != nil {
				return err
			}
			if err := p.start(b.chain.flags(true)...); err != nil {
				return err
			}
			if _, err := p.ready(ctx); err != nil {
				return err
			}
			return b.latency(ctx, w, p, "polling", 100, 0, 150)
		}},
		{"sparse", func() error {
			if err := p.stop(); err != nil {
				return err
			}
			return b.sparse(ctx, w)
		}},
		{"proof", func() error {
			if err := p.stop(); err != nil {
				return err
			}
			return b.proof(ctx, w)
		}},
		{"agent", func() error {
			if err := p.stop(); err != nil {
				return err
			}
			return b.agent(ctx, w)
		}},
		{"valuation", func() error {
			if err := p.stop(); err != nil {
				return err
			}
			return b.valuation(ctx, w)
		}},
		{"notify", func() error {
			if err := p.stop(); err != nil {
				return err
			}
			return b.notify(ctx, w)
		}},
		{"payments", func() error {
			if err := p.stop(); err != nil {
				return err
			}
			return b.payments(ctx, w)
		}},
		{"apart", func() error {
			if err := p.stop(); err != nil {
				return err
			}
			return b.apart(ctx, w)
		}},
		{"roles", func() error {
			if err := p.stop(); err != nil {
				return err
			}
			return b.roles(ctx, w)
		}},
	}
	for _, s := range steps {
		if len(b.only) > 0 && !slices.Contains(b.only, s.name) {
			continue
		}
		// An embedded broker does not outlive its process, and with it the state goes.
		if w.kind == embedded && slices.Contains([]string{"restart", "idle", "apart", "roles"}, s.name) {
			continue
		}
		if w.kind == real && s.name == "valuation" { // its chain is the embedded one, and nothing else counts
			continue
		}
		if err := s.take(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (b *bench) note(format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }

func machine() string {
	return fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
