// Package hotcache keeps /listings and /pool in Redis: the processors write after each commit, and the serving
// nodes read with one round trip per answer. It must never be the only copy of data, nor answer differently
// from the processors: missing, inconsistent, outdated or slow data is a miss.
//
// All keys of a chain carry one hash tag, so that a Redis Cluster keeps them in one slot:
//
//	{lienstream:4663}:meta         hash: partition → its state; h<partition> → its last barriers;
//	                               n<set> → how many members the set's orders have
//	{lienstream:4663}:rows:<p>     hash: deal → header ‖ deal ‖ open bids (row.go)
//	{lienstream:4663}:order:<s>:<set>
//	                               sorted set, all scores 0: the position in sort s (deals.ListingKey) ‖
//	                               partition ‖ lane ‖ term ‖ expiry. The sets are a (all), l<lane> and
//	                               t<token>; what the set does not filter is filtered by the member.
//	{lienstream:4663}:pool         the overview of the pool and its block (pool.go)
//
// A listing takes about 450 bytes for its row and 12 members of 55 to 79 bytes: with Redis's overhead some 2.5
// KiB.
//
// Invariants:
//  1. A partition's state in meta names a block, and the partition's rows and members are exactly those of
//     that block. A script updates all of them or none.
//  2. A script updates a partition only if its state is byte for byte what its writer left. After a flush, a
//     failover to a lagging replica, or a write by another writer, the next write finds another state, does
//     nothing, and the partition is rebuilt from a view.
//  3. While a partition is being rebuilt its state is one that readers reject.
//  4. A page is read as of one block: all partitions have the same number of reverts, N is the lowest of their
//     blocks, and none has changed after N.
//  5. A page is returned only if the caller knows N (by its hash, and it was the lowest watermark at most
//     MaxLag ago), or if N descends from the block that the caller knows. The same holds for the pool
//     overview, which is written only over an earlier one.
//  6. Redis is never accessed from a task's goroutine, nor without a deadline.
package hotcache

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lienstream/lienstream/topics"
)

// Config of reader and writer. Both must agree on Prefix, ChainID and Partitions.
type Config struct {
	URL        string // redis://, rediss:// or unix://; for the embedded one from Embedded
	Cluster    bool   // URL names a node of a Redis Cluster
	Prefix     string // of all keys
	ChainID    uint64
	Partitions int32

	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the machine's network

	// Reader:
	Timeout       time.Duration // of a page, all in all: what a lost Redis may cost a request
	MaxLag        time.Duration // maximum age of an answer's block after it was overtaken
	MaxFailures   int           // failures in a row that open the breaker
	ProbeInterval time.Duration
	MaxScan       int // members that one page may scan
	PoolSize      int // connections

	// Writer:
	WriteTimeout time.Duration
	Beat         time.Duration // interval of checking an idle partition's state
	Takeover     time.Duration // silence of a newer owner, or age of a later value, after which an older owner may write
	MaxPending   int           // maximum pending deals of a partition; above it is rebuilt
	ChunkRows    int           // rows per script, while readers wait
	KeepExpired  time.Duration // how long an expired listing stays; a reorg further back costs a rebuild
	MaxBackoff   time.Duration
}

// DefaultConfig suits a Redis in the same network.
func DefaultConfig() Config {
	return Config{
		Prefix:        topics.DefaultPrefix,
		Timeout:       40 * time.Millisecond,
		MaxLag:        time.Second,
		MaxFailures:   3,
		ProbeInterval: 200 * time.Millisecond,
		MaxScan:       4000,
		PoolSize:      64,
		WriteTimeout:  2 * time.Second,
		Beat:          time.Second,
		Takeover:      10 * time.Second,
		MaxPending:    4096,
		ChunkRows:     128,
		KeepExpired:   time.Hour,
		MaxBackoff:    2 * time.Second,
	}
}

// maxPartitions keeps the first byte of a partition in a member below 0xff: see page.lua.
const maxPartitions = 1 << 12

