// Package notifier is the HTTP service for subscriptions to alerts: it checks wallets' signatures and turns
// requests into commands. It must not deliver anything, and keeps no state.
package notifier

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// Config of the service. Start from DefaultConfig.
type Config struct {
	HTTP     httpapi.Config
	ChainID  uint64
	Word     string        // first word of signed messages
	MaxAge   time.Duration // maximum age of a signed message
	MaxAhead time.Duration // by which a wallet's clock may be ahead of ours
	Writes   float64       // subscriptions a second that a client may write in the long run
	Burst    int           // subscriptions that a client may write at once
	Asks     int           // confirmation requests per hour of a client; an IPv6 network may make five times as many
	Admits   int           // confirmation mails per hour to a domain, for wallets without an open deal; five times as many to all
	Confirm  bool          // addresses other than browsers' must be confirmed before the first alert
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{HTTP: httpapi.DefaultConfig(":4200"), ChainID: contracts.DefaultChainID, Word: httpapi.DefaultWord, MaxAge: 300 * time.Second, MaxAhead: time.Minute, Writes: 1, Burst: 300, Asks: 20, Admits: 300}
}

const maxAdmits = 1_000_000

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	faults := []error{c.HTTP.Validate()}
	if c.Word == "" || !httpapi.PlainName(c.Word) {
		faults = append(faults, fmt.Errorf("notify-word: %q is not a short plain name", c.Word))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"age of a message", c.MaxAge}, {"time ahead of a message", c.MaxAhead}} {
		if d.d < time.Second {
			faults = append(faults, fmt.Errorf("%s: %s is less than a second", d.name, d.d))
		}
	}
	if c.Writes <= 0 || c.Burst < 1 {
		faults = append(faults, fmt.Errorf("writes of a client: %v a second with a burst of %d; both must be positive", c.Writes, c.Burst))
	}
	if c.Asks < 1 {
		faults = append(faults, fmt.Errorf("confirmation requests per hour: %d is not positive", c.Asks))
	}
	if c.Admits < 1 || c.Admits > maxAdmits {
		faults = append(faults, fmt.Errorf("notify-domain-mails: %d is not from 1 to %d", c.Admits, maxAdmits))
	}
	return errors.Join(faults...)
}

// Store keeps subscriptions: a *client.Client is one. A write returns after it was applied, and later reads
// include it. Errors mean that it is unavailable.
type Store interface {
	Subscribe(ctx context.Context, c *notifier.Subscribe) (notifier.Outcome, error)
	Await(ctx context.Context, c *notifier.Subscribe) (notifier.Outcome, error)
	Admit(ctx context.Context, a *notifier.Admission) (notifier.Outcome, error)
	Permitted(ctx context.Context, p *notifier.Permit) (notifier.Outcome, error)
	Confirm(ctx context.Context, c *notifier.Confirmation) (notifier.Outcome, error)
	Refuse(ctx context.Context, c *notifier.Confirmation) (notifier.Outcome, error)
	Unsubscribe(ctx context.Context, c *notifier.Unsubscribe) (notifier.Outcome, error)
	Subscriptions(ctx context.Context, wallet common.Address) ([]notifier.Subscription, error)
	Health(ctx context.Context) (notifier.Health, error)
}

// Service is the HTTP service.
type Service struct {
	cfg    Config
	store  Store
	chain  *chain.Client // checks signatures of contract wallets
	keys   *notifier.Keys
	turns  *httpapi.Slots[common.Address] // changes of a wallet that wait; only signed ones, so that no other client can use its slots
	probes *probes
	writes *httpapi.Buckets[netip.Addr]   // subscriptions, by client, because wallets cost nothing
	wide   *httpapi.Buckets[netip.Prefix] // subscriptions, by network
	asks   *httpapi.Buckets[netip.Addr]   // confirmation requests, by client: each sends a mail, and mails share their rate with alerts
	nets   *httpapi.Buckets[netip.Prefix] // confirmation requests, by network, which may have any number of clients
	log    *zap.Logger
	server *httpapi.Server
	api    *httpapi.API
}

//go:embed openapi.yaml
var description []byte

// New returns the service. It listens in Run.
func New(cfg Config, store Store, chain *chain.Client, keys *notifier.Keys, log *zap.Logger, reg prometheus.Registerer) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	described, err := httpapi.DescriptionRoutes(description)
	if err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, store: store, chain: chain, keys: keys, log: log.Named("notify"),
		turns: httpapi.NewSlots[common.Address](maxWrites, 0), probes: newProbes(),
		writes: httpapi.NewBuckets[netip.Addr](cfg.Writes, cfg.Burst),
		wide:   httpapi.NewBuckets[netip.Prefix](networkClients*cfg.Writes, networkClients*cfg.Burst),
		asks:   httpapi.NewBuckets[netip.Addr](float64(cfg.Asks)/3600, cfg.Asks),
		nets:   httpapi.NewBuckets[netip.Prefix](networkClients*float64(cfg.Asks)/3600, networkClients*cfg.Asks),
	}
	s.api = httpapi.New(cfg.HTTP, httpapi.Options{
		Service: "notify", Deployment: fmt.Sprint(cfg.ChainID), NoStore: true, Private: true, Logger: s.log, Registerer: reg,
		Routes: append([]httpapi.Route{
			{Method: http.MethodPost, Path: "/notify", Handle: s.post},
			{Method: http.MethodGet, Path: "/notify/{wallet}", Handle: s.get},
			{Method: http.MethodDelete, Path: "/notify/{wallet}/{channel}", Handle: s.remove},
			{Method: http.MethodGet, Path: "/unsubscribe", Query: linkQuery, Handle: s.confirm},
			{Method: http.MethodPost, Path: "/unsubscribe", Query: linkQuery, Handle: s.oneClick},
			{Method: http.MethodGet, Path: "/confirm", Query: confirmQuery, Handle: s.askConfirm},
			{Method: http.MethodPost, Path: "/confirm", Query: confirmQuery, Handle: s.confirmLink},
			{Method: http.MethodPost, Path: "/telegram", Handle: s.telegram, MaxBodyBytes: maxUpdateBytes},
			{Method: http.MethodGet, Path: "/health", Handle: s.health},
		}, described...),
	})
	s.server = httpapi.NewServer(cfg.HTTP, s.api, s.log)
	return s, nil
}

// networkClients is the number of clients that an IPv6 network counts as.
const networkClients = 5

// mayWrite counts a subscription that a client writes.
func (s *Service) mayWrite(client netip.Addr) bool { return take(client, s.wide, s.writes) }

// mayAsk counts an address to confirm that a client names by mail.
func (s *Service) mayAsk(client netip.Addr) bool { return take(client, s.nets, s.asks) }

func take(client netip.Addr, networks *httpapi.Buckets[netip.Prefix], clients *httpapi.Buckets[netip.Addr]) bool {
	if !client.IsValid() {
		return true
	}
	if network, ok := networkOf(client); ok && !networks.Take(network) {
		return false
	}
	return clients.Take(client)
}

// networkOf is the network of an IPv6 client; ok is false for others.
func networkOf(client netip.Addr) (network netip.Prefix, ok bool) {
	if !client.Is6() || client.Is4In6() {
		return network, false
	}
	return httpapi.Network(client), true
}

// Run serves until ctx is done.
func (s *Service) Run(ctx context.Context) error { return s.server.Run(ctx) }

// Ready is nil while subscriptions can be read.
func (s *Service) Ready(ctx context.Context) error {
	_, err := s.store.Health(ctx)
	return err
}
