// Lienstream is the stream-processing pipeline behind a marketplace of collateralized deals: one binary,
// its roles as subcommands. This file wires them and holds no logic of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/peterbourgon/ff/v4"
	"github.com/peterbourgon/ff/v4/ffhelp"
	"github.com/peterbourgon/ff/v4/ffyaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/schollz/progressbar/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/processors"
	"github.com/lienstream/lienstream/processors/changes"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/hotcache"
	"github.com/lienstream/lienstream/processors/memory"
	"github.com/lienstream/lienstream/processors/query"
	"github.com/lienstream/lienstream/processors/status"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/serving/indexer"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/kafka"
)

// stopTimeout is how long a stop may take in all. Ctrl-C must end within 5 s.
const stopTimeout = 4500 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "lienstream:", err)
		os.Exit(1)
	}
}

// roles are the subcommands that run for ever, and what each is made of.
var roles = []struct {
	name, help string
	run        func(context.Context, *program) error
}{
	{"up", "every role in one process, with an embedded chain, Kafka and Redis where no flag names one", up},
	{"chain", "the embedded chain alone; its deployment is written to --deployment", chainRole},
	{"ingest", "chain → raw topic", ingestRole},
	{"processors", "raw topic → state, entity and event topics, Redis", processorsRole},
	{"serving", "state → HTTP", servingRole},
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var opt options
	root := ff.NewFlagSet("lienstream")
	if err := root.AddStruct(&opt); err != nil {
		return err
	}
	command := &ff.Command{Name: "lienstream", Usage: "lienstream <command> [flags]", Flags: root, Exec: unknown}
	for _, role := range roles {
		command.Subcommands = append(command.Subcommands, &ff.Command{
			Name: role.name, Usage: "lienstream " + role.name + " [flags]", ShortHelp: role.help,
			Flags: ff.NewFlagSet(role.name).SetParent(root),
			Exec: func(ctx context.Context, args []string) error {
				if len(args) > 0 {
					return fmt.Errorf("%s takes no argument %q", role.name, args[0])
				}
				return runRole(ctx, &opt, stdout, stderr, role.name, role.run)
			},
		})
	}
	command.Subcommands = append(command.Subcommands, topicsCommand(root, &opt, stdout), &ff.Command{
		Name: "status", Usage: "lienstream status [flags]", ShortHelp: "how far the ingester is, and who holds each partition",
		Flags: ff.NewFlagSet("status").SetParent(root),
		Exec: func(ctx context.Context, _ []string) error {
			p := &program{options: opt, log: zap.NewNop()}
			return status.Print(ctx, p.kafka(), p.catalogue(), stdout)
		},
	})
	err := command.ParseAndRun(ctx, args,
		ff.WithEnvVarPrefix("LIENSTREAM"), ff.WithConfigFileFlag("config"), ff.WithConfigFileParser(ffyaml.Parse))
	if errors.Is(err, ff.ErrHelp) {
		fmt.Fprintf(stderr, "\n%s\n", ffhelp.Command(command))
		return nil
	}
	return err
}

// unknown is what a command does that only has subcommands.
func unknown(_ context.Context, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("there is no command %q; see lienstream --help", args[0])
	}
	return ff.ErrHelp
}

// program is what the roles share. What they open is closed in reverse, after the last has ended.
type program struct {
	options
	out     io.Writer
	log     *zap.Logger
	reg     *prometheus.Registry
	embeds  []string // what is embedded, for the banner
	checks  []httpapi.Check
	closers []func() error
	router  *query.Router // see startRouter
}

func runRole(ctx context.Context, opt *options, stdout, stderr io.Writer, name string, role func(context.Context, *program) error) error {
	if opt.LogLevel == "auto" {
		opt.LogLevel = "info"
		if name == "up" && terminal(stdout) {
			opt.LogLevel = "warn" // a person reads the banner and the bar
		}
	}
	log, err := newLogger(opt.LogLevel, opt.LogFormat, stderr)
	if err != nil {
		return err
	}
	p := &program{options: *opt, out: stdout, log: log, reg: prometheus.NewRegistry()}
	if p.Instance == "" {
		p.Instance, _ = os.Hostname() // the engine names what is missing
	}
	go memory.Bound(ctx, p.memory(name))
	p.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := p.check(name); err != nil || p.Check {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := role(ctx, p)
		for _, closer := range slices.Backward(p.closers) {
			err = errors.Join(err, closer())
		}
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(stopTimeout):
			return fmt.Errorf("not stopped within %s", stopTimeout)
		}
	}
	_ = log.Sync() // a terminal cannot be synced
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil //nolint:nilerr // it ended because it was told to
	}
	return err
}

