package hotcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"syscall"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

var tokenLayer = contracts.Deployment{
	ChainID: 4663, TKN: common.Address{0x10}, STKN: common.Address{0x20}, PoolID: common.Hash{0xaa},
	EpochController: common.Address{1}, RewardDistributor: common.Address{2}, LiquidityStaking: common.Address{3}, Burner: common.Address{4},
}

var alike = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })}

func newRouter(t testing.TB, n *node) *query.Client {
	t.Helper()
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local, routing.Patience = int32(len(n.parts)), n, 10*time.Millisecond
	r, err := query.NewClient(routing, tokenLayer)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newTestPoolWriter(t testing.TB, cfg Config, n *node) *PoolWriter {
	t.Helper()
	w, err := NewPoolWriter(cfg, newRouter(t, n), n, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.client.Close() })
	return w
}

// genesis is all that an overview has.
func genesis(at topics.BlockRef) []contracts.Event {
	price, _ := ammv4.SqrtPriceAtTick(0)
	return []contracts.Event{
		&contracts.PoolInitialized{
			PoolID: tokenLayer.PoolID, Currency0: tokenLayer.TKN, Currency1: tokenLayer.STKN, Fee: 3000, TickSpacing: 60, SqrtPriceX96: *price,
		},
		&contracts.LiquidityModified{PoolID: tokenLayer.PoolID, TickLower: -600, TickUpper: 600, LiquidityDelta: word(1_000_000)},
		&contracts.PositionStaked{
			PoolID: tokenLayer.PoolID, TokenID: word(1), Owner: address(9), TickLower: -600, TickUpper: 600,
			Liquidity: word(1_000_000), IsSeed: true, InRange: true,
		},
		&contracts.EpochOpened{N: 1, StartsAt: at.Timestamp, EndsAt: at.Timestamp + 100},
		&contracts.EmissionsNotified{PoolID: tokenLayer.PoolID, Epoch: 1, RatePerSecond: word(5), PeriodFinish: at.Timestamp + 3},
		&contracts.Burned{Caller: address(2), USDGSpent: word(1), STKNBurned: word(40), At: at.Timestamp},
	}
}

func swap(t testing.TB, tick int32) contracts.Event {
	price, err := ammv4.SqrtPriceAtTick(tick)
	if err != nil {
		t.Fatal(err)
	}
	return &contracts.Swapped{PoolID: tokenLayer.PoolID, SqrtPriceX96: *price, Tick: tick, Liquidity: word(1_000_000)}
}

