package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

func (b *testBroker) consumer(t *testing.T, opt kafka.ConsumerOptions) *kafka.Consumer {
	t.Helper()
	c, err := kafka.NewConsumer(b.cfg, "test", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// fill commits n records to every partition, a few a transaction.
func (b *testBroker) fill(ctx context.Context, tx *kafka.Transactor, n int, value func(i int) []byte) error {
	for i := 0; i < n; {
		if err := tx.Begin(); err != nil {
			return err
		}
		for range min(10, n-i) {
			for p := range b.cat.Partitions {
				tx.Produce(ctx, &kafka.Record{Topic: b.log, Partition: p, Value: value(i)})
			}
			i++
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Partitions come and go and move between clients while others are read, each where it was left: every record is read
// once, in order.
func readersComeAndGo(t *testing.T, b *testBroker) {
	const n = 2000
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := b.consumer(t, kafka.ConsumerOptions{Unread: 4 << 10, MaxPartitionBytes: 2 << 10})
	tx := b.transactor(t, "a")
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.fill(ctx, tx, n, func(i int) []byte { return []byte(strconv.Itoa(i)) }); err != nil {
			t.Error(err)
		}
	})
	for p := range b.cat.Partitions {
		random := rand.New(rand.NewPCG(1, uint64(p)))
		wg.Go(func() {
			next, offset := 0, int64(0)
			var records []*kafka.Record
			for next < n {
				r, err := c.Open(b.log, p, offset)
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				for stay := random.IntN(3); stay >= 0 && next < n; stay-- {
					if random.IntN(4) == 0 {
						kafka.Settle(c)
					}
					if records, err = r.Poll(ctx, records); err != nil {
						t.Errorf("partition %d after %d: %v", p, next, err)
						return
					}
					for _, rec := range records {
						if got := string(rec.Value); got != strconv.Itoa(next) {
							t.Errorf("partition %d: read %s at offset %d, want %d", p, got, rec.Offset, next)
							return
						}
						next, offset = next+1, rec.Offset+1
					}
				}
				r.Close()
			}
		})
	}
	wg.Wait()
}

// fillWithNoise commits records that do not compress.
func (b *testBroker) fillWithNoise(ctx context.Context, t *testing.T, n, size int) {
	t.Helper()
	noise := make([]byte, size)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	if err := b.fill(ctx, b.transactor(t, "a"), n, func(i int) []byte { return fmt.Appendf(nil, "%d %s", i, noise) }); err != nil {
		t.Fatal(err)
	}
}

// Where all partitions hold as much as they may together, none is fetched while what it gave is in use. It goes on from there.
func nothingIsReadAheadOfWhatIsInUse(t *testing.T, b *testBroker) {
	const n = 300
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := b.consumer(t, kafka.ConsumerOptions{Unread: 4 << 10, Held: 1, MaxPartitionBytes: 8 << 10, MaxBytes: 16 << 10})
	b.fillWithNoise(ctx, t, n, 1<<10)
	idle, err := c.Open(b.log, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	inUse, err := idle.Poll(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	busy, err := c.Open(b.log, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	read := func(r *kafka.PartitionReader, next int) {
		var records []*kafka.Record
		for next < n {
			if records, err = r.Poll(ctx, records); err != nil {
				t.Fatalf("after %d: %v", next, err)
			}
			for _, rec := range records {
				if got, _, _ := strings.Cut(string(rec.Value), " "); got != strconv.Itoa(next) {
					t.Fatalf("read %s, want %d", got, next)
				}
				next++
			}
		}
	}
	read(busy, 0)
	if ahead := idle.Buffered(); ahead > 0 {
		t.Errorf("%d bytes were fetched ahead", ahead)
	}
	read(idle, len(inUse))
	busy.Close()
	idle.Close()
	if left := c.Held(); left != 0 {
		t.Errorf("%d bytes count as held in the end", left)
	}
}

// A partition that nobody reads holds up no other, and takes no more memory than it may; it is whole when
// it is read at last.
func unreadHoldsUpNobody(t *testing.T, b *testBroker) {
	const n, size, unread = 300, 1 << 10, 32 << 10
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := b.consumer(t, kafka.ConsumerOptions{Unread: unread, MaxPartitionBytes: 8 << 10, MaxBytes: 16 << 10})
	b.fillWithNoise(ctx, t, n, size)
	open := func(p int32) *kafka.PartitionReader {
		r, err := c.Open(b.log, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	idle, busy := open(0), open(1)
	read := func(r *kafka.PartitionReader) (most int) {
		var records []*kafka.Record
		for next := 0; next < n; {
			var err error
			if records, err = r.Poll(ctx, records); err != nil {
				t.Fatalf("after %d: %v", next, err)
			}
			most = max(most, len(records))
			for _, rec := range records {
				if got, _, _ := strings.Cut(string(rec.Value), " "); got != strconv.Itoa(next) {
					t.Fatalf("read %s at offset %d, want %d", got, rec.Offset, next)
				}
				next++
			}
		}
		return most
	}
	read(busy)
	// Of what is there already no more than Unread and a fetch wait, however long nobody reads.
	if most := read(idle); most*size > 2*unread {
		t.Errorf("%d records of %d bytes waited, where %d bytes may", most, size, unread)
	}
}

// A partition that is opened is read at once, however long the fetch of others waits for records.
func openedIsReadAtOnce(t *testing.T, b *testBroker) {
	c := b.consumer(t, kafka.ConsumerOptions{Wait: time.Minute, Fresh: time.Hour})
	b.commit(t, b.transactor(t, "a"), "1") // to partition 1
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	idle, err := c.Open(b.log, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	for range 3 {
		kafka.Settle(c)
		r, err := c.Open(b.log, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if records, err := r.Poll(ctx, nil); err != nil || len(records) != 1 {
			t.Fatalf("poll: %d records, %v", len(records), err)
		}
		r.Close()
	}
}

// A partition of which much is there waits for no fetch of others that have nothing new, part by part. At its end it is
// read by the client that waits.
func backlogWaitsForNobody(t *testing.T, b *testBroker) {
	const n, size, unread = 300, 1 << 10, 32 << 10
	c := b.consumer(t, kafka.ConsumerOptions{Wait: time.Minute, Fresh: time.Hour, Unread: unread, MaxPartitionBytes: 8 << 10, MaxBytes: 16 << 10})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	b.fillWithNoise(ctx, t, n, size)
	idle, err := c.Open(b.log, 0, n+n/10) // behind ten records a transaction, and its marker
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	busy, err := c.Open(b.log, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the partition is paused, and the other one is fetched", func() bool { return busy.Buffered() >= unread && kafka.Fetched(idle) })
	kafka.Settle(c)
	polltest.Until(t, "the other one has moved", func() bool { return kafka.Fresh(c) == 1 })
	var records []*kafka.Record
	for next := 0; next < n; next += len(records) {
		if records, err = busy.Poll(ctx, records); err != nil {
			t.Fatalf("after %d: %v", next, err)
		}
	}
	kafka.Settle(c) // it was read just now
	kafka.Settle(c)
	polltest.Until(t, "the partition has moved", func() bool { return kafka.Fresh(c) == 0 })
}

// An error of one partition is returned to its reader, and to no other.
func readerErrors(t *testing.T, b *testBroker) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b.commit(t, b.transactor(t, "a"), "1")
	c := b.consumer(t, kafka.ConsumerOptions{})
	good, err := c.Open(b.log, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(b.log, 1, 0); err == nil {
		t.Error("a partition was opened twice")
	}
	bad, err := c.Open(b.log, 2, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bad.Poll(ctx, nil); !errors.Is(err, kafka.ErrOutOfRange) {
		t.Errorf("poll behind the end: %v, want ErrOutOfRange", err)
	}
	if records, err := good.Poll(ctx, nil); err != nil || len(records) != 1 {
		t.Errorf("poll beside it: %d records, %v", len(records), err)
	}
	bad.Close()
	if bad, err = c.Open(b.log, 2, 0); err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := bad.Poll(short, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("poll of an empty partition: %v, want the deadline", err)
	}
	waiting := make(chan error, 1)
	go func() { _, err := good.Poll(ctx, nil); waiting <- err }()
	c.Close()
	if err := <-waiting; !errors.Is(err, kafka.ErrKilled) {
		t.Errorf("poll of a closed consumer: %v, want ErrKilled", err)
	}
	if _, err := c.Open(b.log, 3, 0); !errors.Is(err, kafka.ErrKilled) {
		t.Errorf("open of a closed consumer: %v, want ErrKilled", err)
	}
}

// Several goroutines read back with one client.
func historyIsShared(t *testing.T, b *testBroker) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := b.fill(ctx, b.transactor(t, "a"), 100, func(i int) []byte { return []byte(strconv.Itoa(i)) }); err != nil {
		t.Fatal(err)
	}
	b.decided(t)
	h, err := kafka.NewHistory(b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			var got []string
			err := h.ReadBack(ctx, b.log, int32(i)%b.cat.Partitions, 3, func(r *kafka.Record) bool {
				got = append(got, string(r.Value))
				return true
			})
			if err != nil || !slices.Equal(got, []string{"99", "98", "97"}) {
				t.Errorf("read back %v: %v", got, err)
			}
		})
	}
	wg.Wait()
}
