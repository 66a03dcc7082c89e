// Package rpc asks chain nodes for blocks and believes none of them. It must not decide what to ask for,
// nor publish anything.
//
// What is checked of every answer: the chain ID of the endpoint; that headers are those asked for, link by
// parent hash and hash to what they say (header.go), so that time, bloom filter and receipts' root belong to
// the chain that is followed; that logs lie in the range, ascend by block and index without repetition, are
// not marked as removed, match the filter, and carry the block hash that the header has. An answer that
// fails a check is counted against its endpoint and asked for elsewhere.
//
// Above what is final the logs of every block whose bloom filter may have one of ours are taken from its
// receipts, whose root the header has (prove.go): whoever answers, nothing is left out, added or changed.
// That costs one request, as eth_getLogs would, and none where the bloom filter has nothing of ours. Below,
// a range is all headers, in batches, beside one eth_getLogs for the whole of it; blocks whose bloom filter
// promises logs that did not come, and samples, are held against their receipts, and who is found wrong
// once has his whole answer replaced by proved blocks. ProofAll proves everything, ProofOff nothing. ProofSparse
// fetches below what is final only the headers of blocks with logs and of the ends of ranges (sparse.go).
package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

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
	Parallel    int           // requests under way at once, of each endpoint
	Confirm     int           // answers that must agree on the logs of a range, of different endpoints where there are several
	Proof       Proof         // which logs are proved
	// ReceiptsBatch is how many blocks' receipts are asked for in one request: an answer may be megabytes.
	ReceiptsBatch int
	NoBloom       bool // the chain's headers have no usable bloom filters

	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the machine's network
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
	if c.Confirm == 0 && c.Proof == ProofSparse {
		c.Confirm = min(2, len(c.Endpoints))
	}
	if c.Confirm == 0 {
		c.Confirm = 1
	}
	if c.Proof == "" {
		c.Proof = ProofTip
	}
	if c.ReceiptsBatch == 0 {
		c.ReceiptsBatch = 8
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
		errs = append(errs, errors.New("no endpoint is configured"))
	}
	if len(c.Addresses) == 0 {
		errs = append(errs, errors.New("no contract address is configured"))
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
	if !slices.Contains([]Proof{"", ProofTip, ProofAll, ProofSparse, ProofOff}, c.Proof) {
		errs = append(errs, fmt.Errorf("proof %q is not tip, all, sparse or off", c.Proof))
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
	return fmt.Errorf("scheme %q is not one of %s", u.Scheme, strings.Join(schemes, ", "))
}

// Client asks the endpoints.
type Client struct {
	cfg       Config
	log       *zap.Logger
	metrics   *metrics
	endpoints []*endpoint
	heads     chan follow.Header
	live      atomic.Int32  // subscriptions
	highest   atomic.Uint64 // the highest head that was shown
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
