package roles

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/peterbourgon/ff/v4"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/processors/market/hotcache"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/serving/indexer"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Settings are shared by several roles.
type Settings struct {
	config     string
	check      bool
	logLevel   string
	logFormat  string
	ops        string
	deployment string
	memory     memory.Budget // of this process; 0: what its role takes by itself

	ChainID          uint64
	DataDir          string
	MaxHeadAge       time.Duration
	Instance         string
	CursorSecretFile string
	cursorSecret     string // of `up`, if no file is named
	queryTokenFile   string

	notify    notifySettings
	staffFile string // who answers bug reports

	drainDelay     time.Duration
	trustedProxies []string

	kafka      kafka.Config
	registry   registrySettings
	partitions int32
	rpc        rpc.Config // endpoints and timeout; the ingester has more settings
	endpoints  []string
	redis      string
}

func newSettings() *Settings {
	return &Settings{
		logLevel: "auto", logFormat: "auto", ops: ":9464", DataDir: "data",
		ChainID: contracts.DefaultChainID, MaxHeadAge: indexer.DefaultConfig().MaxHeadAge,
		notify: newNotifySettings(), kafka: kafka.DefaultConfig(), partitions: topics.DefaultPartitions, rpc: rpc.DefaultConfig(),
	}
}

func (s *Settings) flags(f *Flags) {
	bind(f, &s.config, "config", "YAML file with values of these flags")
	bind(f, &s.check, "check", "validate the configuration and exit")
	bind(f, &s.logLevel, "log-level", "debug, info, warn, error or auto (info; warn for `up` on a terminal)")
	bind(f, &s.logFormat, "log-format", "json, console or auto (console on a terminal, else json)")
	bind(f, &s.ops, "ops-addr", "listen address of /metrics, /healthz, /readyz, /debug/pprof, /schema-registry (unless --schema-registry names another) and /outbox (emails of an embedded chain, which are not sent)")
	f.add(ff.FlagConfig{LongName: "memory", Usage: "memory target of the process, such as 512MiB, from which the sizes of its heap, caches, commits and fetches follow; default: 60 % of the container's limit, at most 2GiB; without a limit what its role needs", Value: &s.memory, NoDefault: true, Placeholder: "SIZE"})
	bind(f, &s.ChainID, "chain-id", "chain ID")
	bind(f, &s.DataDir, "data-dir", "directory of the state")
	bind(f, &s.deployment, "deployment", "deployment file; default: contracts/deployments/<chain ID>.json, in `up` with the embedded chain deployment.json in --data-dir")
	bind(f, &s.Instance, "instance", "unique name of this node within its role; default: the host name")
	bind(f, &s.MaxHeadAge, "max-head-age", "age of the chain's head from which a node is unhealthy")
	bind(f, &s.CursorSecretFile, "cursor-secret-file", "file with the secret that authenticates pagination cursors; the same on all nodes")

	bind(f, &s.queryTokenFile, "query-token-file", "file with the token of the processors' read API, the same on all nodes; required unless query-addr is on loopback (the default of `up` without this file)")
	bind(f, &s.drainDelay, "drain-delay", "how long a service keeps serving after a stop signal, so that load balancers can take it out")
	bindList(f, &s.trustedProxies, "trusted-proxies", "networks of trusted proxies, such as 10.0.0.0/8, whose X-Forwarded-For names the client")

	bindList(f, &s.endpoints, "rpc", "JSON-RPC endpoints of the chain, http or ws, comma-separated; http and ws of one URL are one node")
	f.secret("rpc")
	bind(f, &s.rpc.Timeout, "rpc-timeout", "timeout of a JSON-RPC request")

	bindList(f, &s.kafka.Brokers, "kafka", "Kafka brokers, host:port, comma-separated")
	bind(f, &s.kafka.Prefix, "kafka-prefix", "prefix of the topic names")
	bind(f, &s.partitions, "kafka-partitions", "number of partitions of the raw topic; it cannot be changed later")
	bind(f, &s.kafka.ReplicationFactor, "kafka-replication", "replication factor of the topics created by `topics apply`")
	bind(f, &s.kafka.Compression, "kafka-compression", "compression: none, lz4, zstd, snappy or gzip")
	bind(f, &s.kafka.TLS.Enabled, "kafka-tls", "encrypt connections to Kafka")
	bind(f, &s.kafka.TLS.CAFile, "kafka-tls-ca", "file with trusted CA certificates; default: the system's")
	bind(f, &s.kafka.TLS.CertFile, "kafka-tls-cert", "file with the client certificate")
	bind(f, &s.kafka.TLS.KeyFile, "kafka-tls-key", "file with the client key")
	bind(f, &s.kafka.SASL.Mechanism, "kafka-sasl", "SASL mechanism: plain, scram-sha-256 or scram-sha-512")
	bind(f, &s.kafka.SASL.User, "kafka-user", "SASL user")
	bind(f, &s.kafka.SASL.PasswordFile, "kafka-password-file", "file with the SASL password")

	s.registry.flags(f)
	s.notify.flags(f)
	bind(f, &s.staffFile, "support-staff-file", "for processors: file of the support staff, one line each with a name and the address of its key, the same on all nodes; without it any key is accepted, and the audit log names it")

	bind(f, &s.redis, "redis", "URL of Redis, redis:// or rediss://")
	f.secret("redis")
}

