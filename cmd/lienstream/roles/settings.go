package roles

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/processors/market/hotcache"
	"github.com/lienstream/lienstream/serving/indexer"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Settings are what more than one role goes by.
type Settings struct {
	config     string
	check      bool
	logLevel   string
	logFormat  string
	ops        string
	deployment string

	ChainID          uint64
	DataDir          string
	MaxHeadAge       time.Duration
	Instance         string
	CursorSecretFile string
	cursorSecret     string // of `up`, where no file is named
	queryTokenFile   string

	notify    notifySettings
	staffFile string // who answers bug reports

	drainDelay     time.Duration
	trustedProxies []string

	kafka      kafka.Config
	registry   registrySettings
	partitions int32
	rpc        rpc.Config // endpoints and timeout; the ingester's has more
	endpoints  []string
	redis      string
}

func newSettings() *Settings {
	return &Settings{
		logLevel: "auto", logFormat: "auto", ops: ":9464", DataDir: "data",
		ChainID: contracts.DefaultChainID, MaxHeadAge: indexer.DefaultConfig().MaxHeadAge,
		notify: newNotifySettings(), kafka: kafka.DefaultConfig(), partitions: topics.DefaultPartitions, rpc: rpc.Config{}.WithDefaults(),
	}
}

func (s *Settings) flags(f *Flags) {
	bind(f, &s.config, "config", "YAML file of these flags")
	bind(f, &s.check, "check", "validate the configuration and exit")
	bind(f, &s.logLevel, "log-level", "debug, info, warn, error or auto: info, and warn for up on a terminal")
	bind(f, &s.logFormat, "log-format", "json, console or auto: console on a terminal")
	bind(f, &s.ops, "ops-addr", "where /metrics, /healthz, /readyz and /debug/pprof are served")
	bind(f, &s.ChainID, "chain-id", "chain ID")
	bind(f, &s.DataDir, "data-dir", "where state is kept")
	bind(f, &s.deployment, "deployment", "deployment file; contracts/deployments/<chain ID>.json by default")
	bind(f, &s.Instance, "instance", "name of this node among the others of its role; the host name by default")
	bind(f, &s.MaxHeadAge, "max-head-age", "age of the head from which a node is not healthy")
	bind(f, &s.CursorSecretFile, "cursor-secret-file", "file of the secret that authenticates cursors, alike on all nodes")

	bind(f, &s.queryTokenFile, "query-token-file", "file of the secret by which serving nodes read processors, alike on all nodes; none: on loopback only")
	bind(f, &s.drainDelay, "drain-delay", "how long a service that is told to stop goes on, so that balancers learn of it")
	bindList(f, &s.trustedProxies, "trusted-proxies", "networks, as 10.0.0.0/8, whose X-Forwarded-For says who a client is")

	bindList(f, &s.endpoints, "rpc", "JSON-RPC endpoints of the chain, http or ws, comma-separated")
	f.secret("rpc")
	bind(f, &s.rpc.Timeout, "rpc-timeout", "time that an endpoint has for an answer")

	bindList(f, &s.kafka.Brokers, "kafka", "Kafka brokers, host:port, comma-separated")
	bind(f, &s.kafka.Prefix, "kafka-prefix", "first part of the names of topics")
	bind(f, &s.partitions, "kafka-partitions", "partitions of the raw topic, fixed for good")
	bind(f, &s.kafka.ReplicationFactor, "kafka-replication", "replication factor of topics that are created")
	bind(f, &s.kafka.Compression, "kafka-compression", "none, lz4, zstd, snappy or gzip")
	bind(f, &s.kafka.TLS.Enabled, "kafka-tls", "encrypt connections to Kafka")
	bind(f, &s.kafka.TLS.CAFile, "kafka-tls-ca", "file of trusted certificates, the system ones by default")
	bind(f, &s.kafka.TLS.CertFile, "kafka-tls-cert", "file of the client certificate")
	bind(f, &s.kafka.TLS.KeyFile, "kafka-tls-key", "file of the client key")
	bind(f, &s.kafka.SASL.Mechanism, "kafka-sasl", "plain, scram-sha-256 or scram-sha-512")
	bind(f, &s.kafka.SASL.User, "kafka-user", "SASL user")
	bind(f, &s.kafka.SASL.PasswordFile, "kafka-password-file", "file of the SASL password")

	s.registry.flags(f)
	s.notify.flags(f)
	bind(f, &s.staffFile, "support-staff-file", "file of who answers bug reports, at the processors: a name and the address of its key a line, alike on all nodes; none: any key, and the audit says which")

	bind(f, &s.redis, "redis", "URL of Redis, redis:// or rediss://")
	f.secret("redis")
}

// Servers are what a process connects to: those that flags name, or the embedded ones of `up`.
type Servers struct {
	RPC        []string // JSON-RPC endpoints of the chain; may hold keys, so they are never logged
	Brokers    []string // of Kafka
	Prefix     string   // of the topics
	Redis      string   // URL; empty: none
	Deployment string   // file
}

func (s *Settings) servers() Servers {
	named := Servers{RPC: s.endpoints, Brokers: s.kafka.Brokers, Prefix: s.kafka.Prefix, Redis: s.redis, Deployment: s.deployment}
	if named.Deployment == "" {
		named.Deployment = filepath.Join("contracts", "deployments", fmt.Sprintf("%d.json", s.ChainID))
	}
	return named
}

// Kafka is how to reach the brokers.
func (p *Process) Kafka() kafka.Config {
	c := p.kafka
	c.Brokers, c.Prefix, c.Logger = p.Servers.Brokers, p.Servers.Prefix, p.Log
	c.Dial, c.ReadFile = p.Dial, p.readFile
	return c
}

// Catalogue is the topics.
func (p *Process) Catalogue() topics.Catalogue {
	return topics.Catalogue{Prefix: p.Servers.Prefix, ChainID: p.ChainID, Partitions: p.partitions}
}

// RPC is how to reach the chain's nodes.
func (p *Process) RPC() rpc.Config {
	c := p.rpc
	c.ChainID, c.Dial = p.ChainID, p.Dial
	for _, url := range p.Servers.RPC {
		c.Endpoints = append(c.Endpoints, rpc.Endpoint{URL: url})
	}
	return c
}

// Deployment says where the contracts are.
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

// hotcache is how both ends of the hot cache reach Redis.
func (p *Process) hotcache() hotcache.Config {
	c := hotcache.DefaultConfig()
	c.URL, c.ChainID, c.Prefix, c.Partitions = p.Servers.Redis, p.ChainID, p.Servers.Prefix, p.partitions
	c.Dial = p.Dial
	return c
}

// checkServers returns every fault of what flags say of servers. Kafka must be named but for `up`.
func (p *Process) checkServers(kafkaNeeded bool) error {
	var errs []error
	if kafkaNeeded || len(p.Servers.Brokers) > 0 {
		errs = append(errs, p.Kafka().Validate())
	}
	if p.partitions < 1 {
		errs = append(errs, fmt.Errorf("kafka-partitions: %d is not positive", p.partitions))
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
