package roles

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
)

// Service is an HTTP service of the serving role. To add one:
//
//  1. its own package, serving/<name>, with Config, DefaultConfig, Validate, New, Run and Ready;
//  2. a file service_<name>.go here: a struct with the Config from DefaultConfig, and these methods. Flags
//     binds fields of that Config (bindListen(f, &s.cfg.HTTP, "<name>-addr", "listen address of …")), so that
//     no default is repeated; a default that follows from something else is filled in by Defaults (see defaulter),
//     which overwrites nothing that somebody set. Start takes what it needs from the Process, runs the service in its
//     group (p.Group.Go) and adds a readiness check (p.Ready);
//  3. an entry in services, below.
//
// The Process provides Kafka() and Catalogue(), Deployment(), RPC() with the chain's endpoints (in `up` those
// of the embedded chain), Chain(ctx), a client of them, Market(ctx), the market's read API,
// HTTP(cfg), which completes a port's configuration, Dial, Listen and FS, Reg, Log. Beside knows where other services
// are. Nothing else in serving, `up`, `config`, --check, the k8s tests and --help needs to know of the service.
type Service interface {
	Name() string // for --services
	Flags(f *Flags)
	// URL is where others reach it: its public URL, or one of this machine.
	URL() string
	// Configured reports whether the service runs by default: false while something without a default is
	// missing, such as a key, or a node of the chain (p.HasChain).
	Configured(p *Process) bool
	// Check returns all errors of its configuration.
	Check(p *Process) error
	// Start runs the service in p.Group.
	Start(ctx context.Context, p *Process) error
}

// Names of services that others look for.
const (
	indexerName   = "indexer"
	valuationName = "valuation"
	agentName     = "agent"
	supportName   = "support"
	notifierName  = "notifier"
)

// services lists all services, in the order of their start.
func services() []Service {
	return []Service{newIndexerService(), newValuationService(), newAgentService(), newSupportService(), newNotifierService()}
}

// local is the URL of a listen address, as seen from this machine. Empty: the system chooses the port.
func local(addr string) string {
	host, port, err := net.SplitHostPort(addr) // who listens there says what is wrong with it
	if err != nil || port == "0" {
		return ""
	}
	if slices.Contains([]string{"", "0.0.0.0", "::", "127.0.0.1", "::1"}, host) {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// servingRole runs services.
type servingRole struct {
	services []Service
	names    []string // from --services; empty: all that are configured
}

func newServingRole(services ...Service) *servingRole { return &servingRole{services: services} }

func (*servingRole) Name() string { return "serving" }

func (*servingRole) Help() string { return "serve the state over HTTP" }

func (*servingRole) Memory(p *Process) uint64 {
	if p.memory == 0 {
		return servingRoom
	}
	return max(servingHeap, p.memory.Beyond(besideHeap))
}

func (*servingRole) Least(*Process) memory.Budget { return servingHeap + besideHeap }

func (r *servingRole) Flags(f *Flags) {
	bindList(f, &r.names, "services", "which of "+strings.Join(r.known(), ", ")+" to run; default: all that are configured")
	for _, s := range r.services {
		s.Flags(f)
	}
}

func (r *servingRole) known() []string {
	var names []string
	for _, s := range r.services {
		names = append(names, s.Name())
	}
	return names
}

// Defaults gives each service the URLs of the others, and lets it fill in the defaults that follow from them.
func (r *servingRole) Defaults(p *Process) {
	run, _ := r.chosen(p) // whose error the check names
	p.beside = map[string]string{}
	var names []string
	for _, s := range run {
		names = append(names, s.Name())
		p.beside[s.Name()] = s.URL()
	}
	for _, s := range run {
		if d, ok := s.(defaulter); ok {
			d.Defaults(p)
		}
	}
	if len(r.names) == 0 {
		p.flags.show("services", strings.Join(names, ","), "all that are configured")
	}
}

// chosen returns the services that run.
func (r *servingRole) chosen(p *Process) ([]Service, error) {
	var errs []error
	for _, name := range r.names {
		if !slices.Contains(r.known(), name) {
			errs = append(errs, fmt.Errorf("services: %q is not one of %s", name, strings.Join(r.known(), ", ")))
		}
	}
	var run []Service
	for _, s := range r.services {
		if slices.Contains(r.names, s.Name()) || len(r.names) == 0 && s.Configured(p) {
			run = append(run, s)
		}
	}
	return run, errors.Join(errs...)
}

func (r *servingRole) Check(p *Process) error {
	var secret error
	if p.CursorSecretFile == "" {
		secret = errors.New("cursor-secret-file: required; all serving nodes need the same secret of at least 16 bytes")
	}
	_, err := p.queryToken()
	return errors.Join(p.checkServers(true), secret, err, r.check(p))
}

// check checks the services alone.
func (r *servingRole) check(p *Process) error {
	run, err := r.chosen(p)
	errs := []error{err}
	for _, s := range run {
		errs = append(errs, s.Check(p))
	}
	return errors.Join(errs...)
}

func (r *servingRole) Start(ctx context.Context, p *Process) error {
	run, err := r.chosen(p)
	if err != nil {
		return err
	}
	for _, s := range run {
		if err := s.Start(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", s.Name(), err)
		}
	}
	return nil
}
