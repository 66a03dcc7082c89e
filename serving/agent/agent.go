// Package agent is the HTTP service for software agents: they find collateral and listings, read deals from the
// chain, and have one transaction prepared and simulated. It must never sign or send, nor accept a key, a
// destination or calldata.
package agent

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

//go:embed openapi.yaml
var description []byte

// Documents for developers of agents.
var (
	//go:embed pages/llms.txt
	overview string
	//go:embed pages/skill.md
	skill string
	//go:embed pages/quickstart.md
	quickstart string
)

// Config is how the service serves. Start from DefaultConfig.
type Config struct {
	HTTP       httpapi.Config
	Deployment contracts.Deployment
	Limits     Limits

	BaseURL    string // public URL of the service, for its documents; empty: where it listens
	SupportURL string // public URL of the support service; empty: none

	// Beyond one of these limits a request is refused. 0: no limit, for chains with their own clock.
	MaxHeadAge     time.Duration // of the chain's head: STALE_CHAIN
	MaxLag         time.Duration // of the index behind the head, by block timestamps: STALE_INDEXER
	MaxLagBlocks   uint64        // the same in blocks
	MaxValuation   time.Duration // of a valuation: STALE_VALUATION
	IdentityEvery  time.Duration // how long a successful check of the contracts is valid
	Validity       time.Duration // of a prepared transaction, unless it expires earlier
	ExpiringSoon   time.Duration // a listing that expires within this time causes a warning
	GasHeadroomBps uint64        // added to the node's gas estimate
}

// DefaultConfig returns the defaults, without the deployment.
func DefaultConfig() Config {
	return Config{
		HTTP:           httpapi.DefaultConfig(":4300"),
		Limits:         DefaultLimits(),
		MaxHeadAge:     query.DefaultMaxHeadAge,
		MaxLag:         30 * time.Second,
		MaxLagBlocks:   query.DefaultMaxLagBlocks,
		MaxValuation:   time.Minute,
		IdentityEvery:  10 * time.Second,
		Validity:       time.Minute,
		ExpiringSoon:   time.Hour,
		GasHeadroomBps: 2_000,
	}
}

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	faults := []error{c.HTTP.Validate(), c.Limits.Validate()}
	if err := c.Deployment.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("deployment: %w", err))
	}
	for _, u := range []struct{ name, url string }{{"agent-url", c.BaseURL}, {"support-url", c.SupportURL}} {
		if u.url == "" {
			continue
		}
		if err := checkPublic(u.url); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", u.name, err))
		}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
		zero bool
	}{
		{"max-head-age", c.MaxHeadAge, true},
		{"agent-max-lag", c.MaxLag, true},
		{"agent-max-valuation", c.MaxValuation, true},
		{"interval of contract checks", c.IdentityEvery, true},
		{"validity of a transaction", c.Validity, false},
		{"time before a listing's end", c.ExpiringSoon, true},
	} {
		if d.d < 0 || d.d == 0 && !d.zero {
			faults = append(faults, fmt.Errorf("%s: %s is not positive", d.name, d.d))
		}
	}
	if c.GasHeadroomBps > 100_000 {
		faults = append(faults, fmt.Errorf("gas headroom: %d basis points is more than 100,000", c.GasHeadroomBps))
	}
	return errors.Join(faults...)
}

// checkPublic checks a URL that documents name.
func checkPublic(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err == nil && u.User != nil:
		return errors.New("contains a user or password, which the public documents would show")
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is not an absolute http or https URL without a query and a fragment", raw)
	case u.Port() == "0":
		return fmt.Errorf("%q has the port 0, which cannot be reached", raw)
	}
	return nil
}

// Parts are the dependencies of the service.
type Parts struct {
	Chain     *chain.Client
	Index     query.Reader
	Valuation Valuation             // nil: there is no valuation service
	Redis     redis.UniversalClient // for shared limits; nil: each node has its own
	Now       func() time.Time      // nil: time.Now
}

// Agent is the service.
type Agent struct {
	cfg       Config
	chain     *chain.Client
	index     query.Reader
	valuation Valuation
	limiter   limiter
	policy    string
	now       func() time.Time
	metrics   *metrics
	contracts *market
	actions   map[string]*action
	identity  identity
	cache     blockCache
	mcp       http.Handler
	api       *httpapi.API
	server    *httpapi.Server
}

