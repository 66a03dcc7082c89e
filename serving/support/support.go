// Package support is the HTTP service for bug reports with a refundable deposit: the deposit is paid by x402,
// the report becomes a ticket, and its reporter reads the reply. It must not store anything itself, and only
// the payment chain's logs decide whether a deposit is paid.
//
//	reports.go    POST /reports: the checks in order
//	lookback.go   how far back the payment chain is searched
//	drive.go      a payment from its reservation until it is final
//	undecided.go  the undecided payments: those that no process follows, and how old they are
//	refund.go     refunds
//	staff.go      the staff's actions
//	report.go     the format of a report
//	limits.go     limits of clients that have not paid
//	tickets.go    GET /tickets/{id}; page.go the web page
//	secrets.go    tokens and encrypted texts
package support

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/params"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/serving/x402"
)

//go:embed openapi.yaml
var description []byte

// Config of the service and the price of a report. Start from DefaultConfig.
type Config struct {
	HTTP httpapi.Config

	PublicURL string           // public URL of the service: the resource that is paid for, and the base of page links
	Payment   x402.Requirement // the deposit: asset and payTo are required
	Symbol    string           // of the asset, for people
	Decimals  int              // of the asset
	Word      string           // word in the name of the ticket token's header: x-<word>-ticket-token

	FloatCeiling string // maximum sum of refunds per day (UTC), in the asset's smallest unit

	Confirmations uint64        // confirmations after which a block of the payment chain is final
	LogRange      uint64        // maximum block range of a log query; fewer where the node refuses them
	Poll          time.Duration // poll interval of the payment chain's head while a payment is followed; otherwise 20 times that
	Wait          time.Duration // how long a request waits for its payment before the client is told to retry
	Resend        time.Duration // after which a payment that is not on the chain is submitted again
	ResumeAfter   time.Duration // without progress, after which the reconciler takes over a payment
	Reconcile     time.Duration // interval of the reconciler
	MaxDriven     int           // payments that this process settles at a time
	Limits        Limits        // of clients that have not paid

	Keys Keys // secrets
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	c := Config{
		HTTP: httpapi.DefaultConfig(":4400"),
		Payment: x402.Requirement{
			Scheme: x402.SchemeExact, Network: "eip155:8453", Amount: "15000000", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
			MaxTimeoutSeconds: 120, Extra: x402.Domain{Name: "USD Coin", Version: "2"},
		},
		Symbol: "USDC", Decimals: 6, Word: httpapi.DefaultWord, FloatCeiling: "150000000",
		Confirmations: x402.DefaultConfirmations, LogRange: 1000,
		Poll: 50 * time.Millisecond, Wait: 45 * time.Second, Resend: 30 * time.Second,
		ResumeAfter: 20 * time.Second, Reconcile: 5 * time.Second, MaxDriven: 1024, Limits: DefaultLimits(),
	}
	c.HTTP.RequestTimeout, c.HTTP.WriteTimeout = 55*time.Second, 60*time.Second
	return c
}

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	_, ceiling := c.Ceiling()
	faults := []error{c.HTTP.Validate(), c.Keys.Validate(), c.Limits.validate(), ceiling, CheckConfirmations(c.Confirmations)}
	if _, err := x402.NewTerms(c.Payment); err != nil {
		faults = append(faults, err)
	}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	u, err := url.Parse(c.PublicURL)
	fault(err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https", "support-public-url: %q is not an http or https URL", c.PublicURL)
	fault(strings.ContainsAny(c.PublicURL, "?#"), "support-public-url: %q has a query or a fragment: links to tickets are made by appending to it", c.PublicURL)
	fault(c.Word == "" || strings.Trim(c.Word, "abcdefghijklmnopqrstuvwxyz0123456789-") != "", "support-word: %q is not lower-case letters only", c.Word)
	fault(c.Decimals < 0 || c.Decimals > 36, "decimals: %d", c.Decimals)
	fault(c.LogRange == 0 || c.MaxDriven <= 0, "log range and payments at work must be positive")
	for _, d := range []struct {
		name string
		is   time.Duration
	}{{"poll", c.Poll}, {"wait", c.Wait}, {"resend", c.Resend}, {"resume", c.ResumeAfter}, {"reconcile", c.Reconcile}} {
		fault(d.is <= 0, "%s: %s is not positive", d.name, d.is)
	}
	fault(c.Wait >= c.HTTP.RequestTimeout, "wait: %s is not below the request timeout of %s", c.Wait, c.HTTP.RequestTimeout)
	return errors.Join(faults...)
}

