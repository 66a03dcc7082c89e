// Package chain reads the chain for serving nodes: several endpoints behind one client, every call pinned to a block by
// its hash, and a head that all live endpoints agree on, or a majority of three and more. It must not sign, send or
// follow logs, and knows no contract.
//
// Errors tell the caller what to do:
//
//	ErrUnavailable        no endpoint responds: retry shortly
//	*DisagreementError    endpoints have different blocks or headers: retry shortly, and do not act before
//	ErrBlockGone          the block was reorganised away, or its state pruned: restart from the head
//	*ChainError           every endpoint that responds is on another chain: wrong configuration
//	*RevertError          the call reverted: a valid result
//	*NodeError            every node that was asked refused the call; the message is that of the last one
//	ErrUnsupported        no endpoint supports the method
//	ErrDiffer             nodes give different answers about one block: retry shortly, and do not act before
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
	Endpoints []string // http, https, ws or wss URLs, preferred ones first. They may contain keys, so they are never logged.

	Timeout  time.Duration // of a request
	Attempts int           // requests per result, over all endpoints
	MaxBatch int           // calls per request; larger batches are split
	MaxBody  int64         // bytes of a response
	Parallel int           // concurrent requests, not counting polls

	Poll        time.Duration // poll interval of the head
	PollTimeout time.Duration // of each request of a poll: a slower endpoint is paused

	// MaxBehind is in blocks: an endpoint that is further behind most of the others has no vote about the head.
	MaxBehind uint64
	// MaxStill takes the vote from an endpoint that is further than MaxBehind behind any other, once it has had the
	// same block for this long. It also bounds how long a head is kept that no poll confirms.
	MaxStill time.Duration
	// MaxSilent is for how long an endpoint that voted, or was first asked, and does not respond still counts in the
	// number of which a majority is needed. After that, one of two nodes is believed alone. 0: it does not count.
	MaxSilent time.Duration
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
		MaxSilent:   10 * time.Second,
	}
}

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	var faults []error
	if c.ChainID == 0 {
		faults = append(faults, errors.New("chain-id: is 0"))
	}
	if len(c.Endpoints) == 0 {
		faults = append(faults, errors.New("rpc: at least one endpoint is required"))
	}
	for i, raw := range c.Endpoints {
		u, err := url.Parse(raw)
		switch {
		case err != nil || u.Host == "":
			faults = append(faults, fmt.Errorf("rpc: endpoint %d is not an absolute URL", i)) // without the URL, which may contain a key
		case !slices.Contains([]string{"http", "https", "ws", "wss"}, u.Scheme):
			faults = append(faults, fmt.Errorf("rpc: endpoint %d: scheme %q is not http, https, ws or wss", i, u.Scheme))
		}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"timeout", c.Timeout},
		{"poll", c.Poll},
		{"poll timeout", c.PollTimeout},
		{"time that an endpoint may stand still", c.MaxStill},
	} {
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

// Client sends requests to the endpoints.
//
// Invariants:
//  1. No endpoint is asked for anything before it proved its chain ID, nor while it is paused after a failure (unless all
//     are paused: then they are tried all the same).
//  2. Head is a block whose header every live node that has a vote (voters) returned; of three nodes and more, most of
//     them and at least two. A node that returned another header is asked for nothing, and one that is behind is asked
//     last. So any node that is asked and has the block may answer a call that is pinned to it.
//     The head does not fall back while a node that has a vote still returns the one before.
//  3. Under WithOtherNode, two successive batches are not answered by the same node, unless that node made the head
//     alone (Quorum).
type Client struct {
	cfg       Config
	log       *zap.Logger
	metrics   *metrics
	endpoints []*endpoint
	nodes     int // distinct nodes of the endpoints
	slots     *semaphore.Weighted

	mu      sync.Mutex
	head    Block
	headErr error     // why there is no trusted head
	settled time.Time // when the head was last agreed on
	quorum  int       // how many nodes agreed on it, at most 2
	polling sync.Mutex
}

// Block is a block header as reported by the endpoints.
type Block struct {
	Number    uint64
	Hash      common.Hash
	Parent    common.Hash
	Timestamp uint64
	GasLimit  uint64
	BaseFee   *uint64 // wei; nil: the chain has none, or it exceeds 64 bits

	SeenAt time.Time // when it was first seen as the head; of another block: when it was read
}

// New makes a client. It opens no connection. dial nil: the network.
func New(cfg Config, dial DialFunc, log *zap.Logger, reg prometheus.Registerer) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration of the chain client: %w", err)
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: cfg.Timeout, KeepAlive: 15 * time.Second}).DialContext //nolint:forbidigo // the default
	}
	c := &Client{
		cfg: cfg, log: log.Named("chain"), metrics: newMetrics(reg),
		slots:   semaphore.NewWeighted(int64(cfg.Parallel)),
		headErr: fmt.Errorf("%w: the head is not known yet", ErrUnavailable),
	}
	names := map[string]bool{}
	hosts := nodesOf(cfg.Endpoints)
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
		e := newEndpoint(c, name, raw, strings.HasPrefix(u.Scheme, "ws"), dial)
		e.host = hosts[i]
		c.endpoints = append(c.endpoints, e)
		c.metrics.contradicted.WithLabelValues(name) // so that the first is an increase
	}
	slices.Sort(hosts)
	c.nodes = len(slices.Compact(hosts))
	c.quorum = min(c.nodes, 2)
	return c, nil
}

// Quorum is how many nodes must give the same answer: two, or one where one node made the head alone, because there is
// no other or the other one has been away for long (Config.MaxSilent, Config.MaxStill).
func (c *Client) Quorum() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quorum
}

// Run follows the head until ctx is done, then closes the connections.
func (c *Client) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Poll)
	defer tick.Stop()
	for {
		_, _ = c.Refresh(ctx) // Head returns the error, and the log has it
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

// nodesOf names the node of each endpoint, as its host and port in one spelling: one node under two names must not
// count twice. A WebSocket at a port without HTTP belongs to the first HTTP endpoint of its host, because a node may
// serve the two at two ports. HTTP endpoints at two ports are two nodes.
func nodesOf(endpoints []string) []string {
	nodes, hosts, sockets := make([]string, len(endpoints)), make([]string, len(endpoints)), make([]bool, len(endpoints))
	for i, raw := range endpoints {
		u, err := url.Parse(raw)
		if err != nil {
			continue // Validate refuses it
		}
		port := u.Port()
		sockets[i] = strings.HasPrefix(u.Scheme, "ws")
		switch {
		case port != "":
		case strings.HasSuffix(u.Scheme, "s") && u.Scheme != "ws":
			port = "443"
		default:
			port = "80"
		}
		hosts[i] = strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
		nodes[i] = net.JoinHostPort(hosts[i], port)
	}
	for i := range endpoints {
		first := -1
		for j := range endpoints {
			if sockets[i] && !sockets[j] && hosts[j] == hosts[i] && (first < 0 || nodes[j] == nodes[i]) {
				first = j
			}
		}
		if first >= 0 {
			nodes[i] = nodes[first]
		}
	}
	return nodes
}
