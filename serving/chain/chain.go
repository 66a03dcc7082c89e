// Package chain is how a serving node reads the chain: several endpoints behind one client, every call pinned to a
// block by its hash, a head that all live endpoints agree on. It must not sign, send, or follow logs, and knows no
// contract.
//
// Errors say what the caller should do:
//
//	ErrUnavailable        no endpoint answers: ask again shortly
//	*DisagreementError    endpoints differ about a block: ask again shortly, act on nothing until then
//	ErrBlockGone          the block is reorganised away, or its state pruned: take the head again, and start over
//	*ChainError           every endpoint that answers is of another chain: the configuration is wrong
//	*RevertError          the call itself reverted: an answer, not a fault of the node
//	*NodeError            the node refused the call for another reason that it says
//	ErrUnsupported        no endpoint has the method
package chain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
)

// Config of a Client. Start from DefaultConfig.
type Config struct {
	ChainID   uint64
	Endpoints []string // URLs, the preferred first: http, https, ws or wss. They may hold keys, so they are never logged.

	Timeout  time.Duration // of one request
	Attempts int           // requests for one answer, over all endpoints
	MaxBatch int           // calls of one request; a larger batch is several
	MaxBody  int64         // bytes of one answer
	Parallel int           // requests under way at once

	Poll        time.Duration // between two looks at the head
	PollTimeout time.Duration // of one look: an endpoint that needs longer rests
	MaxBehind   uint64        // blocks: an endpoint further behind most of the others has no say about the head
	MaxStill    time.Duration // one further behind any other has none either once it has stood still for so long
}

// DefaultConfig returns the defaults. The chain and its endpoints have none.
func DefaultConfig() Config {
	return Config{
		Timeout:     2 * time.Second,
		Attempts:    3,
		MaxBatch:    100,
		MaxBody:     16 << 20,
		Parallel:    64,
		Poll:        200 * time.Millisecond,
		PollTimeout: time.Second,
		MaxBehind:   50,
		MaxStill:    time.Minute,
	}
}

// Validate returns every fault of the configuration.
func (c *Config) Validate() error {
	var faults []error
	if c.ChainID == 0 {
		faults = append(faults, errors.New("chain ID: is 0"))
	}
	if len(c.Endpoints) == 0 {
		faults = append(faults, errors.New("endpoints: required"))
	}
	for i, raw := range c.Endpoints {
		u, err := url.Parse(raw)
		switch {
		case err != nil || u.Host == "":
			faults = append(faults, fmt.Errorf("endpoint %d: is not an absolute URL", i)) // and not repeated: it may hold a key
		case !slices.Contains([]string{"http", "https", "ws", "wss"}, u.Scheme):
			faults = append(faults, fmt.Errorf("endpoint %d: scheme %q is not http, https, ws or wss", i, u.Scheme))
		}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"timeout", c.Timeout}, {"poll", c.Poll}, {"poll timeout", c.PollTimeout}, {"time that an endpoint may stand still", c.MaxStill}} {
		if d.d <= 0 {
			faults = append(faults, fmt.Errorf("%s: %s is not positive", d.name, d.d))
		}
	}
	for _, n := range []struct {
		name string
		n    int64
	}{
		{"attempts", int64(c.Attempts)},
		{"calls of a batch", int64(c.MaxBatch)},
		{"body bytes", c.MaxBody},
		{"requests at once", int64(c.Parallel)},
	} {
		if n.n <= 0 {
			faults = append(faults, fmt.Errorf("%s: %d is not positive", n.name, n.n))
		}
	}
	return errors.Join(faults...)
}

// DialFunc opens a connection; (*net.Dialer).DialContext is one.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Client asks the endpoints.
//
// Invariants:
//  1. No endpoint is asked for anything before it proved its chain ID, nor while it rests after a failure (unless all
//     rest: then they are tried all the same).
//  2. Head is a block of which every live endpoint that has a say (haveSay) said the same hash: so a call that is pinned
//     to it may be answered by any of them.
type Client struct {
	cfg       Config
	log       *zap.Logger
	metrics   *metrics
	endpoints []*endpoint
	slots     *semaphore.Weighted

	mu      sync.Mutex
	head    Block
	headErr error // why there is none, or why it is not to be trusted
	round   sync.Mutex
}

// Block is a block as the endpoints told it.
type Block struct {
	Number    uint64
	Hash      common.Hash
	Parent    common.Hash
	Timestamp uint64
	GasLimit  uint64
	BaseFee   *uint64 // wei; nil: the chain has none, or it is beyond 64 bits

	SeenAt time.Time // when it was first seen as the head here; of another block: when it was read
}

// New makes a client; it connects to nothing. dial nil: the network.
func New(cfg Config, dial DialFunc, log *zap.Logger, reg prometheus.Registerer) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration of the chain client: %w", err)
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: cfg.Timeout, KeepAlive: 15 * time.Second}).DialContext //nolint:forbidigo // what nil stands for
	}
	c := &Client{
		cfg: cfg, log: log.Named("chain"), metrics: newMetrics(reg),
		slots:   semaphore.NewWeighted(int64(cfg.Parallel)),
		headErr: fmt.Errorf("%w: the head is not known yet", ErrUnavailable),
	}
	names := map[string]bool{}
	for i, raw := range cfg.Endpoints {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, errors.New("an endpoint is not a URL") // Validate has parsed it
		}
		name := u.Host
		if names[name] {
			name = fmt.Sprintf("%s#%d", u.Host, i)
		}
		names[name] = true
		c.endpoints = append(c.endpoints, newEndpoint(c, name, raw, strings.HasPrefix(u.Scheme, "ws"), dial))
	}
	return c, nil
}

// ChainID is the chain that the client is of.
func (c *Client) ChainID() uint64 { return c.cfg.ChainID }

// Run follows the head until ctx is done, then closes the connections.
func (c *Client) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Poll)
	defer tick.Stop()
	for {
		_, _ = c.Refresh(ctx) // Head says what is wrong, and the log says when it began
		select {
		case <-ctx.Done():
			c.close()
			return nil
		case <-tick.C:
		}
	}
}

func (c *Client) close() {
	for _, e := range c.endpoints {
		e.close()
	}
}
