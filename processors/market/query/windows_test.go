package query_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// fork takes the last block back, and lands another one of its height and time.
func (m *marketNode) fork(t testing.TB, events ...contracts.Event) {
	t.Helper()
	m.forkAt(t, m.time, events...)
}

// forkAt lands one of another time.
func (m *marketNode) forkAt(t testing.TB, time uint64, events ...contracts.Event) {
	t.Helper()
	m.time = time
	for _, p := range m.parts {
		last := p.views[len(p.views)-1].at
		o := p.store.NewOverlay()
		if err := o.Revert(last, true); err != nil {
			t.Fatal(err)
		}
		if err := p.store.Commit(o, []byte("meta")); err != nil {
			t.Fatal(err)
		}
		p.mark.Reverts++
	}
	at := block(m.number, byte(m.time), byte(m.parts[0].mark.Reverts))
	at.Timestamp = m.time
	m.land(t, marketPartitions, at, events...)
}

// client is another reader of the node.
func (m *marketNode) client(t testing.TB) *query.Client {
	t.Helper()
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local = marketPartitions, m.node
	c, err := query.NewClient(routing, deployment)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTicksComeOnce: a reader that has the ticks of pools gets those that changed since, and then has what a new reader would get,
// through changes of liquidity, moves of the price, liquidity that matures with time, and reorgs; with room for one window in
// an answer, or for many.
func TestTicksComeOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(16, 16))
	m := newMarketNode(t, deployment)
	m.undo = true
	pools := []common.Hash{tknPool, thinPool, stknPool}
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), allow(tknPool), initialize(t, thinPool, usdg, stock, 0), allow(thinPool),
		initialize(t, stknPool, tkn, stkn, 0))
	m.crowd(t, 4600) // of tknPool: more than a window
	narrow, wide := m.client(t), m.client(t)
	narrow.SetRoom(1)
	q := query.ExchangeQuery{Seconds: 1800, Hours: 7200}
	read := func(c *query.Client) *query.Exchange {
		answer, err := c.Exchange(t.Context(), q)
		x := must(t, answer, err)
		return &x
	}
	token := uint64(1e6)
	change := func() (events []contracts.Event) {
		for range rng.IntN(3) {
			pool := pools[rng.IntN(len(pools))]
			switch tick := rng.Int32N(1200) - 600; rng.IntN(3) {
			case 0:
				token++
				events = append(events, provide(pool, token, tick-rng.Int32N(5000)-1, tick+1, 1+rng.Uint64N(50)))
			default:
				events = append(events, &contracts.Swapped{PoolID: pool, SqrtPriceX96: at(t, tick), Tick: tick, Liquidity: word(7)})
			}
		}
		return events
	}
	for i := range 40 {
		switch {
		case rng.IntN(4) == 0:
			m.fork(t, change()...)
		default:
			m.mine(t, []uint64{0, 1, 300, 1200}[rng.IntN(4)], change()...)
		}
		want := read(m.client(t))
		for name, c := range map[string]*query.Client{"narrow": narrow, "wide": wide} {
			if got := read(c); !reflect.DeepEqual(want, got) {
				for k := range want.Pools {
					want, got := &want.Pools[k], &got.Pools[k]
					t.Logf("pool %s: %d ticks from %d to %d, anew %d from %d to %d", want.ID, len(got.Ticks), got.From, got.To, len(want.Ticks), want.From, want.To)
				}
				t.Fatalf("%s: it differs after change %d", name, i)
			}
		}
	}
	m.mine(t, 3600) // all liquidity stands
	before := read(wide)
	m.mine(t, 1, &contracts.Swapped{PoolID: tknPool, SqrtPriceX96: at(t, 3), Tick: 3, Liquidity: word(7)})
	after := read(wide)
	for i := range before.Pools {
		if p := &before.Pools[i]; len(p.Ticks) > 0 && &p.Ticks[0] != &after.Pools[i].Ticks[0] {
			t.Errorf("the ticks of pool %s came again", p.ID)
		}
	}
}

