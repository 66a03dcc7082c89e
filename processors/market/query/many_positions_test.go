package query_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// However many positions are collateral, /stats adds all of them up: as many times what is in one, on one node and on
// three.
func TestStatsOfAnyNumberOfPositions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	const many = 70_001
	positions := func(from, to uint64) (events []contracts.Event) {
		for id := from; id <= to; id++ {
			e := listing(id)
			e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(id)
			events = append(events, provide(tknPool, id, -60, 60, 1_000_000), e)
		}
		return events
	}
	pool := []contracts.Event{initialize(t, tknPool, usdg, tkn, 0), provide(tknPool, 1<<33, -6000, 6000, 1<<50), allow(tknPool)}
	var nodes []*node
	for _, share := range [][]int32{span(partitions), {0}, {1, 2}, {3}} {
		nodes = append(nodes, newNode(t, topics.RoleOwner, 1, share...))
	}
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local = partitions, nodes[0]
	one, err := query.NewClient(routing, deployment)
	if err != nil {
		t.Fatal(err)
	}
	three := remoteRouter(t, partitions, map[string]*holder{"a": serve(t, nodes[1]), "b": serve(t, nodes[2]), "c": serve(t, nodes[3])})
	amounts := func(number uint64, events []contracts.Event) []query.AssetValue {
		t.Helper()
		for _, n := range nodes {
			n.land(t, partitions, block(number), events...)
		}
		a, err := one.Stats(t.Context())
		of := must(t, a, err)
		polltest.Until(t, "all partitions are at the block", func() bool { w, err := three.Lowest(); return err == nil && w.At == block(number) })
		b, err := three.Stats(t.Context())
		if diff := cmp.Diff(of.TVL, must(t, b, err).TVL); diff != "" {
			t.Errorf("three nodes have another TVL than one:\n%s", diff)
		}
		return of.TVL.ByAsset
	}
	single := amounts(1, append(pool, positions(1, 1)...))
	if len(single) != 2 || single[0].Raw.IsZero() {
		t.Fatalf("in a position is %+v", single)
	}
	times := word(many)
	for i, all := range amounts(2, positions(2, many)) {
		want := single[i].Raw
		if want.Mul(&want, &times); all.Raw != want || all.Token != single[i].Token {
			t.Errorf("%d positions have %s of %s, want %s", many, all.Raw.Dec(), all.Token, want.Dec())
		}
	}
}

// Positions that are read page by page come to what all of them come to that are read at once, whatever was provided, traded,
// listed, ended or taken back since, among others that are no collateral.
func TestPagesOfPositionsEqualAllAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m, _ := newLedgerNode(t)
	m.undo = true
	pools := []common.Hash{stknPool, tknPool, thinPool}
	type position struct {
		pool common.Hash
		deal uint64 // 0: it is no collateral
	}
	const ids, wanted = 600, 40
	known := map[uint64]position{}
	var others []contracts.Event
	for id := uint64(1); id <= ids; id++ {
		if pool := rng.IntN(6); id%(ids/wanted) != 0 && pool < len(pools) {
			others = append(others, provide(pools[pool], id, -60, 60, 1<<20))
		}
	}
	m.mine(t, 1, others...)
	var deals uint64
	play := func() (events []contracts.Event) {
		for range 1 + rng.IntN(4) {
			id := (1 + rng.Uint64N(wanted)) * (ids / wanted)
			p, ok := known[id]
			switch {
			case rng.IntN(5) == 0:
				tick := int32(rng.IntN(400) - 200)
				events = append(events, &contracts.Swapped{PoolID: pools[rng.IntN(len(pools))], SqrtPriceX96: at(t, tick), Tick: tick, Liquidity: word(1 << 40)})
				continue
			case !ok:
				p.pool = pools[rng.IntN(len(pools))]
				events = append(events, provide(p.pool, id, -60, 60, 1+rng.Uint64N(1<<40)))
			case p.deal > 0:
				events = append(events, &contracts.DealCancelled{DealID: word(p.deal), Borrower: address(1), At: m.time})
				p.deal = 0
			case rng.IntN(2) == 0:
				events = append(events, provide(p.pool, id, -60, 60, 1+rng.Uint64N(1<<30)))
			default:
				deals++
				p.deal = deals
				e := listing(deals)
				e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(id)
				events = append(events, e)
			}
			known[id] = p
		}
		return events
	}
	paged, valued := m.client(t), 0
	paged.SetMany(0)
	for range 150 {
		before := maps.Clone(known)
		m.mine(t, 1, play()...)
		if rng.IntN(3) == 0 {
			known = before
			m.fork(t, play()...)
		}
		a, err := paged.Stats(t.Context())
		got := must(t, a, err).TVL
		b, err := m.client(t).Stats(t.Context())
		if diff := cmp.Diff(must(t, b, err).TVL, got); diff != "" {
			t.Fatalf("block %d: %s", m.number, diff)
		}
		valued += len(got.ByAsset)
	}
	if valued == 0 {
		t.Error("nothing was in any position")
	}
}

// Positions whose pools are in one partition cost the others next to nothing, now and in a history, beside many more that are no
// collateral.
func TestPositionsCostWhereTheyAre(t *testing.T) {
	const open = 1000
	m := newMarketNode(t, deployment)
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), provide(tknPool, 1<<33, -6000, 6000, 1<<50), allow(tknPool))
	var events []contracts.Event
	for id := uint64(1); id <= open; id++ {
		e := listing(id)
		e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(30*id)
		events = append(events, e)
		for i := range uint64(30) {
			events = append(events, provide(tknPool, 30*id-i, -60, 60, 1_000_000))
		}
	}
	m.mine(t, 1, events...)
	counted := &counting{node: m.node}
	c := clientOf(t, counted)
	c.SetMany(0)
	for name, ask := range map[string]func() error{
		"stats":   func() error { _, err := c.Stats(t.Context()); return err },
		"history": func() error { _, err := c.History(t.Context(), 1); return err },
	} {
		counted.seeks = 0
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		// One each in their own partition, and one for the days of each in a history.
		if n := counted.seeks; n > 3*open {
			t.Errorf("%s: %d seeks for %d positions", name, n, open)
		}
	}
}
