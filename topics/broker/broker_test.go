package broker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func produce(t *testing.T, addrs []string, value string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *Broker {
	t.Helper()
	b, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestDirectoryGoesOnAfterACleanStop(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	if !b.Fresh() {
		t.Error("a new directory is not fresh")
	}
	if err := b.cluster.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	produce(t, b.Addrs(), "kept")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir)
	if b.Fresh() {
		t.Error("the log of a clean stop is gone")
	}
	if got := b.cluster.PartitionInfo("t", 0).HighWatermark; got != 1 {
		t.Errorf("high watermark %d after a clean stop, want 1", got)
	}
}

func TestDirtyLogIsWiped(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	if err := b.cluster.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	produce(t, b.Addrs(), "lost")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// A process that died left the flag behind.
	if err := os.WriteFile(filepath.Join(dir, dirtyFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir)
	if !b.Fresh() {
		t.Error("the log of a crash is not wiped")
	}
	if b.cluster.PartitionInfo("t", 0) != nil {
		t.Error("a topic of the crashed log is there")
	}
}

func TestSecondBrokerIsRefused(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrLocked) {
		t.Fatalf("second broker: %v, want ErrLocked", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}