func newLogger(level, format string, w io.Writer) (*zap.Logger, error) {
	at, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log-level: %w", err)
	}
	if !slices.Contains([]string{"auto", "json", "console"}, format) {
		return nil, fmt.Errorf("log-format: %q is none of json, console, auto", format)
	}
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	if format == "console" || format == "auto" && terminal(w) {
		c := zap.NewDevelopmentEncoderConfig()
		c.EncodeTime = zapcore.TimeEncoderOfLayout(time.TimeOnly)
		encoder = zapcore.NewConsoleEncoder(c)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), at)
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 20, 1000)), nil
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func (p *program) kafka() kafka.Config {
	return kafka.Config{
		Brokers: split(p.Kafka), Prefix: p.KafkaPrefix, Compression: p.KafkaCompression,
		ReplicationFactor: int16(min(p.KafkaReplication, math.MaxInt16)),
		TLS: kafka.TLS{
			Enabled: p.KafkaTLS, CAFile: p.KafkaTLSCA, CertFile: p.KafkaTLSCert, KeyFile: p.KafkaTLSKey,
		},
		SASL:   kafka.SASL{Mechanism: p.KafkaSASL, User: p.KafkaUser, PasswordFile: p.KafkaPasswordFile},
		Logger: p.log,
	}
}

func (p *program) catalogue() topics.Catalogue {
	return topics.Catalogue{Prefix: p.KafkaPrefix, ChainID: p.ChainID, Partitions: int32(min(p.KafkaPartitions, math.MaxInt32))}
}

func (p *program) deploymentFile() string {
	if p.Deployment != "" {
		return p.Deployment
	}
	return filepath.Join("contracts", "deployments", fmt.Sprintf("%d.json", p.ChainID))
}

func (p *program) deployment() (contracts.Deployment, error) {
	d, err := contracts.LoadDeployment(p.deploymentFile())
	if err == nil && d.ChainID != p.ChainID {
		err = fmt.Errorf("%s: chainId is %d, --chain-id is %d", p.deploymentFile(), d.ChainID, p.ChainID)
	}
	return d, err
}

func (p *program) hotcache() hotcache.Config {
	c := hotcache.DefaultConfig()
	c.URL, c.ChainID, c.Prefix, c.Partitions = p.Redis, p.ChainID, p.KafkaPrefix, p.catalogue().Partitions
	return c
}

func (p *program) indexer() (indexer.Config, error) {
	c := indexer.DefaultConfig()
	c.HTTP.Listen, c.ChainID, c.MaxLagBlocks, c.MaxHeadAge, c.MaxBlockAge = p.IndexerAddr, p.ChainID, p.MaxLagBlocks, p.MaxHeadAge, p.MaxHeadAge
	c.HTTP.DrainTimeout = 2 * time.Second
	if p.CursorSecretFile != "" {
		secret, err := os.ReadFile(p.CursorSecretFile)
		if err != nil {
			return c, fmt.Errorf("cursor-secret-file: %w", err)
		}
		c.HTTP.CursorSecret = strings.TrimSpace(string(secret))
	}
	return c, nil
}

// check validates what the flags name, and what the role cannot do without, and reports every fault at once.
func (p *program) check(role string) error {
	var errs []error
	if role != "up" || p.Kafka != "" {
		errs = append(errs, p.kafka().Validate())
	}
	if role == "ingest" || p.RPC != "" {
		dep, err := p.deployment()
		errs = append(errs, err)
		if err == nil && errors.Join(errs...) == nil && p.Kafka != "" {
			errs = append(errs, p.ingest(dep).WithDefaults().Validate())
		}
	}
	if p.Redis != "" {
		errs = append(errs, p.hotcache().Validate())
	}
	serve, err := p.indexer()
	return errors.Join(append(errs, err, serve.Validate())...)
}

