package hotcache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/freeport"
	"github.com/lienstream/lienstream/topics/polltest"
)

// stack is a writer and a reader over a node, running.
type stack struct {
	*node
	w *Writer
	r *Cache
}

func newStack(t *testing.T, cfg Config, incarnation int64) *stack {
	t.Helper()
	n, closeNode := newNode(t, cfg.Partitions, incarnation)
	t.Cleanup(closeNode)
	s := &stack{node: n, w: newTestWriter(t, cfg, n), r: newTestReader(t, cfg)}
	s.observe(s.w)
	return s
}

func (s *stack) run(t *testing.T) {
	polltest.Run(t, s.w.Run)
	polltest.Run(t, s.r.Run)
}

var newest = query.ListingsQuery{Limit: 50}

// answers waits until Redis answers as of the block.
func (s *stack) answers(t *testing.T, at topics.BlockRef, items int) {
	t.Helper()
	polltest.Until(t, fmt.Sprintf("an answer of %d items at block %d", items, at.Number), func() bool {
		got, err := s.r.Listings(context.Background(), newest, s.lowest())
		if err != nil || got.At != at {
			return false
		}
		if len(got.Value.Items) != items {
			t.Fatalf("%d items at block %d, want %d", len(got.Value.Items), at.Number, items)
		}
		return true
	})
}

// misses asks, and checks that the answer is a miss and quick: a machine that is busy with other tests may be
// slow now and then, not every time.
func (s *stack) misses(t *testing.T) {
	t.Helper()
	var took time.Duration
	for range 10 {
		start := time.Now()
		_, err := s.r.Listings(context.Background(), newest, s.lowest())
		took = time.Since(start)
		if miss := Miss(""); !errors.As(err, &miss) {
			t.Fatalf("no miss: %v", err)
		}
		if took <= 50*time.Millisecond {
			return
		}
	}
	t.Errorf("a miss took %s", took)
}

// faultConfig leaves a busy machine the half of what a request may lose.
func faultConfig(url string) Config {
	cfg := testConfig(url, 4)
	cfg.Timeout = 25 * time.Millisecond
	cfg.ProbeInterval, cfg.Beat, cfg.Takeover = 20*time.Millisecond, 20*time.Millisecond, 200*time.Millisecond
	cfg.WriteTimeout, cfg.MaxBackoff = 200*time.Millisecond, 100*time.Millisecond
	return cfg
}

// patientConfig is for what is not about time: see page.
func patientConfig(url string) Config {
	cfg := faultConfig(url)
	cfg.Timeout, cfg.MaxFailures = 50*time.Millisecond, math.MaxInt
	return cfg
}

// page asks again while the machine is too busy with other tests to answer in time.
func (s *stack) page(wm query.Watermark) (query.Answer[query.Page[query.DealWithBids]], error) {
	for {
		answer, err := s.r.Listings(context.Background(), newest, wm)
		if !errors.Is(err, MissTimeout) {
			return answer, err
		}
	}
}

func listAll(s *stack, t *testing.T, at topics.BlockRef, ids ...uint64) {
	t.Helper()
	var events []contracts.Event
	for _, id := range ids {
		events = append(events, listing(id))
	}
	s.land(at, events...)
	s.settle(t)
}

func TestFlushedRedisIsBuiltAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		s := newStack(t, faultConfig(url), 1)
		s.run(t)
		listAll(s, t, block(2, 0), 1, 2, 3)
		s.answers(t, block(2, 0), 3)
		for rounds := 1; rounds <= 3 || missed(s.r, MissCold) == 0; rounds++ { // no commit tells: a beat does
			if rounds > 1000 {
				t.Fatal("no miss was counted as cold")
			}
			if err := admin(t, url).FlushAll(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
			_, _ = s.page(s.lowest()) // a miss, if it comes before the beat
			s.answers(t, block(2, 0), 3)
		}
		if testutil.ToFloat64(s.w.metrics.rebuilds.WithLabelValues("mismatch")) == 0 {
			t.Error("no rebuild was counted")
		}
	})
}

func TestKilledRedis(t *testing.T) {
	redis := startRedis(t)
	s := newStack(t, faultConfig(redis.url()), 1)
	s.run(t)
	listAll(s, t, block(2, 0), 1, 2)
	s.answers(t, block(2, 0), 2)

	redis.kill()
	listAll(s, t, block(3, 0), 3) // the tasks go on
	for range 20 {
		s.misses(t)
	}
	if missed(s.r, MissDown) == 0 || testutil.ToFloat64(s.r.metrics.open) != 1 {
		t.Error("the breaker did not open")
	}
	redis.start()
	s.answers(t, block(3, 0), 3)
}

