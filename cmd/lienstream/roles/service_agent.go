package roles

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lienstream/lienstream/processors/market/hotcache"
	"github.com/lienstream/lienstream/serving/agent"
)

// agentService is the HTTP API for software agents.
type agentService struct {
	cfg          agent.Config
	valuationURL string
}

func newAgentService() *agentService {
	return &agentService{cfg: agent.DefaultConfig()}
}

func (*agentService) Name() string { return agentName }

func (s *agentService) URL() string { return cmp.Or(s.cfg.BaseURL, local(s.cfg.HTTP.Listen)) }

func (*agentService) Configured(p *Process) bool { return p.HasChain() }

func (s *agentService) Flags(f *Flags) {
	bindListen(f, &s.cfg.HTTP, "agent-addr", "listen address of the agent API")
	bind(f, &s.cfg.BaseURL, "agent-url", "public URL of the agent API, for its own documents; default: this machine")
	bind(f, &s.cfg.SupportURL, "support-url", "public URL of the support service, for the agent API's documents; default: the one in this process, if `up` runs it")
	bind(f, &s.valuationURL, "valuation-url", "URL of the valuation service that the agent API uses; default: the one in this process, if any")
	bind(f, &s.cfg.Limits.Requests, "agent-requests", "maximum requests per minute to the agent API, over all callers")
	bind(f, &s.cfg.Limits.Prepares, "agent-prepares", "maximum transactions per minute that the agent API prepares, over all callers")
	bind(f, &s.cfg.Limits.Nodes, "agent-nodes", "number of nodes that share agent-requests and agent-prepares while Redis is unavailable")
	bind(f, &s.cfg.MaxLag, "agent-max-lag", "maximum lag of the index behind the chain for answers to agents")
	bind(f, &s.cfg.MaxValuation, "agent-max-valuation", "maximum age of a valuation for answers to agents")
}

func (s *agentService) Defaults(p *Process) {
	p.flags.fill("agent-url", s.URL(), "agent-addr") // empty where the system chooses the port: the agent API knows it once it listens
	p.flags.fill("valuation-url", p.Beside(valuationName), "the service in this process")
	if p.up {
		p.flags.fill("support-url", p.Beside(supportName), "the service in this process")
	}
	if p.EmbeddedChain() {
		p.flags.fill("agent-max-lag", "0", embeddedClock)
		p.flags.fill("agent-max-valuation", "0", embeddedClock)
	}
}

// config is the configuration from all flags. The deployment is known once the chain is.
func (s *agentService) config(p *Process) (agent.Config, error) {
	c := s.cfg
	c.MaxHeadAge = p.MaxHeadAge
	var err error
	c.HTTP, err = p.HTTP(c.HTTP)
	return c, err
}

func (s *agentService) Check(p *Process) error {
	c, err := s.config(p)
	errs := []error{err, p.CheckChain()}
	if p.EmbeddedChain() {
		return errors.Join(append(errs, c.Limits.Validate(), c.HTTP.Validate())...)
	}
	c.Deployment, err = p.checkedDeployment()
	return errors.Join(append(errs, err, c.Validate())...)
}

// valuationTimeout bounds a request to the valuation service.
const valuationTimeout = time.Second

func (s *agentService) Start(ctx context.Context, p *Process) error {
	c, err := s.config(p)
	if err != nil {
		return err
	}
	if c.Deployment, err = p.Deployment(); err != nil {
		return err
	}
	var parts agent.Parts
	if parts.Chain, err = p.Chain(ctx); err != nil {
		return err
	}
	if parts.Index, err = p.Market(ctx); err != nil {
		return err
	}
	if from := s.valuationURL; from != "" {
		parts.Valuation = agent.NewValuationHTTP(from, &http.Client{Transport: &http.Transport{DialContext: p.Dial}}, valuationTimeout)
	}
	if p.Servers.Redis != "" {
		options, err := hotcache.Options(p.Servers.Redis, p.Dial)
		if err != nil {
			return err
		}
		options.MaxRetries, options.ContextTimeoutEnabled = -1, true
		client := redis.NewClient(options)
		p.Closing(client.Close)
		parts.Redis, c.Limits.Prefix = client, p.Servers.Prefix
	}
	service, err := agent.New(c, parts, p.Log, p.Reg)
	if err != nil {
		return err
	}
	p.Ready(s.Name(), service.Ready)
	p.Group.Go(func() error { return service.Run(ctx) })
	return nil
}
