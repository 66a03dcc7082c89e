package roles

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/hotcache"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/processors/notifier/mailsink"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics/kafka"
)

// stopTimeout is the total time of a stop after the drain delay. Ctrl-C must end the process within 5 s.
const stopTimeout = 4500 * time.Millisecond

// Process is one run of a role: its configuration and what its parts share.
type Process struct {
	Environment
	*Settings
	Servers Servers
	flags   *Flags
	Log     *zap.Logger
	Reg     *prometheus.Registry
	Group   *errgroup.Group // everything that runs; the first error ends the process

	up      bool              // all roles are in this process
	beside  map[string]string // see Beside
	checks  []httpapi.Check
	closers []func() error // called in reverse order after the group has ended
	node    *processorNode // the processors' node in this process, or nil
	sink    *mailsink.Sink // nil: alerts are sent by real email

	topicBytes int64 // retention of a partition that is not compacted; 0: unlimited

	applications map[string]read.Source // command applications in this process, see Application

	client *query.Client // see MarketClient
	reader query.Reader  // see Market
	asks   *chain.Client // see Chain
}

// run checks a role's configuration and runs it until ctx is done.
func (g *program) run(ctx context.Context, env Environment, r Role) error {
	var parts []defaulter
	if d, ok := r.(defaulter); ok {
		parts = append(parts, d)
	}
	p := g.process(env, parts...)
	log, err := newLogger(p.level(), p.logFormat, env.Stderr)
	if err != nil {
		return err
	}
	p.Log, p.Reg = log, prometheus.NewRegistry()
	p.Reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := distinct(errors.Join(r.Check(p), p.checkMemory(r))); err != nil || p.check {
		return err
	}
	if !env.Shared {
		go memory.Bound(ctx, r.Memory(p))
	}
	var running context.Context
	p.Group, running = errgroup.WithContext(ctx)
	done := make(chan error, 1)
	go func() { done <- p.start(running, r) }()
	select {
	case err = <-done:
	case <-running.Done(): // told to stop, or something has failed
		select {
		case err = <-done:
		case <-time.After(p.drainDelay + stopTimeout):
			err = fmt.Errorf("still running %s after the stop signal", p.drainDelay+stopTimeout)
			if ctx.Err() == nil {
				err = fmt.Errorf("%w\nstill running %s after that", context.Cause(running), p.drainDelay+stopTimeout)
			}
			return err
		}
	}
	_ = log.Sync() // a terminal cannot be synced
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to stop
	}
	return err
}

// Heaps of the roles that have few logs in memory at a time, and what a process takes beside its heap.
const (
	ingestHeap  = 48 << 20
	servingHeap = 32 << 20
	servingRoom = 96 << 20 // where nothing says how much there is: in less, a fifth of the time of a node that is asked without a pause goes into collections
	besideHeap  = 80 << 20
)

// checkMemory returns an error if a role cannot keep to --memory. Where that says nothing, the container does.
func (p *Process) checkMemory(r Role) error {
	if least := r.Least(p); p.memory > 0 {
		if p.memory < least {
			return fmt.Errorf("memory: %s is less than the %s that %s takes", &p.memory, &least, r.Name())
		}
		return nil
	}
	p.fillMemory()
	return nil
}

// start starts a role and the ops port, waits until all has ended, and closes what was opened.
func (p *Process) start(ctx context.Context, r Role) error {
	var err error
	if !p.up { // `up` has to start its servers first
		err = p.registerSchemas(ctx)
	}
	if err == nil {
		err = r.Start(ctx, p)
	}
	if err == nil {
		p.startOps(ctx)
	} else {
		p.Group.Go(func() error { return err }) // ends what was already started
	}
	err = p.Group.Wait()
	return errors.Join(err, p.close())
}

// Ready adds a check to /readyz.
func (p *Process) Ready(name string, check func(context.Context) error) {
	p.checks = append(p.checks, httpapi.Check{Name: name, Run: check})
}

// Closing registers f to be called after the group has ended.
func (p *Process) Closing(f func() error) { p.closers = append(p.closers, f) }