// Ceiling is the float's daily ceiling.
func (c *Config) Ceiling() (*big.Int, error) {
	ceiling, ok := new(big.Int).SetString(c.FloatCeiling, 10)
	if !ok || ceiling.Sign() <= 0 {
		return nil, fmt.Errorf("float-daily-ceiling: %q is not a positive integer", c.FloatCeiling)
	}
	return ceiling, nil
}

// maxConfirmations bounds the confirmations: more than a day of any chain's blocks.
const maxConfirmations = 100_000

// CheckConfirmations returns an error for confirmations that would make every block final, or none.
func CheckConfirmations(n uint64) error {
	if n == 0 || n > maxConfirmations {
		return fmt.Errorf("payment-confirmations: %d is not in 1-%d", n, maxConfirmations)
	}
	return nil
}

// Deps are the dependencies of the service.
type Deps struct {
	Desk    *desk.Client
	Chain   Chain // the payment chain
	Settler x402.Settler
	// Relayer is the sender of simulated transfers; zero: no particular one.
	Relayer common.Address
	Float   common.Address // its balance is exported as a metric; zero: none
	// Head is the last indexed block of the market's chain: reports must not name a later one.
	Head func(ctx context.Context) (uint64, error)
	Now  func() time.Time // nil: the system clock
}

// Chain reads the payment chain; ethclient.Client is one.
type Chain interface {
	x402.ChainReader
	BalanceAt(ctx context.Context, account common.Address, block *big.Int) (*big.Int, error)
}

// Service is the support service.
//
// Invariants:
//  1. A payment is passed to the settler only after the desk has reserved it.
//  2. A reserved payment is followed until it is final, by this process or another.
//  3. Only a certain outcome is answered by 201 or 4xx; everything else is a 503.
type Service struct {
	cfg     Config
	deps    Deps
	terms   *x402.Terms
	price   string // the header that asks for a payment
	token   *x402.Token
	log     *zap.Logger
	metrics *metrics
	api     *httpapi.API
	server  *httpapi.Server

	head    *head
	mu      sync.Mutex
	drives  map[driveKey]*drive
	waiting *httpapi.Slots[driveKey] // requests that wait for a payment: at most half of all
	group   errgroup.Group
	work    chan *drive // payments for Run to follow
	budgets budgets
	checked atomic.Bool          // the payment chain and its token were verified
	seen    map[moment]time.Time // of the reconciler's last sweep; guarded by mu

	searchFrom atomic.Uint64 // block of the payment chain where a search starts; once checked
}

// New makes a service. It does nothing before Run.
func New(cfg Config, deps Deps, log *zap.Logger, reg prometheus.Registerer) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	terms, err := x402.NewTerms(cfg.Payment)
	if err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	s := &Service{
		cfg: cfg, deps: deps, terms: terms, token: x402.NewToken(terms, deps.Chain), log: log.Named("support"), metrics: newMetrics(reg),
		head: newHead(), drives: map[driveKey]*drive{}, waiting: httpapi.NewSlots[driveKey](cfg.Limits.Waiting, (cfg.HTTP.MaxInFlight+1)/2), budgets: newBudgets(cfg.Limits), work: make(chan *drive, cfg.MaxDriven),
	}
	if s.price, err = x402.EncodeHeader(terms.Required(s.resource(), "")); err != nil {
		return nil, err
	}
	described, err := httpapi.DescriptionRoutes(description)
	if err != nil {
		return nil, err
	}
	s.api = httpapi.New(cfg.HTTP, httpapi.Options{
		Service: "support", Deployment: cfg.Payment.Network, Logger: s.log, Registerer: reg,
		Expose: []string{x402.HeaderRequired, x402.HeaderResponse},
		Allow:  []string{x402.HeaderSignature, "Access-Control-Expose-Headers", s.ticketHeader()},
		Retryable: func(c httpapi.Code) bool {
			return c.Status == http.StatusTooManyRequests || c.Status == http.StatusServiceUnavailable
		},
		NoStore: true, Private: true,
		Routes: slices.Concat(s.routes(), described),
	})
	s.server = httpapi.NewServer(cfg.HTTP, s.api, s.log)
	return s, nil
}