// TestPoolEqualsRouter: whatever happens, is reverted and lost, and however far each partition has come, the
// overview from Redis is the router's at the block that it names; where all are at one block it is no miss.
func TestPoolEqualsRouter(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		var hits, newer, lagging int
		rapid.Check(t, func(rt *rapid.T) {
			const partitions = 3
			cfg := testConfig(url, partitions)
			cfg.Prefix = fmt.Sprintf("pool%d", runs.Add(1))
			cfg.MaxLag = time.Hour
			n, closeNode := newNode(t, partitions, 1)
			defer closeNode()
			w, r := newTestPoolWriter(t, cfg, n), newPatientReader(t, cfg)
			defer func() { _, _ = w.client.Close(), r.client.Close() }()
			known, truth := n.lowest(), map[common.Hash]query.PoolOverview{}
			router := newRouter(t, n)
			note := func() {
				a, err := router.Pool(context.Background())
				if err == nil {
					truth[a.At.Hash] = a.Value
				} else if !errors.Is(err, query.ErrUnavailable) { // the partitions are on different forks
					rt.Fatal(err)
				}
			}
			advance := func(partition int32, steps int) { // each in a commit of its own, of which the node keeps a view
				for range min(steps, len(n.sequence)-n.parts[partition].next) {
					n.advance(t, partition, 1)
				}
			}
			settle := func() {
				for p := range int32(partitions) {
					advance(p, len(n.sequence))
				}
				note()
			}
			check := func(mustHit bool) {
				got, err := r.Pool(context.Background(), known)
				if err != nil {
					if miss := Miss(""); !errors.As(err, &miss) || miss == MissError || mustHit {
						rt.Fatalf("at %+v: %v", known.At, err)
					}
					return
				}
				want, ok := truth[got.At.Hash]
				if !ok && !mustHit {
					return
				}
				hits++
				switch {
				case got.At.Number > known.At.Number:
					newer++
				case got.At.Number < known.At.Number:
					lagging++
				}
				if diff := cmp.Diff(want, got.Value, alike); diff != "" || !ok {
					rt.Fatalf("block %d %s:\n%s", got.At.Number, got.At.Hash, diff)
				}
			}
			chain, fork := []topics.BlockRef{block(1, 0), block(2, 0)}, uint64(0)
			n.land(chain[1], genesis(chain[1])...)
			settle()
			for range rapid.IntRange(10, 40).Draw(rt, "steps") {
				switch rapid.IntRange(0, 11).Draw(rt, "step") {
				case 0, 1: // a block
					at := block(chain[len(chain)-1].Number+rapid.Uint64Range(1, 2).Draw(rt, "gap"), fork)
					events := []contracts.Event{swap(t, rapid.Int32Range(-500, 500).Draw(rt, "tick"))}
					if rapid.Bool().Draw(rt, "burns") {
						events = append(events, &contracts.Burned{
							Caller: address(rapid.Byte().Draw(rt, "caller")), STKNBurned: word(at.Number), At: at.Timestamp,
						})
					}
					n.land(at, events...)
					chain = append(chain, at)
				case 2: // a reorg
					fork++
					for range rapid.IntRange(1, 3).Draw(rt, "depth") {
						if top := len(chain) - 1; top > 1 {
							n.revert(chain[top], chain[top-1])
							chain = chain[:top]
						}
					}
				case 3: // a partition goes on
					advance(rapid.Int32Range(0, partitions-1).Draw(rt, "partition"), rapid.IntRange(1, 3).Draw(rt, "commit"))
					note()
				case 4, 5, 10: // all do
					settle()
				case 6, 11: // which the reader need not know yet
					if err := w.flush(context.Background()); err != nil {
						rt.Fatal(err)
					}
					check(false)
				case 7: // the reader learns how far the processors are
					known = n.lowest()
					check(false)
				case 8:
					check(false)
				case 9:
					if err := w.client.Del(context.Background(), w.key).Err(); err != nil {
						rt.Fatal(err)
					}
					w.writtenAt = time.Time{} // a beat is due
				}
			}
			settle()
			w.writtenAt = time.Time{}
			if err := w.flush(context.Background()); err != nil {
				rt.Fatal(err)
			}
			known = n.lowest()
			check(true)
			next := func() {
				chain = append(chain, block(chain[len(chain)-1].Number+1, fork))
				n.land(chain[len(chain)-1])
				settle()
			}
			next() // Redis is ahead of what the reader knows
			if err := w.flush(context.Background()); err != nil {
				rt.Fatal(err)
			}
			check(true)
			known = n.lowest()
			check(true)
			next() // and behind
			known = n.lowest()
			check(true)
		})
		if newer == 0 || lagging == 0 {
			t.Errorf("%d hits, %d of newer and %d of older blocks: the test does not reach what it is about", hits, newer, lagging)
		}
	})
}

// poolStack is a writer, a reader and a router over a node.
type poolStack struct {
	*stack
	w    *PoolWriter
	over *CachedReader
}

func newPoolStack(t *testing.T, cfg Config) *poolStack {
	t.Helper()
	n, closeNode := newNode(t, cfg.Partitions, 1)
	t.Cleanup(closeNode)
	s := &poolStack{stack: &stack{node: n, r: newTestReader(t, cfg)}, w: newTestPoolWriter(t, cfg, n)}
	s.over = NewCachedReader(newRouter(t, n), s.r)
	n.land(block(2, 0), genesis(block(2, 0))...)
	n.settle(t)
	polltest.Run(t, s.w.Run)
	polltest.Run(t, s.r.Run)
	return s
}

func (s *poolStack) hits(t *testing.T) {
	t.Helper()
	polltest.Until(t, "the overview of the lowest block in Redis", func() bool {
		got, err := s.r.Pool(context.Background(), s.lowest())
		return err == nil && got.At == s.lowest().At && got.Value.Pool != nil
	})
}

// misses asks once: Redis must miss at once, and the processors answer all the same.
func (s *poolStack) misses(t *testing.T) {
	t.Helper()
	var err error
	took := time.Hour
	for range 10 { // a machine that is busy with other tests is slow now and then
		if took > 50*time.Millisecond {
			start := time.Now()
			_, err = s.r.Pool(context.Background(), s.lowest())
			took = time.Since(start)
		}
	}
	if took > 50*time.Millisecond {
		t.Errorf("a miss took %s", took)
	}
	if miss := Miss(""); !errors.As(err, &miss) {
		t.Fatalf("no miss: %v", err)
	}
	if got, err := s.over.Pool(context.Background()); err != nil || got.At != s.lowest().At {
		t.Errorf("%+v, %v", got.At, err)
	}
}

