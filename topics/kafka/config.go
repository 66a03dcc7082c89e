package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/twmb/franz-go/plugin/kzap"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
)

// Config says how to connect to the brokers. Start from DefaultConfig.
type Config struct {
	Brokers     []string // host:port
	ClientID    string
	Prefix      string // of the topic names
	TLS         TLS
	SASL        SASL
	Compression string        // snappy, none, lz4, zstd or gzip; lz4 takes 4 MB per writer
	Timeout     time.Duration // of a call to a broker, including dials and retries

	// ReplicationFactor of the topics that Apply creates; with 3 or more, a record must reach two replicas.
	ReplicationFactor int16

	// SchemaIDs translates the fixed schema IDs of package topics to those of a schema registry. Empty: the
	// fixed IDs are used.
	SchemaIDs map[uint32]uint32

	Logger *zap.Logger // of the Kafka client

	Dial     Dial                         // nil: the machine's network
	ReadFile func(string) ([]byte, error) // reads certificates and the password

	cluster *cluster // shared by all copies; nil: each client finds out by itself who is silent
}

// TLS encrypts the connections. Without a CAFile the system's roots are trusted.
type TLS struct {
	Enabled    bool
	CAFile     string
	CertFile   string // client certificate; requires KeyFile
	KeyFile    string
	ServerName string
}

// SASL authenticates the client. The password is read from PasswordFile if that is set.
type SASL struct {
	Mechanism    string // plain, scram-sha-256 or scram-sha-512; empty: none
	User         string
	Password     string
	PasswordFile string
}

// DefaultConfig lacks only the brokers.
func DefaultConfig() Config {
	return Config{
		ClientID: "lienstream", Prefix: topics.DefaultPrefix, Compression: "snappy", Timeout: 10 * time.Second,
		ReplicationFactor: 1, Logger: zap.NewNop(), ReadFile: os.ReadFile, cluster: newCluster(), //nolint:forbidigo // the default
	}
}

// Validate reports all errors at once.
func (c Config) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("kafka: "+format, args...))
		}
	}
	fault(len(c.Brokers) == 0, "brokers: required")
	for _, b := range c.Brokers {
		_, _, err := net.SplitHostPort(b)
		fault(err != nil, "brokers: %q is not host:port", b)
	}
	fault(!slices.Contains([]string{"none", "lz4", "zstd", "snappy", "gzip"}, c.Compression),
		"compression: %q is not none, lz4, zstd, snappy or gzip", c.Compression)
	fault(c.ClientID == "", "client ID: required")
	fault(c.Prefix == "", "prefix: required")
	fault(c.Timeout <= 0, "timeout: %s is not positive", c.Timeout)
	fault(c.ReplicationFactor < 1, "replication factor: %d is not positive", c.ReplicationFactor)
	fault((c.TLS.CertFile == "") != (c.TLS.KeyFile == ""), "tls: the certificate and its key must be set together")
	fault(!c.TLS.Enabled && c.TLS != TLS{}, "tls: files or a server name are set, but tls is not enabled")
	if c.SASL.Mechanism != "" {
		fault(!slices.Contains([]string{"plain", "scram-sha-256", "scram-sha-512"}, c.SASL.Mechanism),
			"sasl: mechanism %q is not plain, scram-sha-256 or scram-sha-512", c.SASL.Mechanism)
		fault(c.SASL.User == "", "sasl: user is required")
		fault(c.SASL.Password == "" && c.SASL.PasswordFile == "", "sasl: a password or a password file is required")
		fault(c.SASL.Password != "" && c.SASL.PasswordFile != "", "sasl: set a password or a password file, not both")
	} else {
		fault(c.SASL != SASL{}, "sasl: a user or password is set, but no mechanism")
	}
	return errors.Join(errs...)
}

// String is the configuration without secrets, for logs.
func (c Config) String() string {
	s := fmt.Sprintf("brokers=%s compression=%s tls=%t", strings.Join(c.Brokers, ","), c.Compression, c.TLS.Enabled)
	if c.SASL.Mechanism != "" {
		s += " " + c.SASL.String()
	}
	return s
}

// GoString keeps %#v from printing what String hides.
func (c Config) GoString() string { return c.String() }