// close closes what was opened, in reverse order.
func (p *Process) close() error {
	var errs []error
	for _, closer := range slices.Backward(p.closers) {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// HTTP completes the configuration of a service's port: cursors, trusted proxies and draining.
func (p *Process) HTTP(c httpapi.Config) (httpapi.Config, error) {
	c.Listener = p.Listen
	c.DrainDelay, c.CursorSecret = p.drainDelay, p.cursorSecret
	for _, text := range p.trustedProxies {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return c, fmt.Errorf("trusted-proxies: %q is not a network such as 10.0.0.0/8", text)
		}
		c.Client.TrustedProxies = append(c.Client.TrustedProxies, network)
	}
	if p.CursorSecretFile != "" {
		secret, err := p.readFile(p.CursorSecretFile)
		if err != nil {
			return c, fmt.Errorf("cursor-secret-file: %w", err)
		}
		c.CursorSecret = strings.TrimSpace(string(secret))
	}
	return c, nil
}

// queryToken is the token of the processors' read API; empty if no file is named.
func (p *Process) queryToken() (string, error) {
	if p.queryTokenFile == "" {
		return "", nil
	}
	token, err := p.readFile(p.queryTokenFile)
	if err != nil {
		return "", fmt.Errorf("query-token-file: %w", err)
	}
	if token := strings.TrimSpace(string(token)); token != "" {
		return token, nil
	}
	return "", fmt.Errorf("query-token-file: %s is empty", p.queryTokenFile)
}

// startOps serves metrics, health checks, profiles and schemas.
func (p *Process) startOps(ctx context.Context) {
	cfg := httpapi.DefaultConfig(p.ops)
	cfg.Listener = p.Listen
	server := httpapi.NewServer(cfg, p.opsHandler(), p.Log.Named("ops"))
	p.Group.Go(func() error { return server.Run(ctx) })
}

// MarketClient returns the client of the market, shared by everything in this process.
func (p *Process) MarketClient(ctx context.Context) (*query.Client, error) {
	if p.client != nil {
		return p.client, nil
	}
	dep, err := p.Deployment()
	if err != nil {
		return nil, err
	}
	token, err := p.queryToken()
	if err != nil {
		return nil, err
	}
	cfg := query.DefaultConfig()
	cfg.Partitions, cfg.Registerer, cfg.Logger, cfg.Dial, cfg.Token = p.partitions, p.Reg, p.Log, p.Dial, token
	cfg.Owners = func() (query.Feed, error) {
		return kafka.NewReader(p.Kafka(), p.Catalogue().OwnersTopic(), 0, kafka.Start, kafka.ReaderOptions{})
	}
	if p.node != nil {
		cfg.Local, cfg.Instance = p.node, p.Instance
	}
	client, err := query.NewClient(cfg, dep)
	if err != nil {
		return nil, err
	}
	p.client = client
	p.Group.Go(func() error { return client.Run(ctx) })
	return client, nil
}

// Market is the read API of the market: its client, behind the hot cache if there is one.
func (p *Process) Market(ctx context.Context) (query.Reader, error) {
	if p.reader != nil {
		return p.reader, nil
	}
	client, err := p.MarketClient(ctx)
	if err != nil {
		return nil, err
	}
	p.reader = client
	if p.Servers.Redis != "" {
		cache, err := hotcache.NewCache(p.hotcache(), p.Log, p.Reg)
		if err != nil {
			return nil, err
		}
		p.Group.Go(func() error { return cache.Run(ctx) })
		p.reader = hotcache.NewCachedReader(client, cache)
	}
	return p.reader, nil
}

// Beside is the URL of a service that runs in this process too. Empty: none such does, or the system chooses its port.
func (p *Process) Beside(service string) string { return p.beside[service] }

// HasChain reports whether there is a node of the chain: from a flag, or the embedded one.
func (p *Process) HasChain() bool { return len(p.Servers.RPC) > 0 || p.up }

// EmbeddedChain reports whether the chain is the embedded one, whose clock runs ahead and jumps.
func (p *Process) EmbeddedChain() bool { return p.up && len(p.endpoints) == 0 }

// chainConfig says how services connect to the chain's nodes.
func (p *Process) chainConfig() chain.Config {
	c := chain.DefaultConfig()
	c.ChainID, c.Endpoints = p.ChainID, p.Servers.RPC
	return c
}

// CheckChain returns all errors of the flags about the chain's nodes.
func (p *Process) CheckChain() error {
	if p.EmbeddedChain() {
		return nil
	}
	c := p.chainConfig()
	return c.Validate()
}

// Chain is the client of the chain's nodes, shared by all services in this process.
func (p *Process) Chain(ctx context.Context) (*chain.Client, error) {
	if p.asks != nil {
		return p.asks, nil
	}
	client, err := chain.New(p.chainConfig(), p.Dial, p.Log, p.Reg)
	if err != nil {
		return nil, err
	}
	p.asks = client
	p.Group.Go(func() error { return client.Run(ctx) })
	return client, nil
}