func (p *program) ingest(dep contracts.Deployment) ingest.Config {
	c := ingest.Config{Deployment: dep, Kafka: p.kafka(), Partitions: p.catalogue().Partitions, Standby: p.IngestStandby, Rewind: p.Rewind}
	c.RPC.Confirm, c.RPC.Timeout = p.RPCConfirm, p.RPCTimeout
	for _, url := range split(p.RPC) {
		c.RPC.Endpoints = append(c.RPC.Endpoints, rpc.Endpoint{URL: url})
	}
	return c
}

// startIngest runs an ingester in g.
func (p *program) startIngest(ctx context.Context, g *errgroup.Group) (*ingest.Ingester, error) {
	dep, err := p.deployment()
	if err != nil {
		return nil, err
	}
	in, err := ingest.New(p.ingest(dep), p.reg, p.log)
	if err != nil {
		return nil, err
	}
	p.ready("ingest", func(context.Context) error { return in.Ready() })
	g.Go(func() error { return in.Run(ctx) })
	return in, nil
}

// holder is the node of this process as its read API sees it: what it holds, and what changed lately.
type holder struct {
	*engine.Node
	*changes.Log
}

// startProcessors runs the tasks in g and, where Redis is named, the writers of the hot cache.
func (p *program) startProcessors(ctx context.Context, g *errgroup.Group) (*holder, error) {
	dep, err := p.deployment()
	if err != nil {
		return nil, err
	}
	late := holder{Log: changes.New()} // the writer reads from the node that it observes
	observers := []engine.Observer{late.Log}
	if p.Redis != "" {
		writer, err := hotcache.NewWriter(p.hotcache(), &late, p.reg, p.log)
		if err != nil {
			return nil, err
		}
		observers = append(observers, writer)
		g.Go(func() error { return writer.Run(ctx) })
	}
	late.Node, err = engine.New(engine.Config{
		Kafka: p.kafka(), Catalogue: p.catalogue(), Instance: p.Instance, Addr: p.Advertise,
		Dir: filepath.Join(p.DataDir, "state"), Standbys: p.Standbys, Rebuild: p.Rebuild, SessionTimeout: p.SessionTimeout,
		Registerer: p.reg, Logger: p.log,
	}, processors.New(contracts.NewDecoder(dep), p.reg, p.log), observers...)
	if err != nil {
		return nil, err
	}
	if p.Redis != "" {
		if err := p.startPoolWriter(ctx, g, &late); err != nil {
			return nil, err
		}
	}
	p.ready("processors", func(context.Context) error { return late.Ready(p.MaxHeadAge) })
	g.Go(func() error { return late.Run(ctx) })
	api := httpapi.DefaultConfig(p.QueryAddr)
	server := httpapi.NewServer(api, query.NewHandler(&late, p.log), p.log.Named("query"))
	g.Go(func() error { return server.Run(ctx) })
	return &late, nil
}

// startPoolWriter runs the writer of what spans the partitions of all nodes.
func (p *program) startPoolWriter(ctx context.Context, g *errgroup.Group, local *holder) error {
	router, err := p.startRouter(ctx, g, local)
	if err != nil {
		return err
	}
	writer, err := hotcache.NewPoolWriter(p.hotcache(), router, local, p.reg, p.log)
	if err != nil {
		return err
	}
	g.Go(func() error { return writer.Run(ctx) })
	return nil
}

// startRouter runs the router in g, one for all roles; local is the node of this process, or nil.
func (p *program) startRouter(ctx context.Context, g *errgroup.Group, local *holder) (*query.Router, error) {
	if p.router != nil {
		return p.router, nil
	}
	dep, err := p.deployment()
	if err != nil {
		return nil, err
	}
	cfg := query.Config{Partitions: p.catalogue().Partitions, Deployment: dep, Registerer: p.reg, Logger: p.log}
	cfg.Owners = func() (query.Feed, error) {
		return kafka.NewReader(p.kafka(), p.catalogue().OwnersTopic(), 0, 0, kafka.ReaderOptions{})
	}
	if local != nil {
		cfg.Local, cfg.Instance = local, p.Instance
	}
	router, err := query.NewRouter(cfg)
	if err != nil {
		return nil, err
	}
	p.router = router
	g.Go(func() error { return router.Run(ctx) })
	return router, nil
}