func TestStoppedRedis(t *testing.T) {
	redis := startRedis(t)
	s := newStack(t, faultConfig(redis.url()), 1)
	s.run(t)
	listAll(s, t, block(2, 0), 1, 2)
	s.answers(t, block(2, 0), 2)

	redis.signal(syscall.SIGSTOP)
	listAll(s, t, block(3, 0), 3)
	for range 20 {
		s.misses(t)
	}
	if missed(s.r, MissTimeout) == 0 || missed(s.r, MissDown) == 0 {
		t.Error("no request timed out, or the breaker did not open")
	}
	start := time.Now()
	for range 1000 {
		_, _ = s.r.Listings(context.Background(), newest, s.lowest())
	}
	if per := time.Since(start) / 1000; per > time.Millisecond {
		t.Errorf("a Redis that is down costs %s a request", per)
	}
	redis.signal(syscall.SIGCONT)
	s.answers(t, block(3, 0), 3)
}

// TestCorruptRedisIsNoShortPage: keys go as eviction takes them, one at a time. No page may be short.
func TestCorruptRedisIsNoShortPage(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		s := newStack(t, faultConfig(url), 1)
		s.run(t)
		listAll(s, t, block(2, 0), 1, 2, 3, 4, 5)
		s.answers(t, block(2, 0), 5)
		for _, key := range []string{s.w.keys.orders + "0:a", s.w.keys.rows + "0", s.w.keys.rows + "1", s.w.keys.meta} {
			if err := admin(t, url).Del(context.Background(), key).Err(); err != nil {
				t.Fatal(err)
			}
			s.answers(t, block(2, 0), 5)
		}
		if missed(s.r, MissCorrupt) == 0 {
			t.Error("no miss was counted as corrupt")
		}
	})
}