func TestPoolOfALostRedis(t *testing.T) {
	redis := startRedis(t)
	s := newPoolStack(t, faultConfig(redis.url()))
	s.hits(t)
	s.land(block(3, 0), swap(t, 60))
	s.settle(t)
	s.hits(t)

	redis.signal(syscall.SIGSTOP) // it is there, and does not answer
	for range 6 {
		s.misses(t)
	}
	redis.signal(syscall.SIGCONT)
	s.hits(t)
	redis.kill()
	s.land(block(4, 0), swap(t, 120))
	s.settle(t)
	for range 6 {
		s.misses(t)
	}
	redis.start() // empty
	s.hits(t)
	if testutil.ToFloat64(s.r.metrics.poolMisses.WithLabelValues(string(MissDown))) == 0 {
		t.Error("no miss was counted as down")
	}
}

// What Redis holds of another time or another chain is a miss, and is replaced only by what is later.
func TestPoolOfOtherBlocks(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		cfg := testConfig(url, 1)
		cfg.MaxLag = 0
		n, closeNode := newNode(t, 1, 1)
		t.Cleanup(closeNode)
		w, r := newTestPoolWriter(t, cfg, n), newPatientReader(t, cfg)
		ctx := context.Background()
		put := func(wm query.Watermark, applied bool) {
			t.Helper()
			w.recent.observe(wm, time.Now())
			refused := testutil.ToFloat64(w.metrics.writes.WithLabelValues("refused"))
			if err := w.put(ctx, wm, &query.PoolOverview{}); err != nil {
				t.Fatal(err)
			}
			if got := testutil.ToFloat64(w.metrics.writes.WithLabelValues("refused")) == refused; got != applied {
				t.Errorf("block %d after %d reverts: applied %v", wm.At.Number, wm.Reverts, got)
			}
		}
		expect := func(wm query.Watermark, want Miss) {
			t.Helper()
			_, err := r.Pool(ctx, wm)
			miss := Miss("")
			errors.As(err, &miss)
			if miss != want {
				t.Errorf("block %d after %d reverts: %v, want %q", wm.At.Number, wm.Reverts, err, want)
			}
		}
		expect(mark(10, 0, 0), MissCold)
		put(mark(10, 0, 0), true)
		expect(mark(10, 0, 0), "")
		expect(mark(10, 7, 0), MissForeign) // another chain's
		expect(mark(10, 0, 0), "")
		expect(mark(11, 0, 0), MissStale) // overtaken
		put(mark(12, 0, 0), true)
		expect(mark(10, 0, 0), "") // it descends from what the reader knows
		expect(mark(11, 0, 0), MissForeign)
		put(mark(11, 0, 0), false)
		put(mark(11, 1, 2), true) // a reorg
		expect(mark(12, 0, 0), MissForeign)
		expect(mark(12, 1, 4), MissStale)
		put(mark(13, 0, 1), false)
		expect(mark(11, 1, 2), "")

		if err := w.client.Set(ctx, w.key, bytes.Repeat([]byte{'z'}, 2*maxPoolBytes), 0).Err(); err != nil {
			t.Fatal(err)
		}
		expect(mark(11, 1, 2), MissError)
		put(mark(11, 1, 2), true) // what is not ours is not later
		expect(mark(11, 1, 2), "")
		if ttl := w.client.PTTL(ctx, w.key).Val(); ttl <= 0 || ttl > cfg.Takeover {
			t.Errorf("expires after %s", ttl)
		}
	})
}

func FuzzDecodeOverview(f *testing.F) {
	n, closeNode := newNode(f, 1, 1)
	defer closeNode()
	n.land(block(2, 0), genesis(block(2, 0))...)
	n.settle(f)
	full, err := newRouter(f, n).Pool(context.Background())
	if err != nil || full.Value.Floor == nil || full.Value.Epoch == nil || len(full.Value.Burns) != 1 {
		f.Fatalf("%+v, %v", full, err)
	}
	earlier := []seenBlock{{block: block(1, 0)}}
	for _, v := range []query.PoolOverview{{}, full.Value} {
		raw, err := encodeOverview(n.lowest(), earlier, &v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)-1])
		f.Add(raw[:poolHeadBytes])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, rest, err := decodeOverviewHead(raw)
		if err != nil {
			return
		}
		o.descends(block(1, 0))
		v, err := decodeOverview(rest)
		if err != nil {
			return
		}
		again, err := encodeOverview(query.Watermark{At: o.at, Reverts: o.reverts}, nil, &v)
		if err != nil {
			t.Skip(err) // more than ours may be
		}
		p, rest, err := decodeOverviewHead(again)
		if err != nil || p.at != o.at || p.reverts != o.reverts {
			t.Fatalf("%+v, %v", p, err)
		}
		if w, err := decodeOverview(rest); err != nil || !cmp.Equal(v, w, alike) {
			t.Fatalf("%v:\n%s", err, cmp.Diff(v, w, alike))
		}
	})
}