// startServing runs the router and the services in g; local is the node of this process, or nil.
func (p *program) startServing(ctx context.Context, g *errgroup.Group, local *holder) (*indexer.Indexer, error) {
	router, err := p.startRouter(ctx, g, local)
	if err != nil {
		return nil, err
	}
	var reader query.Reader = router
	if p.Redis != "" {
		cache, err := hotcache.NewReader(p.hotcache(), p.reg, p.log)
		if err != nil {
			return nil, err
		}
		g.Go(func() error { return cache.Run(ctx) })
		reader = hotcache.NewOver(router, cache)
	}
	serve, err := p.indexer()
	if err != nil {
		return nil, err
	}
	service, err := indexer.New(serve, reader, p.log, p.reg)
	if err != nil {
		return nil, err
	}
	p.ready("indexer", service.Ready)
	g.Go(func() error { return service.Run(ctx) })
	return service, nil
}

func (p *program) ready(name string, check func(context.Context) error) {
	p.checks = append(p.checks, httpapi.Check{Name: name, Run: check})
}

// startOps serves metrics and health of whatever runs here.
func (p *program) startOps(ctx context.Context, g *errgroup.Group) {
	server := httpapi.NewServer(httpapi.DefaultConfig(p.Ops), httpapi.NewOps(p.reg, p.checks...), p.log.Named("ops"))
	g.Go(func() error { return server.Run(ctx) })
}

func ingestRole(ctx context.Context, p *program) error {
	if err := kafka.CheckCatalogue(ctx, p.kafka(), p.catalogue()); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if _, err := p.startIngest(ctx, g); err != nil {
		return err
	}
	p.startOps(ctx, g)
	return g.Wait()
}

func processorsRole(ctx context.Context, p *program) error {
	if err := kafka.CheckCatalogue(ctx, p.kafka(), p.catalogue()); err != nil {
		return err
	}
	if p.Advertise == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("advertise: %w", err)
		}
		_, port, err := net.SplitHostPort(p.QueryAddr)
		if err != nil {
			return fmt.Errorf("query-addr: %w", err)
		}
		p.Advertise = net.JoinHostPort(host, port)
	}
	g, ctx := errgroup.WithContext(ctx)
	if _, err := p.startProcessors(ctx, g); err != nil {
		return err
	}
	p.startOps(ctx, g)
	return g.Wait()
}

func servingRole(ctx context.Context, p *program) error {
	g, ctx := errgroup.WithContext(ctx)
	if _, err := p.startServing(ctx, g, nil); err != nil {
		return err
	}
	p.startOps(ctx, g)
	return g.Wait()
}

func chainRole(ctx context.Context, p *program) error {
	g, ctx := errgroup.WithContext(ctx)
	if err := p.startChain(ctx, g, p.deploymentFile()); err != nil {
		return err
	}
	p.startOps(ctx, g)
	return g.Wait()
}

// memory is how far the heap of a command may grow before the collector gives up speed for space, all roles
// together below 300 MB of memory. An embedded broker keeps its log there, and is not bounded.
func (p *program) memory(command string) uint64 {
	switch {
	case command == "ingest":
		return 48 << 20
	case command == "serving":
		return 32 << 20
	case command == "processors":
		return 100 << 20
	case p.Kafka != "":
		return 210 << 20
	}
	return 0
}