// TestTicksOfAnEarlierTime: liquidity that stood in a block whose time a reorg took back does not stand in an earlier one.
func TestTicksOfAnEarlierTime(t *testing.T) {
	m := newMarketNode(t, deployment)
	m.undo = true
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), allow(tknPool))
	m.mine(t, 1, provide(tknPool, 1, -60, 60, 7))
	m.mine(t, 3600)
	c := m.client(t)
	standing := func(c *query.Client) uint256.Int {
		answer, err := c.Exchange(t.Context(), query.ExchangeQuery{Seconds: 1800, Hours: 7200})
		x := must(t, answer, err)
		return x.Pools[0].Standing[0].Net
	}
	if got := standing(c); got != word(7) {
		t.Fatalf("%s stand after an hour, want 7", got.Dec())
	}
	m.forkAt(t, m.time-3599)
	if got := standing(c); !got.IsZero() {
		t.Errorf("%s stand after a second", got.Dec())
	}
}

// TestDustInManyPools: somebody has put dust at every tick of more pools than an answer between nodes has room for. They are
// read in turns.
func TestDustInManyPools(t *testing.T) {
	const pools, room = 20, 1 << 20
	n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	var events []contracts.Event
	ids := make([]common.Hash, pools)
	for i := range ids {
		ids[i] = common.Hash{0xd0, byte(i)}
		events = append(events, initialize(t, ids[i], usdg, common.Address{0xd0, byte(i)}, 0), allow(ids[i]))
	}
	n.land(t, partitions, block(1), events...)
	for p, part := range n.parts {
		o := part.store.NewOverlay()
		o.Begin(block(2), false)
		for _, id := range ids {
			if topics.Partition(contracts.PoolEntity(id).Key(), partitions) == p {
				dust(t, o, id)
			}
		}
		if err := part.store.Commit(o, []byte("meta")); err != nil {
			t.Fatal(err)
		}
		n.advance(t, p, block(3))
	}
	var most atomic.Int64 // bytes of an answer
	market := serveMarket(t.Context(), n)
	h := &holder{node: n, server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted := &countedWriter{ResponseWriter: w}
		market.ServeHTTP(counted, r)
		if counted.bytes > most.Load() {
			most.Store(counted.bytes)
		}
	}))}
	t.Cleanup(h.server.Close)
	r := remoteRouter(t, partitions, map[string]*holder{"a": h})
	r.SetRoom(room)
	answer, err := r.Exchange(t.Context(), query.ExchangeQuery{Seconds: 1800, Hours: 7200})
	x := must(t, answer, err)
	if len(x.Pools) != pools || most.Load() > 2*room {
		t.Errorf("%d pools, up to %d bytes at once", len(x.Pools), most.Load())
	}
	for i := range x.Pools {
		if len(x.Pools[i].Ticks) < 2*ammv4.MaxCrossed-1 {
			t.Fatal(len(x.Pools[i].Ticks), "ticks")
		}
	}
}

// countedWriter counts the bytes of a response.
type countedWriter struct {
	http.ResponseWriter
	bytes int64
}

func (w *countedWriter) Write(b []byte) (int, error) {
	w.bytes += int64(len(b))
	return w.ResponseWriter.Write(b)
}

// dust has rows of ticks as liquidity of one at every tick leaves them.
func dust(t testing.TB, w state.Writer, pool common.Hash) {
	t.Helper()
	for i := int32(-2100); i < 2100; i++ {
		tick := topics.Tick{PoolID: pool, Tick: i, Gross: *uint256.NewInt(1), Net: *uint256.NewInt(1)}
		if i >= 0 {
			tick.Net.Neg(&tick.Net)
		}
		row, err := tick.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		w.Put(liquidity.Ticks, liquidity.TickKey(pool, i), row)
	}
}