// Servers are the servers that a process connects to: named by flags, or embedded in `up`.
type Servers struct {
	RPC        []string // JSON-RPC endpoints of the chain; may contain keys, so they are never logged
	Brokers    []string // of Kafka
	Prefix     string   // of the topics
	Redis      string   // URL; empty: none
	SMTP       string   // host:port, for email alerts; empty: none
	Deployment string   // file
}

func (s *Settings) servers() Servers {
	return Servers{RPC: s.endpoints, Brokers: s.kafka.Brokers, Prefix: s.kafka.Prefix, Redis: s.redis, SMTP: s.notify.smtp, Deployment: s.deployment}
}

// Kafka is how to connect to the brokers.
func (p *Process) Kafka() kafka.Config {
	c := p.kafka
	c.Brokers, c.Prefix, c.Logger = p.Servers.Brokers, p.Servers.Prefix, p.Log
	c.Dial, c.ReadFile = p.Dial, p.readFile
	return c
}

// Catalogue is the catalogue of topics.
func (p *Process) Catalogue() topics.Catalogue {
	return topics.Catalogue{Prefix: p.Servers.Prefix, ChainID: p.ChainID, Partitions: p.partitions, MaxBytes: p.topicBytes}
}

// RPC is how to connect to the chain's nodes.
func (p *Process) RPC() rpc.Config {
	c := p.rpc
	c.ChainID, c.Dial, c.Endpoints = p.ChainID, p.Dial, rpc.Endpoints(p.Servers.RPC)
	return c
}

// Deployment reads the addresses of the contracts.
func (p *Process) Deployment() (contracts.Deployment, error) {
	file := p.Servers.Deployment
	text, err := p.readFile(file)
	if err != nil {
		return contracts.Deployment{}, fmt.Errorf("deployment: %w", err)
	}
	d, err := contracts.ReadDeploymentFile(file, bytes.NewReader(text))
	if err != nil {
		return d, err
	}
	if d.ChainID != p.ChainID {
		return d, fmt.Errorf("%s: chainId is %d, --chain-id is %d", file, d.ChainID, p.ChainID)
	}
	return d, nil
}

// checkedDeployment is the deployment for a Check. One that cannot be read is replaced by one without faults, so that
// the Check reports all other faults too.
func (p *Process) checkedDeployment() (contracts.Deployment, error) {
	d, err := p.Deployment()
	if err != nil {
		d = faultless(p.ChainID)
	}
	return d, err
}

func faultless(chainID uint64) contracts.Deployment {
	return contracts.Deployment{
		ChainID: chainID, DealVault: common.Address{1}, AssetRegistry: common.Address{2}, USDG: common.Address{3},
		PoolManager: common.Address{4}, PositionManager: common.Address{5}, StateView: common.Address{6}, V4Quoter: common.Address{7},
	}
}

// distinct flattens joined errors and drops those that say the same: several parts may check one flag.
func distinct(err error) error {
	seen := map[string]bool{}
	var all []error
	var walk func(error)
	walk = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
			for _, e := range joined.Unwrap() {
				walk(e)
			}
		} else if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			all = append(all, err)
		}
	}
	walk(err)
	return errors.Join(all...)
}

// hotcache is how to connect to Redis.
func (p *Process) hotcache() hotcache.Config {
	c := hotcache.DefaultConfig()
	c.URL, c.ChainID, c.Prefix, c.Partitions = p.Servers.Redis, p.ChainID, p.Servers.Prefix, p.partitions
	c.Dial = p.Dial
	return c
}

// checkServers returns all errors of the flags about servers. Kafka is required except for `up`.
func (p *Process) checkServers(kafkaNeeded bool) error {
	var errs []error
	if kafkaNeeded || len(p.Servers.Brokers) > 0 {
		errs = append(errs, p.Kafka().Validate())
	}
	if p.partitions < 1 {
		errs = append(errs, fmt.Errorf("kafka-partitions: %d is not positive", p.partitions))
	}
	if err := httpapi.ValidListen(p.ops); err != nil {
		errs = append(errs, fmt.Errorf("ops-addr: %w", err))
	}
	if p.Servers.Redis != "" {
		errs = append(errs, p.hotcache().Validate())
	}
	errs = append(errs, p.registry.validate())
	if p.MaxHeadAge <= 0 {
		errs = append(errs, fmt.Errorf("max-head-age: %s is not positive", p.MaxHeadAge))
	}
	return errors.Join(errs...)
}
