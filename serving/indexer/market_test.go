package indexer

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	marketapp "github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/processors/market/assets"
	"github.com/lienstream/lienstream/processors/market/changes"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
	"github.com/lienstream/lienstream/topics"
)

// market is a node that holds every partition: the real families on the real state, fed with events
// block by block. It is a query.Source; the real router reads it.
type market struct {
	*changes.Log
	read.Broadcast

	t        testing.TB
	dep      contracts.Deployment
	families *family.Set
	stores   []*state.Store
	chain    []topics.BlockRef
	forks    byte

	mu       sync.Mutex
	snaps    []*state.Snapshot
	at       topics.BlockRef
	latest   uint64
	observed time.Time
	gone     bool // the node holds nothing
	reverts  uint64
	logs     uint64
}

const partitions = 4

// deployed has the token layer.
var deployed = contracts.Deployment{
	USDG: common.Address{0x01}, PositionManager: common.Address{0x02}, STKN: common.Address{0x03}, TKN: common.Address{0x04}, PoolID: common.Hash{0x05},
}

func newMarket(t testing.TB) *market { return newMarketOn(t, deployed) }

func newMarketOn(t testing.TB, dep contracts.Deployment) *market {
	t.Helper()
	m := unstarted(t, dep)
	m.block(1_700_000_000)
	return m
}