// startChain brings the embedded chain up, deploys the market and lets the scenario run in g.
func (p *program) startChain(ctx context.Context, g *errgroup.Group, file string) error {
	host, port, err := net.SplitHostPort(p.ChainAddr)
	if err != nil {
		return fmt.Errorf("chain-addr: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("chain-addr: port %q: %w", port, err)
	}
	if err := os.MkdirAll(p.DataDir, 0o750); err != nil {
		return err
	}
	chain, err := devchain.New(devchain.Config{ChainID: p.ChainID, Host: host, Port: int(number), Seed: p.Seed, Scratch: p.DataDir})
	if err != nil {
		return err
	}
	p.closers = append(p.closers, chain.Close)
	market, err := devchain.Deploy(ctx, chain, devchain.MarketConfig{Seed: p.Seed})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(market.Deployment.Write(f), f.Close()); err != nil {
		return err
	}
	scenario, err := devchain.NewScenario(market, devchain.ScenarioConfig{
		Seed: p.Seed, Rate: float64(time.Second) / float64(p.BlockTime), Reorgs: p.Reorgs, Logger: p.log, Registerer: p.reg,
	})
	if err != nil {
		return err
	}
	g.Go(func() error { return scenario.Run(ctx) })
	p.RPC = chain.WS() + "," + chain.HTTP()
	p.embeds = append(p.embeds, "an EVM chain with the market on it, "+chain.HTTP())
	return nil
}

// up runs every role in this process, and an embedded default for each server that no flag names.
func up(ctx context.Context, p *program) error {
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	history, err := p.startServers(ctx, g)
	if err != nil {
		return err
	}
	if err := kafka.ApplyCatalogue(ctx, p.kafka(), p.catalogue(), io.Discard); err != nil {
		return err
	}
	in, err := p.startIngest(ctx, g)
	if err != nil {
		return err
	}
	node, err := p.startProcessors(ctx, g)
	if err != nil {
		return err
	}
	service, err := p.startServing(ctx, g, node)
	if err != nil {
		return err
	}
	p.startOps(ctx, g)
	p.banner(history)
	g.Go(func() error { return p.progress(ctx, in, service, began) })
	err = g.Wait()
	fmt.Fprintln(p.out, "stopping")
	return err
}

// startServers sees to a chain, Kafka and Redis, and says whether the run goes on or starts over.
func (p *program) startServers(ctx context.Context, g *errgroup.Group) (history string, err error) {
	// The state that follows an embedded server that forgot everything must be forgotten with it.
	forget := func() error { return os.RemoveAll(filepath.Join(p.DataDir, "state")) }
	kafkaDir := filepath.Join(p.DataDir, "kafka")
	history = "goes on with the state in " + p.DataDir
	if p.RPC == "" {
		p.Deployment = filepath.Join(p.DataDir, "deployment.json")
		if err := p.startChain(ctx, g, p.Deployment); err != nil {
			return "", err
		}
		history, kafkaDir = "starts over: the embedded chain lives in memory", ""
		if err := forget(); err != nil {
			return "", err
		}
		if p.Kafka != "" { // brokers remember the embedded chain of an earlier run
			p.KafkaPrefix = fmt.Sprintf("%s-%d", p.KafkaPrefix, time.Now().Unix())
		}
	}
	if p.Kafka == "" {
		b, err := broker.Open(broker.Config{Dir: kafkaDir})
		if err != nil {
			return "", err
		}
		p.closers = append(p.closers, b.Close)
		p.Kafka = strings.Join(b.Addrs(), ",")
		p.embeds = append(p.embeds, "a Kafka broker, "+p.Kafka)
		if b.Fresh() && kafkaDir != "" {
			history = "starts over: the embedded broker has no log in " + kafkaDir + " that was closed cleanly"
			if err := forget(); err != nil {
				return "", err
			}
		}
	}
	if p.Redis == "" {
		url, closer, err := hotcache.Embedded()
		if err != nil {
			return "", err
		}
		p.closers = append(p.closers, func() error { closer(); return nil })
		p.Redis = url
		p.embeds = append(p.embeds, "Redis, "+url)
	}
	return history, nil
}

func (p *program) banner(history string) {
	base := "http://localhost" + p.IndexerAddr[strings.LastIndex(p.IndexerAddr, ":"):]
	fmt.Fprintf(p.out, "\nLienstream %s\n", history)
	for _, e := range p.embeds {
		fmt.Fprintln(p.out, "  embedded:", e)
	}
	fmt.Fprintf(p.out, "  metrics:  http://localhost%s/metrics\n\n", p.Ops[strings.LastIndex(p.Ops, ":"):])
	for _, path := range []string{"/health/indexer", "/listings?sort=cost&limit=2", "/deals/1"} {
		fmt.Fprintf(p.out, "  curl '%s%s'\n", base, path)
	}
	fmt.Fprintln(p.out)
}

// progress shows the backfill until the indexer is ready: a bar on a terminal, lines elsewhere.
func (p *program) progress(ctx context.Context, in *ingest.Ingester, service *indexer.Indexer, began time.Time) error {
	bar := progressbar.DefaultSilent(1000)
	if terminal(p.out) {
		bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription("backfill"),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(40))
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for said := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		status := in.Status()
		if service.Ready(ctx) == nil {
			_ = bar.Finish() // it is drawn on a terminal that may be gone
			fmt.Fprintf(p.out, "ready after %s, as of block %d\n", time.Since(began).Round(10*time.Millisecond), status.Published.Number)
			return nil
		}
		_ = bar.Set(int(status.Progress() * 999))
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			p.log.Info("backfill", zap.Uint64("block", status.Verified), zap.Uint64("head", status.Head), zap.Uint64("records", status.Records))
		}
	}
}

