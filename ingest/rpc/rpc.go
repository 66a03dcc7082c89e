// Package rpc asks chain nodes for blocks and believes none of them. It must not decide what to ask for,
// nor publish anything.
//
// What is checked of every answer: the chain ID of the endpoint; that headers are those asked for and
// link by parent hash; that logs lie in the range, ascend by block and index without repetition, are not
// marked as removed, match the filter, and carry the block hash that the header has. A header whose
// bloom filter has one of our addresses, in a block for which no log came, is a suspicion: another
// endpoint is asked for that block by its hash, and if it has logs, the first answer is thrown away.
// Bloom filters have false positives, so two that agree are believed. An answer that fails a check is
// counted against its endpoint and asked for elsewhere.
//
// The scheme of a range is all headers, by eth_getBlockByNumber in batches, beside one eth_getLogs for
// the whole of it. Headers only of blocks with logs would be cheaper, but a node that drops the logs of a
// block would then go unnoticed: the bloom filter is the only thing that tells. At the tip a block costs
// one request, for its logs by hash, and none when its bloom filter has nothing of ours.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/lienstream/lienstream/ingest/follow"
)

// Endpoint is a node.
type Endpoint struct {
	URL  string  // http, https, ws or wss; may hold a key, so it is never logged
	WS   string  // where to subscribe to heads, if URL is not a WebSocket itself; empty: polling only
	Name string  // in logs and metrics; default: the host
	Rate float64 // requests a second, each of a batch counted; 0: no limit
}

// Config of a Client.
type Config struct {
	ChainID   uint64
	Endpoints []Endpoint
	Addresses []common.Address // whose logs are wanted
	Topics    []common.Hash    // first topics that are wanted from any address

	Timeout     time.Duration // of one request
	MaxBody     int           // bytes of one answer
	MaxRange    uint64        // blocks of one eth_getLogs
	HeaderBatch int           // headers asked for in one request
	Parallel    int           // requests under way at once
	Confirm     int           // answers that must agree on the logs of a range, of different endpoints where there are several
	NoBloom     bool          // the chain's headers have no usable bloom filters
}

// WithDefaults fills in what is zero.
func (c Config) WithDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.MaxBody == 0 {
		c.MaxBody = 64 << 20
	}
	if c.MaxRange == 0 {
		c.MaxRange = 10_000
	}
	if c.HeaderBatch == 0 {
		c.HeaderBatch = 100
	}
	if c.Parallel == 0 {
		c.Parallel = 8
	}
	if c.Confirm == 0 {
		c.Confirm = 1
	}
	return c
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	if c.ChainID == 0 {
		errs = append(errs, errors.New("chain ID is zero"))
	}
	if len(c.Endpoints) == 0 {
		errs = append(errs, errors.New("no endpoint"))
	}
	if len(c.Addresses) == 0 {
		errs = append(errs, errors.New("no address whose logs are wanted"))
	}
	for i, e := range c.Endpoints {
		if err := validURL(e.URL, "http", "https", "ws", "wss"); err != nil {
			errs = append(errs, fmt.Errorf("endpoint %d: %w", i, err))
		}
		if e.WS != "" {
			if err := validURL(e.WS, "ws", "wss"); err != nil {
				errs = append(errs, fmt.Errorf("endpoint %d: subscription: %w", i, err))
			}
		}
		if e.Rate < 0 {
			errs = append(errs, fmt.Errorf("endpoint %d: rate %g is negative", i, e.Rate))
		}
	}
	if c.Timeout < 0 || c.MaxBody < 0 || c.HeaderBatch < 0 || c.Parallel < 0 || c.Confirm < 0 {
		errs = append(errs, errors.New("timeout, body limit, batch, parallel and confirm must not be negative"))
	}
	return errors.Join(errs...)
}

// validURL does not repeat the URL, for it may hold a key.
func validURL(raw string, schemes ...string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return errors.New("not an absolute URL")
	}
	if slices.Contains(schemes, u.Scheme) {
		return nil
	}
	return fmt.Errorf("scheme %q is none of %s", u.Scheme, strings.Join(schemes, ", "))
}

// Client asks the endpoints.
type Client struct {
	cfg       Config
	log       *zap.Logger
	metrics   *metrics
	endpoints []*endpoint
	slots     *semaphore.Weighted
	heads     chan follow.Header
	live      atomic.Int32 // subscriptions
	filter    filter
}

// New makes a client; it connects to nothing.
func New(cfg Config, reg prometheus.Registerer, log *zap.Logger) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	cfg = cfg.WithDefaults()
	c := &Client{
		cfg: cfg, log: log, metrics: newMetrics(reg),
		slots: semaphore.NewWeighted(int64(cfg.Parallel)),
		heads: make(chan follow.Header, 1),
	}
	c.filter = newFilter(cfg.Addresses, cfg.Topics, cfg.NoBloom)
	for i, e := range cfg.Endpoints {
		c.endpoints = append(c.endpoints, newEndpoint(c, e, i))
	}
	return c, nil
}

// Heads yields heads as nodes announce them, the newest only. They are hints: the same block may come
// twice, or never.
func (c *Client) Heads() <-chan follow.Header { return c.heads }

// Subscribed says whether any endpoint announces heads at present; else they must be polled.
func (c *Client) Subscribed() bool { return c.live.Load() > 0 }

// Run keeps the subscriptions alive until ctx ends.
//
//	one goroutine an endpoint with a WebSocket: dial ─► subscribe ─► read ─┬► Heads
//	                                    ▲──────── backoff ◄── error        └► answers to requests
func (c *Client) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range c.endpoints {
		if e.ws != nil {
			g.Go(func() error { return e.subscribe(ctx) })
		}
	}
	g.Go(func() error {
		<-ctx.Done()
		for _, e := range c.endpoints {
			e.http.CloseIdleConnections()
		}
		return nil
	})
	return g.Wait()
}

// announce offers a head, in place of one that nobody took yet.
func (c *Client) announce(h follow.Header) {
	for {
		select {
		case c.heads <- h:
			return
		default:
		}
		select {
		case <-c.heads:
		default:
		}
	}
}
