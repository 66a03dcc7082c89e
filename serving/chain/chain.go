// Package chain reads the chain for serving nodes: several endpoints behind one client, every call pinned to a
// block by its hash, and a head that all live endpoints agree on, or most of three and more. It must not sign, send, or follow logs, and
// knows no contract.
//
// Errors tell the caller what to do:
//
//	ErrUnavailable        no endpoint responds: retry shortly
//	*DisagreementError    endpoints have different blocks or headers: retry shortly, and do not act before
//	ErrBlockGone          the block was reorganised away, or its state pruned: restart from the head
//	*ChainError           every endpoint that responds is on another chain: wrong configuration
//	*RevertError          the call reverted: a valid result
//	*NodeError            every node that was asked refused the call, for a reason that the last one states
//	ErrUnsupported        no endpoint supports the method
//	ErrDiffer             endpoints say different things of one block: retry shortly, and do not act before
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
	Endpoints []string // URLs, preferred ones first where none is slow: http, https, ws or wss. They may contain keys, so they are never logged.

	Timeout  time.Duration // of a request
	Attempts int           // requests per result, over all endpoints
	MaxBatch int           // calls per request; larger batches are split
	MaxBody  int64         // bytes of a response
	Parallel int           // concurrent requests, but for polls

	Poll        time.Duration // poll interval of the head
	PollTimeout time.Duration // of each request of a poll: a slower endpoint is paused
	MaxBehind   uint64        // blocks: an endpoint further behind most of the others has no say about the head
	MaxStill    time.Duration // one further behind any other has none either once it has stood still for so long; nor does a head stay for longer that is not confirmed
	MaxSilent   time.Duration // one that had a say so lately, or was first asked, and does not respond, is outnumbered or waited for; 0: none is. Then one of two is believed alone
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
//  1. No endpoint is asked for anything before it proved its chain ID, nor while it rests after a failure (unless all
//     rest: then they are tried all the same).
//  2. Head is a block of which every live node that has a say (haveSay) said the same header, or of three nodes and more
//     most of them, and two at least. Who says another is asked for nothing, and who is behind it is asked last. So a call
//     that is pinned to it may be answered by any that is asked and has it.
//     It does not fall back while a node that has a say still says the one before.
//  3. What is asked apart (Apart) is not answered by the node of before, unless that made the head alone (Quorum).
type Client struct {
	cfg       Config
	log       *zap.Logger
	metrics   *metrics
	endpoints []*endpoint
	nodes     int // that the endpoints are of
	slots     *semaphore.Weighted

	mu      sync.Mutex
	head    Block
	headErr error     // why there is no trusted head
	settled time.Time // when the head was last agreed on
	quorum  int       // how many nodes that took
	round   sync.Mutex
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

// ChainID is the client's chain.
func (c *Client) ChainID() uint64 { return c.cfg.ChainID }

// Nodes is how many nodes the endpoints are of (nodesOf).
func (c *Client) Nodes() int { return c.nodes }

// Quorum is how many nodes must say what is answered: two, or one where one made the head, because there is no other, or
// because of two the other is away for long (Config.MaxSilent, Config.MaxStill).
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

// nodesOf names the node of each endpoint, as its host and port in one spelling: what a node says by two names is no second
// opinion. A WebSocket at a port without HTTP is of its host's first HTTP endpoint, because a node may have its two at two
// ports. HTTP endpoints at two ports are two nodes.
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
