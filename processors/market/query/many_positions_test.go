package query_test

import (
	"testing"

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