// String is the mechanism and the user.
func (s SASL) String() string {
	return fmt.Sprintf("sasl=%s user=%s password=***", s.Mechanism, s.User)
}

// GoString keeps %#v from printing what String hides.
func (s SASL) GoString() string { return s.String() }

// client makes a client with its own connections.
func (c Config) client(name string, reg prometheus.Registerer, opts ...kgo.Opt) (*kgo.Client, *dialer, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	var tlsConfig *tls.Config
	if c.TLS.Enabled {
		var err error
		if tlsConfig, err = c.TLS.config(c.ReadFile); err != nil {
			return nil, nil, err
		}
	}
	d := newDialer(c, tlsConfig)
	all := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.Dialer(d.dial),
		kgo.RetryTimeout(c.Timeout),
		kgo.RequestRetries(math.MaxInt32), // for RetryTimeout: a connection to a silent broker fails at once
		kgo.RequestTimeoutOverhead(c.silentTimeout()),
		kgo.ProduceRequestTimeout(min(c.Timeout, replicateTimeout)),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RetryBackoffFn(backoff),
		kgo.DisableClientMetrics(), // these are metrics for brokers; ours are in /metrics
		kgo.WithLogger(&untilKilled{kzap.New(c.Logger.Named("kgo"), kzap.Level(kgo.LogLevelWarn)), d}),
	}
	if c.SASL.Mechanism != "" {
		m, err := c.SASL.option(c.ReadFile)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, m)
	}
	if reg != nil {
		all = append(all, kgo.WithHooks(metricsHook(reg, name)))
	}
	cl, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		return nil, nil, fmt.Errorf("kafka client %s: %w", name, err)
	}
	return cl, d, nil
}

// silentTimeout is how long a broker may be silent beyond what the request itself lets it wait. After that its
// connection is given up, and the request is sent again, to whoever leads or coordinates by then. A transaction may meet a
// frozen broker several times: as the leader, and as its coordinator.
const silentTimeout = time.Second

func (c Config) silentTimeout() time.Duration { return min(c.Timeout, silentTimeout) }

// replicateTimeout is how long a leader may wait for its followers before it says so and is asked again.
const replicateTimeout = 500 * time.Millisecond

// backoff is how long a client waits after so many failures in a row. By the client's default that is up to 5 s, as much as
// brokers take to agree on who leads in place of one that was lost.
func backoff(failures int) time.Duration {
	most := minBackoff << min(max(failures-1, 0), 3)
	return most - rand.N(most/4)
}

const minBackoff = 50 * time.Millisecond

// metadataMinAge is the minimum interval of metadata requests of a client.
const metadataMinAge = 100 * time.Millisecond

// leastMetadataAge is metadataMinAge for clients that somebody waits for: the minimum that franz-go allows.
const leastMetadataAge = 10 * time.Millisecond

func (t TLS) config(read func(string) ([]byte, error)) (*tls.Config, error) {
	conf := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := read(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("kafka tls ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka tls ca: no certificate in %s", t.CAFile)
		}
	}
	if t.CertFile != "" {
		public, err1 := read(t.CertFile)
		key, err2 := read(t.KeyFile)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("kafka tls certificate: %w", err)
		}
		cert, err := tls.X509KeyPair(public, key)
		if err != nil {
			return nil, fmt.Errorf("kafka tls certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf, nil
}

func (s SASL) option(read func(string) ([]byte, error)) (kgo.Opt, error) {
	password := s.Password
	if s.PasswordFile != "" {
		b, err := read(s.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("kafka sasl password: %w", err)
		}
		password = strings.TrimRight(string(b), "\r\n")
	}
	switch s.Mechanism {
	case "plain":
		return kgo.SASL(plain.Auth{User: s.User, Pass: password}.AsMechanism()), nil
	case "scram-sha-256":
		return kgo.SASL(scram.Auth{User: s.User, Pass: password}.AsSha256Mechanism()), nil
	default:
		return kgo.SASL(scram.Auth{User: s.User, Pass: password}.AsSha512Mechanism()), nil
	}
}

func (c Config) codec() kgo.CompressionCodec {
	switch c.Compression {
	case "none":
		return kgo.NoCompression()
	case "zstd":
		return kgo.ZstdCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "gzip":
		return kgo.GzipCompression()
	default:
		return kgo.Lz4Compression()
	}
}