// topicsCommand is `lienstream topics apply|check|tail`.
func topicsCommand(root *ff.FlagSet, opt *options, out io.Writer) *ff.Command {
	command := &ff.Command{Name: "topics", Usage: "lienstream topics apply|check|tail [flags]", ShortHelp: "what the catalogue says, and what the brokers have", Exec: unknown}
	add := func(name, help string, flags *ff.FlagSet, exec func(context.Context, *program, []string) error) {
		command.Subcommands = append(command.Subcommands, &ff.Command{
			Name: name, Usage: "lienstream topics " + name, ShortHelp: help, Flags: flags.SetParent(root),
			Exec: func(ctx context.Context, args []string) error {
				return exec(ctx, &program{options: *opt, out: out, log: zap.NewNop()}, args)
			},
		})
	}
	add("apply", "create what is missing, and report what differs", ff.NewFlagSet("apply"), func(ctx context.Context, p *program, _ []string) error {
		return kafka.ApplyCatalogue(ctx, p.kafka(), p.catalogue(), p.out)
	})
	add("check", "report what differs", ff.NewFlagSet("check"), func(ctx context.Context, p *program, _ []string) error {
		return kafka.CheckCatalogue(ctx, p.kafka(), p.catalogue())
	})
	flags := ff.NewFlagSet("tail")
	from := flags.IntLong("from", -10, "first offset of each partition; negative: that many records before its end")
	limit := flags.IntLong("limit", 0, "records to print; 0: no limit")
	follow := flags.BoolLong("follow", "wait for more at the end")
	add("tail", "print the records of a topic, decoded, a JSON object a line: tail ent.deal", flags, func(ctx context.Context, p *program, args []string) error {
		if len(args) != 1 {
			return errors.New("topics tail takes one topic, such as ent.deal or raw.logs")
		}
		return kafka.Tail(ctx, p.kafka(), p.catalogue(), kafka.TailOptions{Topic: args[0], From: int64(*from), Limit: *limit, Follow: *follow}, p.out)
	})
	return command
}

