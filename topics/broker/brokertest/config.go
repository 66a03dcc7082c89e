package brokertest

import (
	"testing"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Config says how to connect to brokers.
func Config(addrs []string, prefix string) kafka.Config {
	cfg := kafka.DefaultConfig()
	cfg.Brokers, cfg.Prefix = addrs, prefix
	return cfg
}

// Apply creates topics.
func Apply(t testing.TB, cfg kafka.Config, all []topics.Topic) {
	t.Helper()
	admin, err := kafka.NewAdmin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.Apply(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}
