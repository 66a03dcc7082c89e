// Package rpc fetches blocks from nodes and trusts none of them. It must not decide what to fetch, nor publish
// anything.
//
// Every response is checked: the chain ID of the endpoint; headers are the requested ones, link by parent hash
// and hash to their hash (header.go), so that time, bloom filter and receipts root belong to the followed
// chain; logs are in the range, ascend by block and index without duplicates, are not marked as removed, match
// the filter, and carry the block hash of the header. A response that fails a check counts against its endpoint
// and is fetched elsewhere.
//
// Logs of blocks that are not final, and whose bloom filter may match, are taken from the receipts, whose root
// is in the header (prove.go), and the hashes of their transactions from the transactions, whose root is there too
// (transactions.go), unless no node has these in signed form (unsigned.go). So no node can omit, add or change them.
// That costs two requests per block with logs, one more than eth_getLogs, and none if the bloom filter does not match;
// more if they are too large for one response (each.go). Final blocks are fetched in ranges: all headers, in batches,
// and one eth_getLogs for the whole range. Blocks whose bloom filter suggests missing logs, and samples, are checked
// against their receipts, and one error replaces the whole response by verified blocks. ProofAll verifies everything,
// ProofOff nothing. ProofSparse fetches, of final blocks, only the headers of blocks with logs and of the ends of
// ranges (sparse.go).
//
// What no header covers is compared between endpoints: the chain itself (fork.go), and results of calls (call.go).
package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Config of a Client.
type Config struct {
	ChainID   uint64
	Endpoints []Endpoint
	Addresses []common.Address // of the contracts whose logs are wanted
	Topics    []common.Hash    // first topics wanted from any address

	Timeout  time.Duration // of a request
	MaxBody  int           // maximum bytes of a response
	MaxHeld  int           // maximum bytes of the logs of several blocks that are fetched together
	MaxRange uint64        // maximum blocks of one eth_getLogs
	MaxBatch int           // maximum calls of a batch
	Parallel int           // maximum concurrent requests per endpoint
	Proof    Proof         // which logs are verified
	// Confirm is the number of responses that must agree on the logs of an unverified range, from different endpoints
	// if there are several. 0: 2 with ProofTip or ProofSparse and several endpoints, else 1.
	Confirm int
	// ReceiptsBatch is for how many blocks receipts are fetched in one request: the response may be megabytes.
	ReceiptsBatch int
	// MaxRaw is how many transactions of a block may be fetched in signed form, a call each, where the endpoint's
	// description of them does not match their hash.
	MaxRaw int
	// Silence is how long an endpoint may be silent or stalled before the others decide without it on blocks that
	// are not final (fork.go).
	Silence time.Duration
	// Alone is how long all other endpoints must show nothing new until one alone decides what is final. 0: it never
	// does.
	Alone   time.Duration
	NoBloom bool // the chain's headers have no usable bloom filters

	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the machine's network
}

// DefaultConfig has everything but the chain: its ID, endpoints, addresses and topics.
func DefaultConfig() Config {
	return Config{
		Timeout: 10 * time.Second, MaxBody: 64 << 20, MaxHeld: 32 << 20, MaxRange: 10_000, MaxBatch: 100, ReceiptsBatch: 8, MaxRaw: 32,
		Parallel: 8, Proof: ProofTip, Silence: time.Minute, Alone: 10 * time.Minute,
	}
}

// confirm is the number of responses that must agree.
func (c Config) confirm() int {
	switch {
	case c.Confirm > 0:
		return c.Confirm
	case c.Proof == ProofTip, c.Proof == ProofSparse:
		return min(2, len(c.Endpoints)) // nothing else detects changed logs of history, or omitted ones with ProofSparse
	}
	return 1
}

// Hasty is how long others must be silent until one endpoint alone replaces a block that is not final, and how long
// one alone may have a block at the tip until there is a vote on it.
func (c Config) Hasty() time.Duration { return c.Silence / 20 }