func (s *Service) routes() []httpapi.Route {
	return []httpapi.Route{
		{Method: http.MethodGet, Path: "/", Handle: index, AnyQuery: true},
		{Method: http.MethodPost, Path: "/reports", Handle: s.postReport},
		{Method: http.MethodGet, Path: "/tickets/{id}", Handle: s.getTicket},
		{Method: http.MethodGet, Path: "/health", Handle: s.health},
		{Method: http.MethodGet, Path: "/t/{id}", Handle: s.page, AnyQuery: true},
		{Method: http.MethodGet, Path: "/t/{id}/content", Handle: s.content},
		{Method: http.MethodGet, Path: "/page.js", Handle: s.script},
		{Method: http.MethodGet, Path: "/page.css", Handle: s.style},
	}
}

// index answers a request without a path.
func index(_ context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	res.SetHeader("Content-Type", "text/plain; charset=utf-8")
	res.Body = append(res.Body, `Bug reports against a refundable deposit, paid by x402.

POST /reports       send one: without a payment the answer is 402 and says what to pay
GET  /health        what a report costs, and where it is paid
GET  /openapi.json  the description; /docs shows it
`...)
	return nil
}

// ticketHeader is the header of a ticket's token.
func (s *Service) ticketHeader() string { return "X-" + s.cfg.Word + "-Ticket-Token" }

var errUnchecked = errors.New("the payment chain has not been reached yet")

// Ready is nil while reports can be paid.
func (s *Service) Ready(context.Context) error {
	if !s.checked.Load() {
		return errUnchecked
	}
	return s.server.Ready()
}

// Run serves until ctx is done.
//
//	requests ─► reserve ─┐
//	reconciler ──────────┴─► drives ◄── head of the payment chain
//	                            └─► settler ─► relayer's fee bumps
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.verify(ctx) })
	group.Go(func() error { return s.server.Run(ctx) })
	group.Go(func() error { s.startDrives(ctx); return nil })
	group.Go(func() error { s.watch(ctx); return nil })
	group.Go(func() error { s.reconcile(ctx); return nil })
	group.Go(func() error { s.keepFrom(ctx); return nil })
	group.Go(func() error { s.weigh(ctx); return nil })
	if b, ok := s.deps.Settler.(bumper); ok {
		group.Go(func() error { s.bump(ctx, b); return nil })
	}
	return group.Wait()
}

// verify returns an error, which ends the process, if the chain or the token are not the configured ones.
func (s *Service) verify(ctx context.Context) error {
	for {
		err := s.token.Verify(ctx)
		if err == nil {
			err = s.findFrom(ctx)
		}
		if err == nil { // without a signature check no payment may be requested
			err = s.token.Searchable(ctx, s.scope(s.fromBlock()))
		}
		switch {
		case err == nil:
			s.checked.Store(true)
			return nil
		case errors.Is(err, x402.ErrWrongToken):
			return err
		}
		s.log.Warn("cannot reach the payment chain", zap.Error(err))
		if !sleep(ctx, idlePolls*s.cfg.Poll) {
			return nil
		}
	}
}

// weighEvery is the interval of reading the relayer's and the float's balances.
const weighEvery = 30 * time.Second

func (s *Service) weigh(ctx context.Context) {
	for {
		if s.deps.Relayer != (common.Address{}) {
			if wei, err := s.deps.Chain.BalanceAt(ctx, s.deps.Relayer, nil); err == nil {
				ether, _ := new(big.Float).Quo(new(big.Float).SetInt(wei), big.NewFloat(params.Ether)).Float64()
				s.metrics.gas.WithLabelValues(s.deps.Relayer.Hex()).Set(ether)
			}
		}
		if s.deps.Float != (common.Address{}) {
			if units, err := s.token.Balance(ctx, s.deps.Float); err == nil {
				have, _ := new(big.Float).SetInt(units).Float64()
				s.metrics.float.WithLabelValues(s.deps.Float.Hex()).Set(have)
			}
		}
		if !sleep(ctx, weighEvery) {
			return
		}
	}
}

// bumper is a settler that can raise the fees of pending transactions.
type bumper interface {
	Bump(ctx context.Context) error
}

func (s *Service) bump(ctx context.Context, b bumper) {
	for sleep(ctx, time.Second) {
		if err := b.Bump(ctx); err != nil && ctx.Err() == nil {
			s.metrics.settleErrors.WithLabelValues(settleError(err)).Inc()
			s.log.Warn("cannot raise fees", zap.Error(err))
		}
	}
}

// sleep returns false if ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
