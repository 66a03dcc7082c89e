package kafka_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/certtest"
	"github.com/lienstream/lienstream/topics/kafka"
)

func TestConfigReportsEveryFault(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*kafka.Config)
		want []string // parts of the faults; none: it is valid
	}{
		{"plain", func(*kafka.Config) {}, nil},
		{"nothing", func(c *kafka.Config) { *c = kafka.Config{} }, []string{"brokers: required", "client ID: required", "prefix: required", `compression: ""`, "timeout: 0s", "replication factor: 0"}},
		{
			"all wrong",
			func(c *kafka.Config) {
				c.Brokers, c.Compression, c.Timeout, c.ReplicationFactor = []string{"a"}, "rar", -1, -1
				c.TLS, c.SASL = kafka.TLS{CertFile: "c"}, kafka.SASL{Mechanism: "kerberos"}
			},
			[]string{`"a" is not host:port`, `"rar"`, "timeout", "replication", "the certificate and its key", "not enabled", `"kerberos"`, "user is required", "a password or a password file"},
		},
		{
			"two passwords",
			func(c *kafka.Config) {
				c.SASL = kafka.SASL{Mechanism: "plain", User: "u", Password: "p", PasswordFile: "f"}
			},
			[]string{"not both"},
		},
		{"password without mechanism", func(c *kafka.Config) { c.SASL = kafka.SASL{Password: "p"} }, []string{"no mechanism"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := brokertest.Config([]string{"a:9092"}, "p")
			tc.set(&cfg)
			err := cfg.Validate()
			if len(tc.want) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, part := range tc.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
		})
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	cfg := kafka.Config{Brokers: []string{"a:9092"}, SASL: kafka.SASL{Mechanism: "plain", User: "u", Password: "hunter2"}}
	for _, s := range []string{cfg.String(), fmt.Sprintf("%v", cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg), fmt.Sprintf("%+v", cfg.SASL), fmt.Sprintf("%#v", &cfg.SASL)} {
		if strings.Contains(s, "hunter2") {
			t.Errorf("the password is in %q", s)
		}
	}
}

// Over TLS, with each mechanism and each compression, a transaction arrives; with a wrong password none.
func TestTLSAndSASL(t *testing.T) {
	dir := t.TempDir()
	cert, ca, _ := certtest.New(t)
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("pencil\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ mechanism, kfake, compression string }{
		{"plain", "PLAIN", "none"},
		{"plain", "PLAIN", "gzip"},
		{"scram-sha-256", "SCRAM-SHA-256", "zstd"},
		{"scram-sha-512", "SCRAM-SHA-512", "snappy"},
	} {
		t.Run(tc.mechanism+"/"+tc.compression, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(tc.kfake, "u", "pencil"),
				kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			cfg := brokertest.Config(cluster.ListenAddrs(), "secure")
			cfg.Compression, cfg.Timeout = tc.compression, 5*time.Second
			cfg.TLS = kafka.TLS{Enabled: true, CAFile: ca, ServerName: "localhost"}
			cfg.SASL = kafka.SASL{Mechanism: tc.mechanism, User: "u", PasswordFile: password}
			b := newTestBrokerOf(t, cfg)
			b.commit(t, b.transactor(t, "a"), "secret")
			if got := b.read(t, "secret"); len(got) != 1 {
				t.Errorf("read %q", got)
			}

			wrong := cfg
			wrong.Timeout = time.Second
			wrong.SASL.PasswordFile, wrong.SASL.Password = "", "pen"
			admin, err := kafka.NewAdmin(wrong)
			if err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			if _, err := admin.EndOffsets(t.Context(), b.log); err == nil || strings.Contains(err.Error(), `"pen"`) {
				t.Errorf("with a wrong password: %v", err)
			}
		})
	}
}

// A client that takes the place of another of the same name goes on under the same metrics, and the
// former one's late end takes nothing away.
func TestMetricsOfASuccessor(t *testing.T) {
	b := newTestBroker(t, openEmbedded(t), "metrics")
	reg := prometheus.NewRegistry()
	transactor := func() *kafka.Transactor {
		tx, err := kafka.NewTransactor(b.cfg, "same", kafka.TransactorOptions{Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tx.Close)
		if err := tx.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	first := transactor()
	b.commit(t, first, "1")
	second := transactor()
	b.commit(t, second, "2", "3")
	first.Close()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "lienstream_kafka_produce_records_total" {
			m := f.GetMetric()
			if len(m) != 1 || m[0].GetCounter().GetValue() != 2 {
				t.Errorf("records produced: %v, want those of the second client: 2", m)
			}
			return
		}
	}
	t.Error("lienstream_kafka_produce_records_total is not there")
}

// The fixed schema IDs are on the wire as the registry's, and come back as ours.
func TestSchemaIDsAreTranslated(t *testing.T) {
	b := newTestBroker(t, openEmbedded(t), "ids")
	plain := b.cfg
	b.cfg.SchemaIDs = map[uint32]uint32{topics.SchemaBlockEnd.ID: 1007}
	tx := b.transactor(t, "a")
	begin(t, tx)
	value := topics.AppendRaw(nil, &topics.BlockEnd{Head: 5})
	private := []byte{0, 0, 0, 0, byte(topics.SchemaBlockEnd.ID)}
	tx.Produce(t.Context(), &kafka.Record{Topic: b.log, Partition: 1, Value: append([]byte(nil), value...)})
	tx.Produce(t.Context(), &kafka.Record{Topic: b.table, Partition: 1, Key: []byte("k"), Value: append([]byte(nil), private...)})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := func(cfg kafka.Config, topic string) (v []byte) {
		if err := kafka.ReadBack(t.Context(), cfg, topic, 1, 1, func(r *kafka.Record) bool { v = r.Value; return true }); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got := last(b.cfg, b.log); string(got) != string(value) {
		t.Errorf("read back %x, want %x", got, value)
	}
	if got := last(plain, b.log); string(got[:5]) != string([]byte{0, 0, 0, 1007 >> 8, 1007 & 0xff}) {
		t.Errorf("on the wire: %x", got)
	}
	if got := last(plain, b.table); string(got) != string(private) {
		t.Errorf("a changelog record was rewritten: %x", got)
	}
}