// Validate reports all errors.
func (c Config) Validate() error {
	var errs []error
	if c.ChainID == 0 {
		errs = append(errs, errors.New("chain-id: is 0"))
	}
	if len(c.Endpoints) == 0 {
		errs = append(errs, errors.New("rpc: at least one endpoint is required"))
	}
	if len(c.Addresses) == 0 {
		errs = append(errs, errors.New("no contract address is configured"))
	}
	errs = append(errs, validEndpoints(c.Endpoints)...)
	fault := func(bad bool, flag string, value any, is string) {
		if bad {
			errs = append(errs, fmt.Errorf("%s: %v is %s", flag, value, is))
		}
	}
	fault(c.Timeout < 1, "rpc-timeout", c.Timeout, "not positive")
	fault(c.MaxBody < 1, "response size", c.MaxBody, "not positive")
	fault(c.MaxHeld < 1, "logs of several blocks", c.MaxHeld, "not positive")
	fault(c.MaxRange < 1, "rpc-span", c.MaxRange, "not positive")
	fault(c.MaxBatch < 1, "rpc-batch", c.MaxBatch, "not positive")
	fault(c.ReceiptsBatch < 1, "receipts batch", c.ReceiptsBatch, "not positive")
	fault(c.MaxRaw < 0, "rpc-raw", c.MaxRaw, "negative")
	fault(c.Parallel < 1, "rpc-parallel", c.Parallel, "not positive")
	fault(c.Silence < 1, "rpc-silence", c.Silence, "not positive")
	fault(c.Alone < 0, "rpc-alone", c.Alone, "negative")
	fault(c.Confirm < 0, "rpc-confirm", c.Confirm, "negative")
	fault(len(c.Endpoints) > 1 && c.Confirm > len(c.Endpoints), "rpc-confirm", c.Confirm, fmt.Sprintf("more than the %d nodes of rpc", len(c.Endpoints)))
	if !slices.Contains([]Proof{ProofTip, ProofAll, ProofSparse, ProofOff}, c.Proof) {
		errs = append(errs, fmt.Errorf("rpc-proof: %q is not tip, all, sparse or off", c.Proof))
	}
	return errors.Join(errs...)
}

// Client fetches from the endpoints the logs that its filter wants.
type Client struct {
	*nodes

	filter filter
	hits   *hits
	most   int // maximum logs of several blocks that are held at once; 0: no limit
}

// nodes are the endpoints and their state. Clients with other filters share them.
type nodes struct {
	cfg       Config
	log       *zap.Logger
	metrics   *metrics
	endpoints []*endpoint
	choosing  sync.Mutex // among them (choice.go)
	heads     chan struct{}
	live      atomic.Int32  // subscriptions
	highest   atomic.Uint64 // the highest confirmed head
	final     atomic.Uint64 // the block that is final (fork.go)
	settled   atomic.Uint64 // the last block that counted as history (raw.go)
	noBloom   atomic.Bool   // the chain's headers have no usable bloom filters
	bloomed   bloomed       // nobloom.go
	history   agreed        // sparse.go
	noCode    outage        // of eth_getCode
	unsigned  unsigned
}

// only reports whether there is one endpoint: its claims are all there is. Behind its URL there may be several nodes,
// of which one lacks a block that another reported.
func (c *nodes) only() bool { return len(c.endpoints) == 1 }

// New makes a client. It opens no connection.
func New(cfg Config, log *zap.Logger, reg prometheus.Registerer) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	cfg.Confirm = cfg.confirm()
	c := &Client{
		nodes: &nodes{cfg: cfg, log: log, metrics: newMetrics(reg), heads: make(chan struct{}, 1)},
		hits:  new(hits),
	}
	if c.noBloom.Store(cfg.NoBloom); cfg.NoBloom {
		c.metrics.noBloom.Set(1)
	}
	c.filter = newFilter(cfg.Addresses, cfg.Topics, &c.noBloom)
	for i, e := range cfg.Endpoints {
		c.endpoints = append(c.endpoints, newEndpoint(c, e, i))
	}
	return c, nil
}

// And returns a client that also wants all logs of more contracts.
func (c *Client) And(contracts []common.Address) *Client {
	return &Client{nodes: c.nodes, hits: c.hits, filter: newFilter(slices.Concat(c.cfg.Addresses, contracts), c.cfg.Topics, &c.noBloom)}
}

// Only returns a client that wants only the logs of one contract with one first topic. For more than one block it
// returns at most `most` logs, or ErrDense.
func (c *Client) Only(contract common.Address, topic common.Hash, most int) *Client {
	return &Client{nodes: c.nodes, hits: new(hits), filter: onlyOf(contract, topic, &c.noBloom), most: most}
}

// Subscribed reports whether an endpoint announces heads at present; otherwise they must be polled.
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
