package roles

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/processors/market/changes"
	"github.com/lienstream/lienstream/processors/market/hotcache"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// processorsRole runs the tasks and, with Redis, the writers of the hot cache.
type processorsRole struct {
	cfg   engine.Config
	http  httpapi.Config // of the read API
	names []string       // chosen by --applications; empty: all that are configured
}

func newProcessorsRole() *processorsRole {
	return &processorsRole{cfg: engine.DefaultConfig(), http: httpapi.DefaultConfig(":42070")}
}

func (*processorsRole) Name() string { return "processors" }

func (*processorsRole) Help() string {
	return "turn the raw topic into state, entity and event topics, and Redis"
}

func (r *processorsRole) Memory(p *Process) uint64 {
	_, heap := r.cfg.Sized(p.nodeMemory(), p.partitions)
	return heap
}

func (*processorsRole) Least(*Process) memory.Budget { return engine.LeastMemory }

func (r *processorsRole) Flags(f *Flags) {
	bindListen(f, &r.http, "query-addr", "listen address of the processors' read API")
	bind(f, &r.cfg.Addr, "advertise", "host:port at which other nodes reach query-addr; default: query-addr on loopback, else the host name and query-addr's port")
	bind(f, &r.cfg.Standbys, "standbys", "number of standby nodes of each partition, besides its owner")
	bind(f, &r.cfg.TipInterval, "tip-commit-interval", "minimum time between two commits of a partition at the chain's head; readers see each block at once, the entity and event topics only with its commit; a longer time takes fewer transactions; 0: a commit per block")
	bind(f, &r.cfg.SessionTimeout, "session-timeout", "time without a heartbeat after which a node's partitions are reassigned")
	bindList(f, &r.names, "applications", "which of "+strings.Join(applicationNames(), ", ")+" to run; default: all that are configured")
	bind(f, &r.cfg.Rebuild, "rebuild", "drop the state and reprocess the raw topic from its start")
}

func (r *processorsRole) Defaults(p *Process) {
	if addr, err := r.advertised(p); err == nil { // start says what is wrong with the host's name
		p.flags.fill("advertise", addr, "query-addr")
	}
	if len(r.names) == 0 {
		names := []string{topics.AppMarket}
		for _, app := range commandApplications() {
			if r.chosen(p, app) {
				names = append(names, app.reads.Name)
			}
		}
		p.flags.show("applications", strings.Join(names, ","), "all that are configured")
	}
}

// config is the configuration of an application's node from all flags. What memory there is beyond the least is for the
// market, whose logs are the many.
func (r *processorsRole) config(p *Process, app string) engine.Config {
	c := r.cfg
	if app == topics.AppMarket {
		c, _ = c.Sized(p.nodeMemory(), p.partitions)
	}
	c.Kafka, c.Catalogue, c.AppName, c.Instance, c.Dir = p.Kafka(), p.Catalogue(), app, p.Instance, applicationDir(p, app)
	c.Registerer, c.Logger, c.FS = p.Reg, p.Log, p.FS
	return c
}

// nodeMemory is what the market's node may take of --memory; 0: its default sizes, as with an embedded broker, whose log is in
// the same process.
func (p *Process) nodeMemory() uint64 {
	switch {
	case !p.up:
		return uint64(p.memory)
	case len(p.Servers.Brokers) == 0:
		return 0
	}
	return p.memory.Beyond(upHeap)
}

// stateDir is the directory of the state of all applications. That of an embedded chain, which is deleted with it, is not
// where a real one may be.
func stateDir(p *Process) string {
	if p.EmbeddedChain() {
		return filepath.Join(p.DataDir, "state-scratch")
	}
	return filepath.Join(p.DataDir, "state")
}

// applicationDir is the directory of an application's state. The market's is where it was before there were others.
func applicationDir(p *Process, app string) string {
	if app == topics.AppMarket {
		return stateDir(p)
	}
	return filepath.Join(stateDir(p), app)
}

func (r *processorsRole) Check(p *Process) error {
	_, err := p.Deployment()
	_, staffErr := p.supportStaff()
	return errors.Join(p.checkServers(false), err, staffErr, r.checkApplications(), r.config(p, topics.AppMarket).Validate(), r.http.Validate(), r.checkToken(p), p.notify.check(p))
}

// checkToken returns an error if the read API must not be served with these flags.
func (r *processorsRole) checkToken(p *Process) error {
	token, err := p.queryToken()
	if err == nil {
		err = read.CheckToken(token, r.http.Listen)
	}
	if err != nil {
		return fmt.Errorf("query-addr: %w; set one with --query-token-file", err)
	}
	return nil
}

func (r *processorsRole) Start(ctx context.Context, p *Process) error {
	if err := kafka.CheckCatalogue(ctx, p.Kafka(), p.Catalogue()); err != nil {
		return err
	}
	return r.start(ctx, p)
}

// advertised is where others reach query-addr: under the host's name, unless it listens on loopback alone.
func (r *processorsRole) advertised(p *Process) (string, error) {
	host, port, err := net.SplitHostPort(r.http.Listen)
	if err != nil {
		return "", fmt.Errorf("query-addr: %w", err)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		if host, err = p.Hostname(); err != nil {
			return "", fmt.Errorf("advertise: %w", err)
		}
	}
	return net.JoinHostPort(host, port), nil
}

// processorNode is this process's node and its log of recent changes.
type processorNode struct {
	*engine.Node
	*changes.Log
}

// start is Start after the topics were checked.
func (r *processorsRole) start(ctx context.Context, p *Process) error {
	if r.cfg.Addr == "" {
		_, err := r.advertised(p)
		return err
	}
	dep, err := p.Deployment()
	if err != nil {
		return err
	}
	p.node = &processorNode{Log: changes.New()} // the writer reads from the node that it observes
	observers := []engine.Observer{p.node.Log}
	if p.Servers.Redis != "" {
		writer, err := hotcache.NewWriter(p.hotcache(), p.node, p.Log, p.Reg)
		if err != nil {
			return err
		}
		observers = append(observers, writer)
		p.Group.Go(func() error { return writer.Run(ctx) })
	}
	if p.node.Node, err = engine.New(r.config(p, topics.AppMarket), market.New(contracts.NewDecoder(dep), p.Log, p.Reg), observers...); err != nil {
		return err
	}
	if p.Servers.Redis != "" {
		if err := p.startPoolWriter(ctx); err != nil {
			return err
		}
	}
	p.Ready(r.Name(), func(context.Context) error { return p.node.Ready(p.MaxHeadAge) })
	p.Group.Go(func() error { return p.node.Run(ctx) })
	served, err := r.startApplications(ctx, p)
	if err != nil {
		return err
	}
	served = append(served, read.Served{Source: p.node, Application: query.Application()})
	token, err := p.queryToken()
	if err != nil {
		return err
	}
	reads := r.http
	reads.Listener = p.Listen
	server := httpapi.NewServer(reads, read.Authorized(token, read.NewHandler(ctx, p.Log, served...)), p.Log.Named("query"))
	p.Group.Go(func() error { return server.Run(ctx) })
	return nil
}

// startPoolWriter starts the writer of data that spans the partitions of all nodes.
func (p *Process) startPoolWriter(ctx context.Context) error {
	router, err := p.MarketClient(ctx)
	if err != nil {
		return err
	}
	writer, err := hotcache.NewPoolWriter(p.hotcache(), router, p.node, p.Log, p.Reg)
	if err != nil {
		return err
	}
	p.Group.Go(func() error { return writer.Run(ctx) })
	return nil
}
