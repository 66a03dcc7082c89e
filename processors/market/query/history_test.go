package query_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics/polltest"
)

const daySeconds = 86_400

// chronicle is what Stats said last on each day, and what was funded in it.
type chronicle map[uint64]query.Day

// note takes down what Stats says now.
func (c chronicle) note(t *testing.T, m *marketNode, l *ledger) {
	t.Helper()
	a, err := m.router.Stats(t.Context())
	d := query.Day{Start: m.time / daySeconds * daySeconds, TVL: must(t, a, err).TVL}
	for _, deal := range l.deals {
		if f := deal.Funding; f != nil && f.FundedAt/daySeconds == m.time/daySeconds {
			d.Volume.Add(&d.Volume, &f.Price)
			d.Fees.Add(&d.Fees, &f.Fee)
		}
	}
	c[m.time/daySeconds] = d
}

// expect is the last days before a time. A day without a block has what was before it, at the prices of before.
func (c chronicle) expect(now uint64, days int) []query.Day {
	var last query.TVL
	all := make([]query.Day, 0, days)
	today := now / daySeconds
	for n := uint64(0); n <= today; n++ {
		d, known := c[n]
		if known {
			last = d.TVL
		} else {
			d = query.Day{Start: n * daySeconds, TVL: last}
		}
		if n+uint64(days) > today {
			all = append(all, d)
		}
	}
	return all
}

// The end of each day is what Stats said with the day's last block, whatever came later: on one node, and on two. The last day
// is what Stats says now.
func TestHistoryIsWhatStatsSaid(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	m, l := newLedgerNode(t)
	remote := inTwoHalves(t, m.node)
	said := chronicle{}
	said.note(t, m, l)
	compared := map[string]int{}
	for i := range 500 {
		step := rng.Uint64N(20_000)
		if rng.IntN(40) == 0 {
			step = rng.Uint64N(3 * daySeconds)
		}
		m.mine(t, step, append(l.play(t, rng, m.time+step), l.disturb(rng)...)...)
		said.note(t, m, l)
		if i%9 != 0 {
			continue
		}
		days := 1 + rng.IntN(query.MaxDays)
		want := said.expect(m.time, days)
		for name, r := range map[string]*query.Client{"local": m.router, "remote": remote} {
			a, err := r.History(t.Context(), days)
			got := must(t, a, err)
			if a.At.Number != m.number {
				continue // the remote one has not heard of the block yet
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s, block %d: %s", name, m.number, diff)
			}
			compared[name]++
		}
	}
	if compared["local"] < 50 || compared["remote"] == 0 || len(said) < 50 {
		t.Errorf("compared %v times over %d days", compared, len(said))
	}
}

// disturb makes events that change what collateral is worth, or would if it were read as it is now: positions that are no
// collateral any more, and pools that the registry allows no longer.
func (l *ledger) disturb(rng *rand.Rand) (events []contracts.Event) {
	if d := l.any(rng); d != nil && d.Kind == contracts.KindPosition && d.State > contracts.DealFundedState && rng.IntN(2) == 0 {
		id := d.AmountOrTokenID.Uint64()
		p := l.positions[id]
		p[2] += 1000
		l.positions[id] = p
		events = append(events, provide(tknPool, id, int32(p[0]), int32(p[1]), 1000))
	}
	if rng.IntN(8) == 0 {
		e := allow([]common.Hash{tknPool, thinPool}[rng.IntN(2)])
		e.Allowed = rng.IntN(2) == 0
		events = append(events, e)
	}
	return events
}

// A history asks for no more days than it may, and there are none before 1970.
func TestDaysOfAHistory(t *testing.T) {
	m, _ := newLedgerNode(t)
	for _, days := range []int{0, -1, query.MaxDays + 1} {
		if _, err := m.router.History(t.Context(), days); err == nil {
			t.Errorf("%d days are no error", days)
		}
	}
	a, err := m.router.History(t.Context(), query.MaxDays)
	if all := must(t, a, err); len(all) != int(m.time/daySeconds)+1 || all[0].Start != 0 {
		t.Errorf("%d days from %d on", len(all), all[0].Start)
	}
}

// More positions than a request may have are added up page by page.
func TestHistoryOfManyPositions(t *testing.T) {
	const many = 20_001
	m := newMarketNode(t, deployment)
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), provide(tknPool, 1<<33, -6000, 6000, 1<<50), allow(tknPool))
	remote := inTwoHalves(t, m.node)
	list := func(from, to uint64) (events []contracts.Event) {
		for id := from; id <= to; id++ {
			e := listing(id)
			e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(id)
			events = append(events, provide(tknPool, id, -60, 60, 1_000_000), e)
		}
		return events
	}
	end := func(from, to uint64) (events []contracts.Event) {
		for id := from; id <= to; id++ {
			events = append(events, &contracts.DealCancelled{DealID: word(id)})
		}
		return events
	}
	var want []string
	for _, events := range [][]contracts.Event{list(1, many), end(1, many/2), end(many/2+1, many-1), nil} {
		m.mine(t, daySeconds, events...)
		a, err := m.router.Stats(t.Context())
		want = append(want, fmt.Sprint(must(t, a, err).TVL.ByAsset))
	}
	polltest.Until(t, "the nodes are at the block", func() bool {
		a, err := remote.History(t.Context(), len(want))
		return err == nil && a.At.Number == m.number
	})
	for name, r := range map[string]*query.Client{"local": m.router, "remote": remote} {
		a, err := r.History(t.Context(), len(want))
		for i, d := range must(t, a, err) {
			if got := fmt.Sprint(d.TVL.ByAsset); got != want[i] {
				t.Errorf("%s: on day %d there was %s, want %s", name, i, got, want[i])
			}
		}
	}
}
