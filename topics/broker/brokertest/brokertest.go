// Package brokertest starts brokers of both sorts for tests; they are gone when the test ends. Nothing that
// runs in production imports it.
package brokertest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lienstream/lienstream/topics/broker"
)

// Kinds names the brokers that a test of a promise runs on: what must hold, holds on both.
var Kinds = []string{"kfake", "apache"}

// Start starts a broker of that kind and returns its addresses.
func Start(t testing.TB, kind string) []string {
	t.Helper()
	if kind == "apache" {
		return Apache(t).Addrs()
	}
	b, err := broker.Open(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.Addrs()
}

// Apache starts Apache Kafka. The test is skipped where it is not installed, but never in CI.
func Apache(t testing.TB, listeners ...broker.Listener) *broker.Apache {
	t.Helper()
	if testing.Short() {
		t.Skip("apache kafka: not with -short")
	}
	libs, err := libsDir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := broker.StartApache(ctx, broker.ApacheConfig{LibsDir: libs, Dir: t.TempDir(), Listeners: listeners})
	if errors.Is(err, broker.ErrNoKafka) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Kill)
	return a
}

// libsDir is where the jars are: LIENSTREAM_KAFKA_LIBS, or the module's docker/kafka/libs.
func libsDir() (string, error) {
	if dir := os.Getenv("LIENSTREAM_KAFKA_LIBS"); dir != "" {
		return dir, nil
	}
	out, err := exec.Command("go", "env", "GOMOD").Output() //nolint:noctx // local and short
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "docker", "kafka", "libs"), nil
}
