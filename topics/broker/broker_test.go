package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// A scratch log goes with its run, however that ended.
func TestScratchIsOfOneRun(t *testing.T) {
	dir := t.TempDir()
	scratch := func() *Broker {
		b, err := Open(Config{Dir: dir, Scratch: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	b := scratch()
	if err := b.cluster.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	produce(t, b.Addrs(), "gone")
	b.cluster.Close() // as if the process had died
	b.release()
	b.dir = ""
	b = scratch()
	if !b.Fresh() || b.cluster.PartitionInfo("t", 0) != nil {
		t.Error("the log of another run is there")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, logDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is left behind: %v", err)
	}
}

// What is written for ever takes no more than topics must keep, twice, and readers at the end notice nothing.
func TestLogStaysSmall(t *testing.T) {
	b, err := Open(Config{Dir: t.TempDir(), Scratch: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	const keep = 256 << 10
	for name, configs := range map[string]map[string]string{
		"kept":      {"retention.bytes": strconv.Itoa(keep), "segment.bytes": strconv.Itoa(keep / 4)},
		"compacted": {"cleanup.policy": "compact", "segment.bytes": strconv.Itoa(keep / 4)},
	} {
		if err := b.cluster.CreateTopic(name, 1, configs); err != nil {
			t.Fatal(err)
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ConsumeTopics("kept", "compacted"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	left, sum, read := int64(keep), 0, 0
	for round := range 40 {
		value := make([]byte, 32<<10)
		value[0] = byte(round)
		for _, topic := range []string{"kept", "compacted"} {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte{byte(round % 2)}, Value: value}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			sum += len(value)
		}
		for read < 2*(round+1) {
			fetches := cl.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			read += fetches.NumRecords()
		}
		if left, err = b.clean(left); err != nil {
			t.Fatal(err)
		}
		size, err := b.size()
		if err != nil {
			t.Fatal(err)
		}
		if size > 4*keep {
			t.Fatalf("after %d bytes the log has %d", sum, size)
		}
	}
	if b.cluster.PartitionInfo("kept", 0).LogStartOffset == 0 || b.cluster.PartitionInfo("compacted", 0).LogStartOffset == 0 {
		t.Error("nothing was dropped")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Run(ctx); err != nil {
		t.Error(err)
	}
}

// kfake takes the newest record of a key for its value even if the transaction is open, and would lose the one before.
func TestNothingIsCompactedUnderAnOpenTransaction(t *testing.T) {
	b := open(t, "")
	if err := b.cluster.CreateTopic("t", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	write := func(value string, end kgo.TransactionEndTry) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), kgo.KeyStringRecord("key", value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if end == kgo.TryAbort && b.Compact("t") {
			t.Fatal("compacted while a transaction was open")
		}
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	write("first", kgo.TryCommit)
	write("second", kgo.TryCommit)
	write("aborted", kgo.TryAbort)
	write("third", kgo.TryCommit)
	if !b.Compact("t") {
		t.Fatal("not compacted, and no transaction is open")
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...), kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var values []string
	for len(values) == 0 || values[len(values)-1] != "third" {
		fetched := reader.PollFetches(t.Context())
		if err := fetched.Err(); err != nil {
			t.Fatal(err)
		}
		fetched.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	if slices.Contains(values, "first") || slices.Contains(values, "second") || slices.Contains(values, "aborted") {
		t.Errorf("after a compaction a reader gets %q, want only the newest", values)
	}
}

// A fetch that is cut by the limit of a whole answer gives no aborted record away.
func TestAbortedRecordsStayHidden(t *testing.T) {
	b := open(t, t.TempDir())
	if err := b.cluster.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	tx, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...), kgo.TransactionalID("x"), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	const each = 1000
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryCommit, kgo.TryCommit} {
		value := make([]byte, each)
		value[0] = map[kgo.TransactionEndTry]byte{kgo.TryAbort: 'a', kgo.TryCommit: 'c'}[end]
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(t.Context(), kgo.SliceRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := tx.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...), kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxBytes(5*each/2))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for committed := 0; committed < 3; {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fetches.Records() {
			if committed++; r.Value[0] == 'a' {
				t.Fatal("an aborted record was read")
			}
		}
	}
}