// unstarted is a market of no block yet.
func unstarted(t testing.TB, dep contracts.Deployment) *market {
	t.Helper()
	families := marketapp.Families(dep)
	m := &market{Log: changes.New(), t: t, dep: dep, families: families, observed: time.Now()}
	cache := state.NewCache(state.DefaultMemory(), 1)
	for p := range partitions {
		store, err := state.Open(state.Options{
			Dir: "db", FS: vfs.NewMem(), Cache: cache,
			Tables: families.Tables(),
		})
		if err != nil {
			t.Fatal(err)
		}
		m.stores = append(m.stores, store)
		m.snaps = append(m.snaps, store.Snapshot())
		m.tell(p, m.Opened)
	}
	t.Cleanup(func() {
		for p, store := range m.stores {
			m.snaps[p].Release()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
		cache.Close()
	})
	return m
}

// block applies the events as the next block of the chain.
func (m *market) block(timestamp uint64, records ...any) {
	m.t.Helper()
	m.land(0, timestamp, records...)
}

// land applies the events as the next block, after it took back so many.
func (m *market) land(revert int, timestamp uint64, records ...any) {
	m.t.Helper()
	overlays := make([]*state.Overlay, partitions)
	for p, store := range m.stores {
		overlays[p] = store.NewOverlay()
		for i := range revert {
			if err := overlays[p].Revert(m.chain[len(m.chain)-1-i], true); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	if revert > 0 {
		m.chain = m.chain[:len(m.chain)-revert]
		m.forks++
	}
	at := topics.BlockRef{Number: 1, Timestamp: timestamp}
	if n := len(m.chain); n > 0 {
		at.Number = m.chain[n-1].Number + 1
	}
	at.Hash = crypto.Keccak256Hash(binary.BigEndian.AppendUint64([]byte{m.forks}, at.Number))
	m.chain = append(m.chain, at)
	for p := range overlays {
		overlays[p].Begin(at, true)
	}
	for _, rec := range records {
		m.logs++
		tx := txOf(m.logs)
		var (
			broken string
			err    error
		)
		switch r := rec.(type) {
		case *topics.Probe:
			err = assets.ApplyProbe(overlays[topics.Partition(contracts.TokenEntity(r.Token).Key(), partitions)], r)
		case contracts.Event:
			w := overlays[topics.Partition(r.Entity().Key(), partitions)]
			broken, err = m.families.Apply(w, topics.EventMeta{Block: at, Tx: tx, LogIndex: uint32(m.logs)}, r)
		}
		if err != nil || broken != "" {
			m.t.Fatalf("apply %T: %s %v", rec, broken, err)
		}
	}
	m.mu.Lock()
	m.at, m.latest, m.reverts = at, at.Number, m.reverts+uint64(revert)
	m.Notify()
	all := make([][]engine.Change, partitions)
	for p, store := range m.stores {
		if err := overlays[p].Settle(0, 0, func(state.Event) {}); err != nil {
			m.t.Fatal(err)
		}
		if err := overlays[p].Rows(func(r state.Row) error {
			if !r.Same {
				all[p] = append(all[p], engine.Change{Table: r.Table, Key: slices.Clone(r.Key), Row: r.Value})
			}
			return nil
		}); err != nil {
			m.t.Fatal(err)
		}
		if err := store.Commit(overlays[p], nil); err != nil {
			m.t.Fatal(err)
		}
		m.snaps[p].Release()
		m.snaps[p] = store.Snapshot()
	}
	m.mu.Unlock()
	for p := range all {
		m.tell(p, func(q engine.Partition, v state.View) { m.Applied(q, v, all[p]) })
	}
}

// tell tells the log of changes, as the engine tells its observers.
func (m *market) tell(p int, observe func(engine.Partition, state.View)) {
	v := m.snaps[p].View(m.at)
	defer v.Close()
	observe(engine.Partition{ID: int32(p), Incarnation: 1, Reverts: m.reverts, Head: m.latest}, v)
}

// txOf is the transaction of the nth event ever fed.
func txOf(n uint64) common.Hash { return crypto.Keccak256Hash(fmt.Appendf(nil, "tx %d", n)) }

func (m *market) View(_ context.Context, p int32, at *topics.BlockRef) (state.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone || at != nil && at.Hash != m.at.Hash {
		return nil, query.ErrUnavailable
	}
	return m.snaps[p].View(m.at), nil
}

func (m *market) Watermarks() []query.Watermark {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return nil
	}
	marks := make([]query.Watermark, partitions)
	for p := range marks {
		marks[p] = query.Watermark{Partition: int32(p), Role: topics.RoleOwner, Incarnation: 1, At: m.at, Reverts: m.reverts, Latest: m.latest, ObservedAt: m.observed}
	}
	return marks
}

func (m *market) set(change func(m *market)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
	m.Notify()
}

// serve returns a client of the indexer over the market, which holds it to the description.
func (m *market) serve() *apitest.Client {
	m.t.Helper()
	return apitest.NewClient(m.t, m.indexer(), description)
}

func (m *market) router() *query.Client {
	m.t.Helper()
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local, routing.Instance, routing.Patience = partitions, m, "here", time.Millisecond
	routing.Registerer = prometheus.NewRegistry()
	router, err := query.NewClient(routing, m.dep)
	if err != nil {
		m.t.Fatal(err)
	}
	return router
}

func (m *market) indexer() *Indexer {
	m.t.Helper()
	x, err := New(testConfig(), m.router(), zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		m.t.Fatal(err)
	}
	return x
}

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.HTTP.Listen = "127.0.0.1:0"
	cfg.MaxStreamAge = 20 * time.Millisecond // a recorder takes a response when it is over
	cfg.MaxBlockAge = 0                      // blocks of the tests have timestamps of their own
	cfg.ExplorerURL = "https://explorer.example/"
	return cfg
}

// Events with what does not matter filled in.

var (
	borrower = common.HexToAddress("0xb0b0000000000000000000000000000000000001")
	lender   = common.HexToAddress("0xde1d000000000000000000000000000000000002")
	token    = common.HexToAddress("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")
	terms1   = common.HexToHash("0x01")
	terms2   = common.HexToHash("0x02")
)

const (
	week  = 604_800
	start = 1_700_000_000 // timestamp of the market's first block
)

func u(n uint64) uint256.Int { return *uint256.NewInt(n) }

func listed(id uint64, change ...func(*contracts.DealListed)) *contracts.DealListed {
	e := &contracts.DealListed{
		DealID: u(id), Borrower: borrower, Token: token, AmountOrTokenID: u(5000), Cap: u(1100), MinPrice: u(1000),
		Term: week, ListedAt: start + id, FeeBps: 50, TermsHash: terms1,
	}
	for _, c := range change {
		c(e)
	}
	return e
}

func bid(deal, id, price, expiry uint64, terms common.Hash) *contracts.BidPlaced {
	return &contracts.BidPlaced{DealID: u(deal), BidID: u(id), Lender: lender, Price: u(price), Expiry: expiry, PlacedAt: start + id, TermsHash: terms}
}

func funded(deal uint64) *contracts.DealFunded {
	return &contracts.DealFunded{
		DealID: u(deal), Lender: lender, Price: u(1000), Fee: u(5), Proceeds: u(995),
		FundedAt: start + 50, Expiry: start + 50 + week, GraceEnd: start + 50 + week + 3600, TermsHash: terms1,
	}
}

func asset(token common.Address, lane contracts.Lane) *contracts.AssetSet {
	return &contracts.AssetSet{
		Token: token, Lane: lane, Allowed: true, Decimals: 18, MinAmount: u(1), MaxDealRaw: u(1000), MaxOpenRaw: u(10_000),
		Symbol: "NVDA", TokenName: "NVIDIA \"tokenised\" <stock>",
	}
}
