package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"time"
)

// Config is a service's listen address and limits. Start from DefaultConfig.
type Config struct {
	Listen     string // host:port; port 0 takes a free one
	ListenName string // of Listen in errors, such as its flag; empty: "listen"

	// Listener opens Listen; nil: the machine's network.
	Listener func(ctx context.Context, network, addr string) (net.Listener, error)

	ReadHeaderTimeout time.Duration
	ReadTimeout       time.Duration
	WriteTimeout      time.Duration // must exceed RequestTimeout, or responses are cut off instead of refused
	IdleTimeout       time.Duration
	RequestTimeout    time.Duration // of a handler
	DrainDelay        time.Duration // between becoming unready and closing the port
	DrainTimeout      time.Duration // for requests in flight when the port is closed

	MaxInFlight    int // concurrent requests; more get 503
	MaxStreams     int // concurrent streams, in addition; more get 503
	MaxConnections int // concurrent connections; more wait in the accept queue
	MaxHeaderBytes int
	MaxBodyBytes   int64
	MaxCacheBytes  int64 // of cached responses; 0: no cache
	MaxUnsentBytes int64 // of responses that clients have not taken yet; more get 503, or end their stream

	Client ClientLimits // limits per client

	// CursorSecret authenticates cursors and must be the same on all nodes. If it is empty, the key is derived
	// from the deployment's name, which is public; a forged cursor then only reaches another position of the
	// same public list.
	CursorSecret string
}

// DefaultWord is the default of the word that names a service in headers and signed messages.
const DefaultWord = "service"

// DefaultConfig returns the defaults, listening on addr.
func DefaultConfig(addr string) Config {
	return Config{
		Listen:            addr,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       75 * time.Second,
		RequestTimeout:    5 * time.Second,
		DrainTimeout:      2 * time.Second, // a process must end within 5 s, and closes its connections to Kafka after its ports
		MaxInFlight:       1024,
		MaxStreams:        1024,
		MaxConnections:    8192,
		MaxHeaderBytes:    16 << 10,
		MaxBodyBytes:      16 << 10,
		MaxCacheBytes:     16 << 20,
		MaxUnsentBytes:    128 << 20,
		Client: ClientLimits{
			MaxConnections: 512, MaxInFlight: 128, MaxStreams: 32, MaxReads: max(1, runtime.GOMAXPROCS(0)/2),
			MaxUnsentBytes: 8 << 20, Rate: 2000, Burst: 4000,
		},
	}
}

const minCursorSecret = 16 // bytes

// ValidListen returns an error if an address is none to listen on.
func ValidListen(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not host:port, with a port of at most 65535", addr)
	}
	return nil
}

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	var faults []error
	if err := ValidListen(c.Listen); err != nil {
		faults = append(faults, fmt.Errorf("%s: %w", cmp.Or(c.ListenName, "listen"), err))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"read header timeout", c.ReadHeaderTimeout},
		{"read timeout", c.ReadTimeout},
		{"write timeout", c.WriteTimeout},
		{"idle timeout", c.IdleTimeout},
		{"request timeout", c.RequestTimeout},
		{"drain timeout", c.DrainTimeout},
	} {
		if d.d <= 0 {
			faults = append(faults, fmt.Errorf("%s: %s is not positive", d.name, d.d))
		}
	}
	faults = append(faults, c.Client.validate()...)
	if c.DrainDelay < 0 {
		faults = append(faults, fmt.Errorf("drain-delay: %s is negative", c.DrainDelay))
	}
	if c.WriteTimeout <= c.RequestTimeout {
		faults = append(faults, fmt.Errorf("write timeout: %s does not exceed the request timeout of %s", c.WriteTimeout, c.RequestTimeout))
	}
	for _, n := range []struct {
		name string
		n    int64
	}{
		{"requests in flight", int64(c.MaxInFlight)},
		{"streams", int64(c.MaxStreams)},
		{"connections", int64(c.MaxConnections)},
		{"header bytes", int64(c.MaxHeaderBytes)},
		{"body bytes", c.MaxBodyBytes},
		{"unsent bytes", c.MaxUnsentBytes},
	} {
		if n.n <= 0 {
			faults = append(faults, fmt.Errorf("limit of %s: %d is not positive", n.name, n.n))
		}
	}
	if c.MaxCacheBytes < 0 {
		faults = append(faults, fmt.Errorf("limit of cache bytes: %d is negative", c.MaxCacheBytes))
	}
	if c.CursorSecret != "" && len(c.CursorSecret) < minCursorSecret {
		faults = append(faults, fmt.Errorf("cursor-secret-file: the secret is shorter than %d bytes", minCursorSecret))
	}
	return errors.Join(faults...)
}
