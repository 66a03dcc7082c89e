package roles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// commandApplication is an application of the processors whose input is a command topic. Add new ones to
// commandApplications.
type commandApplication struct {
	reads read.Application
	feeds string // the application of the raw topic that runs beside it and writes commands to it; empty: none
	make  func(p *Process, log *zap.Logger) (engine.CommandApp, error)
	runs  func(p *Process) bool                                                             // nil: always
	start func(ctx context.Context, r *processorsRole, p *Process, node *engine.Node) error // starts what belongs to the application; nil: nothing
}

func commandApplications() []commandApplication {
	return []commandApplication{
		{
			reads: support.Application(),
			make: func(p *Process, log *zap.Logger) (engine.CommandApp, error) {
				staff, err := p.supportStaff()
				return support.New(staff, log, p.Reg), err
			},
		},
		{
			reads: notifier.Application(),
			feeds: topics.AppFacts,
			make: func(p *Process, _ *zap.Logger) (engine.CommandApp, error) {
				return notifier.New(p.partitions, p.Reg), nil
			},
			runs:  (*Process).notifies,
			start: startNotifier,
		},
	}
}

// Sizes of the applications beside the market. Clients read what was just written, and what one command concerns the next one
// does not, so caches are of little use; and a backlog is of a few commands.
const (
	besideCache    = 4 << 20
	besideRows     = 256 << 10
	besideMemTable = 384 << 10
	besideCommit   = 4 << 20
	besideFetch    = 32 << 10
)

// beside is the configuration of an application beside the market.
func beside(c engine.Config) engine.Config {
	c.CommitBytes, c.FetchBytes = besideCommit, besideFetch
	c.Memory.Blocks, c.Memory.Rows, c.Memory.MemTable = besideCache, besideRows, besideMemTable
	return c
}

// applicationNames are those that --applications takes.
func applicationNames() []string {
	names := []string{topics.AppMarket}
	for _, app := range commandApplications() {
		names = append(names, app.reads.Name)
	}
	return names
}

// checkApplications says what --applications names that is not there. Every node runs the market.
func (r *processorsRole) checkApplications() error {
	var errs []error
	known := applicationNames()
	for _, name := range r.names {
		if !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("applications: %q is not one of %s", name, strings.Join(known, ", ")))
		}
	}
	if len(r.names) > 0 && !slices.Contains(r.names, topics.AppMarket) {
		errs = append(errs, fmt.Errorf("applications: %s is required", topics.AppMarket))
	}
	return errors.Join(errs...)
}

// chosen reports whether a command application is to run.
func (r *processorsRole) chosen(p *Process, app commandApplication) bool {
	named := len(r.names) == 0 || slices.Contains(r.names, app.reads.Name)
	return named && (app.runs == nil || app.runs(p))
}

// applications are the names of all applications that processors with these flags run.
func (r *processorsRole) applications(p *Process) []string {
	names := []string{topics.AppMarket}
	for _, app := range commandApplications() {
		if !r.chosen(p, app) {
			continue
		}
		names = append(names, app.reads.Name)
		if app.feeds != "" {
			names = append(names, app.feeds)
		}
	}
	return names
}

// startApplications starts the command applications, and returns their read APIs.
func (r *processorsRole) startApplications(ctx context.Context, p *Process) ([]read.Served, error) {
	var all []read.Served
	for _, app := range commandApplications() {
		if !r.chosen(p, app) {
			continue
		}
		cfg := beside(r.config(p, app.reads.Name))
		cfg.Rebuild = false
		made, err := app.make(p, p.Log.Named(app.reads.Name))
		if err != nil {
			return nil, err
		}
		node, err := engine.NewCommands(cfg, made)
		if err != nil {
			return nil, err
		}
		if p.applications == nil {
			p.applications = map[string]read.Source{}
		}
		p.applications[app.reads.Name] = node
		p.Ready(app.reads.Name+" application", func(context.Context) error { return node.Ready(p.MaxHeadAge) })
		p.Group.Go(func() error { return node.Run(ctx) })
		all = append(all, read.Served{Source: node, Application: app.reads})
		if app.start != nil {
			if err := app.start(ctx, r, p, node); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// Application returns a router to a command application's partitions.
func (p *Process) Application(ctx context.Context, name string) (*read.Router, error) {
	token, err := p.queryToken()
	if err != nil {
		return nil, err
	}
	cfg := read.DefaultConfig()
	cfg.Application, cfg.Partitions, cfg.Registerer, cfg.Logger, cfg.Dial, cfg.Token = name, p.partitions, p.Reg, p.Log, p.Dial, token
	cfg.Owners = func() (read.Feed, error) {
		return kafka.NewReader(p.Kafka(), p.Catalogue().OwnersTopic(), 0, kafka.Start, kafka.ReaderOptions{})
	}
	if node := p.applications[name]; node != nil {
		cfg.Local, cfg.Instance = node, p.Instance
	}
	router, err := read.NewRouter(cfg)
	if err != nil {
		return nil, err
	}
	p.Group.Go(func() error { return router.Run(ctx) })
	return router, nil
}