func TestRedisOutOfMemory(t *testing.T) {
	redis := startRedis(t)
	s := newStack(t, faultConfig(redis.url()), 1)
	s.r.cfg.MaxLag = 0
	s.run(t)
	listAll(s, t, block(2, 0), 1, 2)
	s.answers(t, block(2, 0), 2)

	client := admin(t, redis.url())
	if err := client.ConfigSet(context.Background(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	listAll(s, t, block(3, 0), 3)
	polltest.Until(t, "a write fails", func() bool { return testutil.ToFloat64(s.w.metrics.errors) > 0 })
	s.misses(t)
	if err := client.ConfigSet(context.Background(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	s.answers(t, block(3, 0), 3)
}

// TestOlderIncarnation: a node that lost its partitions and does not know it writes nothing, until the
// newer owner has gone silent.
func TestOlderIncarnation(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		ctx := context.Background()
		cfg := faultConfig(url)
		now := newStack(t, cfg, 9)
		listAll(now, t, block(2, 0), 1, 2, 3)
		if err := now.w.flush(ctx); err != nil {
			t.Fatal(err)
		}
		now.answers(t, block(2, 0), 3)

		zombie := newStack(t, cfg, 5)
		listAll(zombie, t, block(2, 1), 7)
		if err := zombie.w.flush(ctx); err != nil {
			t.Fatal(err)
		}
		now.answers(t, block(2, 0), 3)
		if got := testutil.ToFloat64(zombie.w.metrics.writes.WithLabelValues("refused")); got != float64(cfg.Partitions) {
			t.Errorf("%v writes refused", got)
		}
		if got := testutil.ToFloat64(zombie.w.metrics.writes.WithLabelValues("applied")); got != 0 {
			t.Errorf("%v writes applied", got)
		}

		// The owner goes silent: what looked like a zombie may be all that is left.
		polltest.Until(t, "the older writer takes over", func() bool {
			if err := zombie.w.flush(ctx); err != nil {
				t.Fatal(err)
			}
			return testutil.ToFloat64(zombie.w.metrics.writes.WithLabelValues("applied")) > 0
		})
		// It was a zombie: the owner finds it out at its next write, and meanwhile nobody believes it.
		if _, err := now.r.Listings(ctx, newest, now.lowest()); err == nil {
			t.Error("a zombie's block was taken")
		}
		for range 2 {
			for _, s := range now.w.states {
				s.at = time.Time{}
			}
			if err := now.w.flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		now.answers(t, block(2, 0), 3)
	})
}

// TestAnotherChainOfTheSameID: Redis outlives a devchain. Nothing of it is taken for the new one's.
func TestAnotherChainOfTheSameID(t *testing.T) {
	url := embedded(t)
	ctx := context.Background()
	old := newStack(t, faultConfig(url), 1)
	for n := uint64(2); n < 10; n++ {
		listAll(old, t, block(n, 77), n)
	}
	if err := old.w.flush(ctx); err != nil {
		t.Fatal(err)
	}
	old.answers(t, block(9, 77), 8)

	s := newStack(t, patientConfig(url), 1)
	for n := uint64(2); n < 12; n++ { // below, at and above the block of the old one
		listAll(s, t, block(n, 0), n)
		if _, err := s.page(s.lowest()); !errors.Is(err, MissForeign) {
			t.Fatalf("block %d: %v", n, err)
		}
	}
}

// TestRemoteReader: a serving node hears of the processors once a second. What Redis has since moved on to
// descends from what it heard of.
func TestRemoteReader(t *testing.T) {
	url := embedded(t)
	ctx := context.Background()
	s := newStack(t, patientConfig(url), 1)
	heard := s.lowest()
	for n := uint64(2); n < 30; n++ {
		listAll(s, t, block(n, 0), n)
		if err := s.w.flush(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := s.page(heard)
		if n == 2 { // the partitions were built at this block, and remember none before
			heard = s.lowest()
			continue
		}
		if err != nil || got.At != block(n, 0) {
			t.Fatalf("block %d: at %d, %v", n, got.At.Number, err)
		}
	}
	s.revert(block(29, 0), block(28, 0))
	s.land(block(29, 1))
	s.settle(t)
	if err := s.w.flush(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.page(heard); !errors.Is(err, MissForeign) {
		t.Fatalf("after a reorg that the node has not heard of: %v", err)
	}
	s.answers(t, block(29, 1), 27)
}

// TestStale: Redis stays behind. Its block is taken for as long as MaxLag.
func TestStale(t *testing.T) {
	url := embedded(t)
	ctx := context.Background()
	s := newStack(t, patientConfig(url), 1)
	listAll(s, t, block(2, 0), 1)
	if err := s.w.flush(ctx); err != nil {
		t.Fatal(err)
	}
	s.answers(t, block(2, 0), 1)
	listAll(s, t, block(3, 0), 2)
	s.r.cfg.MaxLag = time.Hour
	if got, err := s.page(s.lowest()); err != nil || got.At != block(2, 0) {
		t.Errorf("within the lag: at %d, %v", got.At.Number, err)
	}
	s.r.cfg.MaxLag = 0
	if _, err := s.page(s.lowest()); !errors.Is(err, MissStale) {
		t.Errorf("above the lag: %v", err)
	}
}

// TestExpiredLeave: a listing that expired long ago leaves Redis, and the pages stay as they were.
func TestExpiredLeave(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		ctx := context.Background()
		s := newStack(t, faultConfig(url), 1)
		soon := listing(1)
		soon.ListingExpiry = block(2, 0).Timestamp + 1
		s.land(block(2, 0), soon, listing(2))
		s.settle(t)
		if err := s.w.flush(ctx); err != nil {
			t.Fatal(err)
		}
		s.answers(t, block(2, 0), 2)
		later := block(3, 0)
		later.Timestamp += 2 * 3600
		s.land(later)
		s.settle(t)
		if err := errors.Join(s.w.flush(ctx), s.w.sweep(ctx), s.w.flush(ctx)); err != nil {
			t.Fatal(err)
		}
		s.answers(t, later, 1)
		var rows int64
		for p := range s.w.cfg.Partitions {
			rows += admin(t, url).HLen(ctx, fmt.Sprint(s.w.keys.rows, p)).Val()
		}
		if rows != 1 {
			t.Errorf("%d rows", rows)
		}
	})
}

// TestTimeIsTakenBack: a block weeks later sweeps out a listing, and is taken back: the listing is open again.
// Time may leap ahead in one partition before another: what is read is the block of the other.
func TestTimeIsTakenBack(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		ctx := context.Background()
		s := newStack(t, patientConfig(url), 1)
		flush := func() {
			t.Helper()
			if err := errors.Join(s.w.flush(ctx), s.w.sweep(ctx), s.w.flush(ctx)); err != nil {
				t.Fatal(err)
			}
		}
		var listings, bids []contracts.Event
		for id := uint64(1); id <= 8; id++ {
			e := listing(id)
			e.ListingExpiry = block(2, 0).Timestamp + 10*86_400
			listings = append(listings, e)
			bids = append(bids, &contracts.BidPlaced{DealID: e.DealID, BidID: word(id), Price: word(id), TermsHash: e.TermsHash})
		}
		s.land(block(2, 0), listings...)
		s.settle(t)
		flush()
		s.answers(t, block(2, 0), 8)

		later := block(4, 0)
		later.Timestamp += 21 * 86_400
		s.land(block(3, 0), bids...)
		s.settle(t)
		s.land(later)
		s.advance(t, 0, 1) // what changed in block 3 is written as of block 4
		flush()
		if got, err := s.page(s.lowest()); err == nil && len(got.Value.Items) != 8 {
			t.Errorf("%d items at block %d", len(got.Value.Items), got.At.Number)
		}
		s.settle(t)
		flush()
		s.answers(t, later, 0)

		s.revert(later, block(3, 0))
		s.land(block(4, 1))
		s.settle(t)
		flush()
		s.answers(t, block(4, 1), 8)
		if got := testutil.ToFloat64(s.w.metrics.rebuilds.WithLabelValues("time")); got == 0 {
			t.Error("no rebuild was counted")
		}
	})
}

// TestCluster: a Redis Cluster takes the scripts, whose keys share a slot.
func TestCluster(t *testing.T) {
	bus, err := freeport.Find(1) // by default the port plus 10,000, from which systems take ports of outgoing connections
	if err != nil {
		t.Fatal(err)
	}
	redis := startRedis(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus[0]))
	if err := admin(t, redis.url()).ClusterAddSlotsRange(context.Background(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	cfg := faultConfig(redis.url())
	cfg.Cluster = true
	s := newStack(t, cfg, 1)
	s.run(t)
	listAll(s, t, block(2, 0), 1, 2, 3)
	s.answers(t, block(2, 0), 3)
}