// Validate reports all errors.
func (c Config) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if _, err := Options(c.URL, nil); err != nil {
		errs = append(errs, err)
	}
	fault(c.Prefix == "", "redis prefix is empty")
	fault(c.ChainID == 0, "chain id is 0")
	fault(c.Partitions < 1 || c.Partitions > maxPartitions, "partitions %d is not in 1..%d", c.Partitions, maxPartitions)
	fault(c.Timeout <= 0 || c.Timeout > 50*time.Millisecond, "redis timeout %s is not in (0, 50ms]", c.Timeout)
	fault(c.MaxLag < 0, "redis max lag %s is negative", c.MaxLag)
	fault(c.MaxFailures < 1, "redis max failures %d is below 1", c.MaxFailures)
	fault(c.ProbeInterval <= 0, "redis probe interval %s is not positive", c.ProbeInterval)
	fault(c.MaxScan < 1, "redis max scan %d is below 1", c.MaxScan)
	fault(c.PoolSize < 1, "redis pool size %d is below 1", c.PoolSize)
	fault(c.WriteTimeout <= 0, "redis write timeout %s is not positive", c.WriteTimeout)
	fault(c.Beat <= 0, "redis heartbeat %s is not positive", c.Beat)
	fault(c.Takeover <= 2*c.Beat, "redis takeover %s is not above two heartbeats of %s", c.Takeover, c.Beat)
	fault(c.MaxPending < 1, "redis max pending %d is below 1", c.MaxPending)
	fault(c.ChunkRows < 1, "redis chunk rows %d is below 1", c.ChunkRows)
	fault(c.KeepExpired < time.Minute, "redis keep expired %s is below a minute", c.KeepExpired)
	fault(c.MaxBackoff <= 0, "redis max backoff %s is not positive", c.MaxBackoff)
	return errors.Join(errs...)
}

// redacted is the URL without its password.
func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(malformed)"
	}
	return u.Redacted()
}

// client makes a client whose operations end within timeout. It connects on first use.
func (c Config) client(timeout time.Duration, pool int) (redis.UniversalClient, error) {
	o, err := Options(c.URL, c.Dial)
	if err != nil {
		return nil, err
	}
	u := &redis.UniversalOptions{
		Addrs:                    []string{o.Addr},
		IsClusterMode:            c.Cluster,
		Username:                 o.Username,
		Password:                 o.Password,
		DB:                       o.DB,
		TLSConfig:                o.TLSConfig,
		Dialer:                   o.Dialer,
		Protocol:                 2,
		DisableIdentity:          true, // saves a round trip per connection
		ContextTimeoutEnabled:    true,
		DialTimeout:              timeout,
		ReadTimeout:              timeout,
		WriteTimeout:             timeout,
		PoolTimeout:              timeout,
		PoolSize:                 pool,
		MaxRetries:               -1, // the deadline leaves no time for retries
		DialerRetries:            1,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
	return redis.NewUniversalClient(u), nil
}

// Options are those of a URL, which no error repeats whole: it may hold a password. dial opens connections; nil: the
// machine's network.
func Options(url string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*redis.Options, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", redacted(url), err)
	}
	if o.TLSConfig != nil {
		o.TLSConfig.MinVersion = tls.VersionTLS12
	}
	if dial != nil {
		o.Dialer = dialer(dial, o.TLSConfig)
	}
	// For these go-redis would look the host up by itself, for each connection, whatever dials.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}

// dialer encrypts what dial opens where conf is not nil: a dialer of ours does it itself.
func dialer(dial func(context.Context, string, string) (net.Conn, error), conf *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	if conf == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(c, conf)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		return secure, nil
	}
}

// The formats are in the names of what is in them: builds of two formats do not read each other's.
const (
	rowFormat  = "2:"
	poolFormat = "2:"
)

// keys are the names of a chain's keys in Redis.
type keys struct {
	meta   string
	rows   string // + partition
	orders string // + sort ":" set
	pool   string
}

func (c Config) keys() keys {
	tag := fmt.Sprintf("{%s:%d}:", c.Prefix, c.ChainID)
	listings := tag + rowFormat
	return keys{meta: listings + "meta", rows: listings + "rows:", orders: listings + "order:", pool: tag + poolFormat + "pool"}
}

var (
	//go:embed page.lua
	pageSource string
	//go:embed write.lua
	writeSource string
	//go:embed move.lua
	moveSource string
	//go:embed pool.lua
	poolSource string

	pageScript  = redis.NewScript(pageSource)
	writeScript = redis.NewScript(writeSource)
	moveScript  = redis.NewScript(moveSource)
	poolScript  = redis.NewScript(poolSource)
)