// options are all flags of all roles. A flag --kafka-prefix is also the variable LIENSTREAM_KAFKA_PREFIX
// and the line kafka-prefix of the YAML file.
type options struct {
	Config    string `ff:"long=config, usage='YAML file of these flags'"`
	Check     bool   `ff:"long=check, nodefault, usage='validate the configuration and exit'"`
	LogLevel  string `ff:"long=log-level, default=auto, usage='debug, info, warn, error or auto: info, and warn for up on a terminal'"`
	LogFormat string `ff:"long=log-format, default=auto, usage='json, console or auto: console on a terminal'"`
	Ops       string `ff:"long=ops-addr, default=:9464, usage='where /metrics, /healthz and /readyz are served'"`
	ChainID   uint64 `ff:"long=chain-id, default=4663, usage='chain ID'"`
	DataDir   string `ff:"long=data-dir, default=data, usage='where state is kept'"`

	IngestStandby bool `ff:"long=ingest-standby, nodefault, usage='wait while another ingester is active, and take over from it'"`

	Rewind bool `ff:"long=rewind, nodefault, usage='take back what was final, where the chain contradicts it; the processors need --rebuild then'"`

	Deployment string        `ff:"long=deployment, usage='deployment file; contracts/deployments/<chain ID>.json by default'"`
	RPC        string        `ff:"long=rpc, usage='JSON-RPC endpoints of the chain, http or ws, comma-separated'"`
	RPCConfirm int           `ff:"long=rpc-confirm, default=1, usage='answers that must agree on the logs of a range, of different endpoints where there are several'"`
	RPCTimeout time.Duration `ff:"long=rpc-timeout, default=10s, usage='time that an endpoint has for an answer'"`

	Kafka             string `ff:"long=kafka, usage='Kafka brokers, host:port, comma-separated'"`
	KafkaPrefix       string `ff:"long=kafka-prefix, default=lienstream, usage='first part of the names of topics'"`
	KafkaPartitions   int    `ff:"long=kafka-partitions, default=16, usage='partitions of the raw topic, fixed for good'"`
	KafkaReplication  int    `ff:"long=kafka-replication, default=1, usage='replication factor of topics that are created'"`
	KafkaCompression  string `ff:"long=kafka-compression, default=snappy, usage='none, lz4, zstd, snappy or gzip'"`
	KafkaTLS          bool   `ff:"long=kafka-tls, nodefault, usage='encrypt connections to Kafka'"`
	KafkaTLSCA        string `ff:"long=kafka-tls-ca, usage='file of trusted certificates, the system ones by default'"`
	KafkaTLSCert      string `ff:"long=kafka-tls-cert, usage='file of the client certificate'"`
	KafkaTLSKey       string `ff:"long=kafka-tls-key, usage='file of the client key'"`
	KafkaSASL         string `ff:"long=kafka-sasl, usage='plain, scram-sha-256 or scram-sha-512'"`
	KafkaUser         string `ff:"long=kafka-user, usage='SASL user'"`
	KafkaPasswordFile string `ff:"long=kafka-password-file, usage='file of the SASL password'"`

	Redis string `ff:"long=redis, usage='URL of Redis, redis:// or rediss://'"`

	Instance       string        `ff:"long=instance, usage='name of this node among the processors; the host name by default'"`
	QueryAddr      string        `ff:"long=query-addr, default=:42070, usage='where processors serve their read API'"`
	Advertise      string        `ff:"long=advertise, usage='host:port at which other nodes reach query-addr'"`
	Standbys       int           `ff:"long=standbys, default=1, usage='nodes besides the owner that follow a partition'"`
	SessionTimeout time.Duration `ff:"long=session-timeout, default=10s, usage='silence after which the partitions of a node go to others'"`
	Rebuild        bool          `ff:"long=rebuild, nodefault, usage='drop the state and process the raw topic from its start'"`

	IndexerAddr      string        `ff:"long=indexer-addr, default=:42069, usage='where the indexer is served'"`
	CursorSecretFile string        `ff:"long=cursor-secret-file, usage='file of the secret that authenticates cursors, alike on all nodes'"`
	MaxLagBlocks     uint64        `ff:"long=max-lag-blocks, default=300, usage='blocks behind the head from which the indexer is not healthy'"`
	MaxHeadAge       time.Duration `ff:"long=max-head-age, default=30s, usage='age of the head from which the indexer is not healthy'"`

	ChainAddr string        `ff:"long=chain-addr, default=127.0.0.1:8545, usage='where the embedded chain serves JSON-RPC'"`
	Seed      uint64        `ff:"long=seed, default=1, usage='seed of the embedded chain'"`
	BlockTime time.Duration `ff:"long=block-time, default=500ms, usage='time between blocks of the embedded chain'"`
	Reorgs    bool          `ff:"long=reorgs, nodefault, usage='let the embedded chain reorganise now and then'"`
}
