package indexer

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// begun is a pool with emissions, and an epoch.
func begun() []any {
	return []any{
		&contracts.PoolInitialized{
			PoolID: deployed.PoolID, Currency0: deployed.STKN, Currency1: deployed.TKN, Fee: 3000, TickSpacing: 60,
			SqrtPriceX96: *new(uint256.Int).Lsh(uint256.NewInt(1), 96),
		},
		emissions(7),
		&contracts.EpochOpened{N: 1, StartsAt: start, EndsAt: start + week, Weekly: u(1000), DealBudget7: u(100), DealBudget21: u(1), LiquidityBudget: u(1)},
	}
}

func emissions(rate uint64) *contracts.EmissionsNotified {
	return &contracts.EmissionsNotified{PoolID: deployed.PoolID, Epoch: 1, Amount: u(700), RatePerSecond: u(rate), PeriodFinish: start + 99_999}
}

func reserved(after uint64) *contracts.EpochReserved {
	return &contracts.EpochReserved{N: 1, Term: week, Granted: u(1), ReservedAfter: u(after)}
}

// TestWhoWasToldElsewhere: a client that another node has told of a block, which this one's feed passes over or sees
// reverted, is told what holds instead.
func TestWhoWasToldElsewhere(t *testing.T) {
	for _, c := range []struct {
		name             string
		elsewhere, after func(m *market)
		lacks            []string
	}{
		{
			"what the pool was before a block that was reverted",
			func(m *market) { m.block(start+20, emissions(8)) },
			func(m *market) { m.land(1, start+20) },
			[]string{`"emissionsRatePerSecond":"7"`},
		},
		{
			"what the epoch was before a block that was reverted",
			func(m *market) { m.block(start+20, reserved(1)) },
			func(m *market) { m.land(1, start+20) },
			[]string{"event: epoch\ndata: {\"epoch\":{\"n\":1,", `"reserved7":"0"`},
		},
		{
			"what the pool was before a block that was passed over, and is again",
			func(m *market) { m.block(start+20, emissions(8)) },
			func(m *market) { m.block(start+30, emissions(7)) },
			[]string{`"emissionsRatePerSecond":"7"`},
		},
		{
			"a listing that is no longer over, as the reorg has an earlier time",
			func(m *market) { m.block(start + 60) },
			func(m *market) { m.land(1, start+20) },
			[]string{"event: listing\ndata: {\"id\":\"1\",\"listed\":true}"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMarket(t)
			m.block(start+10, append(begun(), listed(1, func(e *contracts.DealListed) { e.ListingExpiry = start + 50 }))...)
			x := m.indexer()
			x.feed.join()
			defer x.feed.leave()
			x.feed.step(t.Context())
			c.elsewhere(m)
			have := query.Moment{Block: m.at, Reverts: m.reverts}
			s := &subscription{x: x, conn: &httpapi.Stream{}, have: &have}
			if news, moved, err := s.next(t.Context()); len(news) > 0 || moved == nil || err != nil {
				t.Fatalf("before the feed goes on: %q %v", news, err)
			}
			c.after(m)
			x.feed.step(t.Context())
			got, err := told(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range append(c.lacks, m.at.Hash.Hex()) {
				if !strings.Contains(got, want) {
					t.Errorf("%s is left out of\n%s", want, got)
				}
			}
			if strings.Contains(got, resetEvent) {
				t.Errorf("it has to start over")
			}
		})
	}
}

// TestWhoGoesFromNodeToNodeHasWhatIsThere: clients go from one node to the other, and the feed of each passes over blocks as it
// likes, of a chain that is reorganised.
func TestWhoGoesFromNodeToNodeHasWhatIsThere(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newMarket(t)
	m.block(start+1, begun()...)
	router := m.router()
	nodes := []*Indexer{m.indexer(), m.indexer()}
	for _, x := range nodes {
		x.feed.join()
		defer x.feed.leave()
		x.feed.step(t.Context())
	}
	clients := make([]*reader, 4)
	streams := make([]*subscription, len(clients))
	move := func(i int) {
		streams[i] = &subscription{x: nodes[rng.IntN(len(nodes))], conn: &httpapi.Stream{}}
		if id := clients[i].id; id != "" {
			have, ok := streams[i].x.ids.parse(id)
			if !ok {
				t.Fatalf("the ID %q is not known", id)
			}
			streams[i].have = &have
		}
	}
	listen := func(i int) {
		all, err := told(t.Context(), streams[i])
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(all, "\n\n") {
			var e event
			for line := range strings.SplitSeq(part, "\n") {
				switch name, value, _ := strings.Cut(line, ": "); name {
				case "event":
					e.name = value
				case "id":
					e.id = value
				case "data":
					e.data = value
				}
			}
			if e.name != "" {
				clients[i].take(&e)
			}
		}
	}
	for i := range clients {
		clients[i] = m.read(t)
		move(i)
		listen(i)
	}
	epochs := map[int]uint64{} // what is reserved after a block, by the chain's length
	for round := range 600 {
		revert := 0
		if len(m.chain) > 6 && rng.IntN(4) == 0 {
			revert = 1 + rng.IntN(3)
		}
		parent := len(m.chain) - revert
		timestamp := m.chain[parent-1].Timestamp + rng.Uint64N(30)
		events := []any{emissions(7 + rng.Uint64N(2))}
		epochs[parent+1] = epochs[parent]
		if rng.IntN(8) == 0 && epochs[parent] < 99 {
			epochs[parent+1]++
			events = append(events, reserved(epochs[parent+1]))
		}
		if rng.IntN(2) == 0 {
			events = append(events, listed(uint64(round+1), func(e *contracts.DealListed) { e.ListingExpiry = timestamp + rng.Uint64N(60) }))
		}
		m.land(revert, timestamp, events...)
		for _, x := range nodes {
			if rng.IntN(3) == 0 {
				x.feed.step(t.Context())
			}
		}
		for i := range clients {
			if rng.IntN(2) == 0 {
				move(i)
				listen(i)
			}
		}
		if rng.IntN(4) > 0 {
			continue
		}
		for _, x := range nodes {
			x.feed.step(t.Context())
		}
		for i := range clients {
			listen(i)
			if clients[i].check(m, router); clients[i].met["reset"] > 0 {
				t.Error("somebody had to start over")
			}
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// told is all that a client is told until it has to wait.
func told(ctx context.Context, s *subscription) (all string, err error) {
	for {
		news, _, err := s.next(ctx)
		if all += text(news); err != nil || len(news) == 0 {
			return all, err
		}
	}
}