// New returns the service. It listens in Run.
func New(cfg Config, parts Parts, log *zap.Logger, reg prometheus.Registerer) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration of the agent API: %w", err)
	}
	bound, err := newMarket(cfg.Deployment)
	if err != nil {
		return nil, err
	}
	described, err := httpapi.DescriptionRoutes(description)
	if err != nil {
		return nil, err
	}
	log = log.Named("agent")
	a := &Agent{
		cfg: cfg, chain: parts.Chain, index: parts.Index, valuation: parts.Valuation, policy: cfg.Limits.policy(), now: parts.Now,
		metrics: newMetrics(reg), contracts: bound, actions: newActions(),
	}
	if a.now == nil {
		a.now = time.Now
	}
	a.limiter = newLocalLimiter(cfg.Limits)
	if parts.Redis != nil {
		a.limiter = newSharedLimiter(parts.Redis, cfg.Limits, cfg.Deployment.ChainID, a.metrics.limiterAway, log)
	}
	a.api = httpapi.New(cfg.HTTP, httpapi.Options{
		Service:    "agent",
		Deployment: strconv.FormatUint(cfg.Deployment.ChainID, 10),
		Expose:     []string{"RateLimit", "RateLimit-Policy"},
		Allow:      []string{"Mcp-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name"}, // headers of MCP clients in a browser
		Admit:      a.admit,
		Answered:   a.answered,
		Retryable:  retryable,
		NoStore:    true,
		Private:    true,
		Routes:     slices.Concat(described, a.routes()),
		Logger:     log,
		Registerer: reg,
	})
	if a.mcp, err = newMCP(a.api, cfg.HTTP.RequestTimeout*9/10); err != nil {
		return nil, err
	}
	a.server = httpapi.NewServer(cfg.HTTP, a, log)
	return a, nil
}

// answered counts an answer. A tool's call is counted as the API's answer, so of MCP messages only refused ones count
// here.
func (a *Agent) answered(path string, err error) {
	_, refused := errors.AsType[*httpapi.Error](err)
	if path != mcpRoute || refused {
		a.metrics.answers.WithLabelValues(codeName(err)).Inc()
	}
}

func (a *Agent) routes() []httpapi.Route {
	counted := func(path string, handle httpapi.Handler) httpapi.Handler { // an answer from the cache sends no requests, and does not count
		return chain.Counted(a.metrics.requests.WithLabelValues(path), handle)
	}
	get := func(path string, handle httpapi.Handler, query ...string) httpapi.Route {
		return httpapi.Route{Method: http.MethodGet, Path: path, Handle: counted(path, handle), Query: query}
	}
	return []httpapi.Route{
		get("/v1/capabilities", a.capabilities),
		get("/v1/assets", a.assets, "limit", "cursor"),
		get("/v1/listings", a.listings, "term", "asset", "sort", "limit", "cursor"),
		get("/v1/deals/{dealId}", a.deal),
		get("/v1/deals/{dealId}/valuation", a.dealValuation),
		get("/v1/portfolio/{wallet}", a.portfolio),
		{Method: http.MethodPost, Path: prepareRoute, Handle: counted(prepareRoute, a.prepare)},
		{Method: http.MethodPost, Path: mcpRoute, Handle: a.callMCP},
		get("/health", a.health),
		get("/", text("text/plain", overview)),
		get("/llms.txt", text("text/plain", overview)),
		get("/skill.md", text("text/markdown", skill)),
		get("/quickstart.md", text("text/markdown", quickstart)),
		get("/.well-known/agent.json", a.discovery),
	}
}

// Run serves until ctx is done, then drains.
func (a *Agent) Run(ctx context.Context) error { return a.server.Run(ctx) }

// Addr is the listen address; it waits for Run.
func (a *Agent) Addr() string { return a.server.Addr() }

// ServeHTTP serves without a port.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.api.ServeHTTP(w, r) }

// Ready is nil while the service accepts requests and has been able to read the chain once.
func (a *Agent) Ready(ctx context.Context) error {
	return a.server.ReadyOnce(func() error {
		head, err := a.head()
		if err != nil {
			return err
		}
		return a.identified(ctx, head)
	})
}
