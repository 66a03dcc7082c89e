package query_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

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
	if testing.Short() {
		t.Skip("takes long")
	}
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
		for name, r := range map[string]*query.Client{"local": m.router, "remote": remote, "of no past": clientOf(t, m.node)} {
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
	if testing.Short() {
		t.Skip("takes long")
	}
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

// eventfulDays mines days that are alike: on each some deals are listed, some funded and some end, in many assets and in
// positions, and each pool is traded in.
func eventfulDays(t testing.TB, m *marketNode, pools, deals, days int) {
	t.Helper()
	var events []contracts.Event
	for i := range pools {
		id := common.Hash{0x99, byte(i)}
		events = append(events, initialize(t, id, usdg, common.Address{0x99, byte(i)}, 0), provide(id, 1<<40+uint64(i), -6000, 6000, 1<<50), allow(id))
	}
	m.mine(t, 1, events...)
	for range days {
		next := m.number << 20
		events = events[:0]
		for i := range pools {
			id, tick := common.Hash{0x99, byte(i)}, int32(m.number)%100
			events = append(events, &contracts.Swapped{PoolID: id, SqrtPriceX96: at(t, tick), Tick: tick, Liquidity: word(1 << 50)})
		}
		for i := range deals {
			id := next + uint64(i)
			e := listing(id)
			e.Token, e.Lane, e.AmountOrTokenID = common.Address{0x99, byte(i % pools)}, contracts.LaneStock, word(1000)
			if i%5 == 0 {
				e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(id)
				events = append(events, provide(common.Hash{0x99, byte(i % pools)}, id, -60, 60, 1_000_000))
			}
			events = append(events, e)
			if m.number > 1 {
				gone := (m.number-1)<<20 + uint64(i)
				events = append(events,
					&contracts.DealFunded{DealID: word(gone), Price: word(900), Fee: word(4), FundedAt: m.time + daySeconds},
					&contracts.DealReclaimed{DealID: word(gone), At: m.time + daySeconds})
			}
		}
		m.mine(t, daySeconds, events...)
	}
}

// A history visits as many rows whether the market is months or years old, and the days that are over only once: whoever asks
// for all numbers of days makes a client read few times.
func TestHistoryVisitsOnlyItsDays(t *testing.T) {
	visits := func(days int) (first, again int) {
		m := newMarketNode(t, deployment)
		eventfulDays(t, m, 3, 10, days)
		c := &counting{node: m.node}
		r := clientOf(t, c)
		a, err := r.History(t.Context(), 7)
		if all := must(t, a, err); len(all) != 7 || all[0].TVL.USDG.IsZero() || all[0].Volume.IsZero() || all[6].TVL.ByLane[contracts.LanePosition].IsZero() {
			t.Fatalf("the first of %d days is %+v", len(all), all[0])
		}
		first, c.rows = c.rows, 0
		for n := 1; n <= query.MaxDays; n++ {
			a, err := r.History(t.Context(), n)
			must(t, a, err)
		}
		return first, c.rows / query.MaxDays
	}
	months, alike := visits(60)
	years, again := visits(800)
	if months == 0 || years > months+months/10 { // deals differ in the partitions that their IDs are in
		t.Errorf("%d rows are visited after 60 days, %d after 800", months, years)
	}
	if alike > months/2 || again > years/2 {
		t.Errorf("%d rows are visited for each number of days after 60 days, %d after 800: a first read visits %d", alike, again, years)
	}
	t.Logf("%d rows after 60 days, %d after 800; %d and %d again", months, years, alike, again)
}

// clientOf is a client that has read nothing yet.
func clientOf(t testing.TB, n query.Source) *query.Client {
	t.Helper()
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local = marketPartitions, n
	r, err := query.NewClient(routing, deployment)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// BenchmarkHistory reads the days of a market of 500, again and for the first time: 50 assets with a pool each, 200 deals a day, a
// fifth of them positions.
func BenchmarkHistory(b *testing.B) {
	m := newMarketNode(b, deployment)
	eventfulDays(b, m, 50, 200, 500)
	for _, days := range []int{1, 90, query.MaxDays} {
		for name, of := range map[string]func() *query.Client{"again": func() *query.Client { return m.router }, "first": func() *query.Client { return clientOf(b, m.node) }} {
			b.Run(fmt.Sprintf("%d/%s", days, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if a, err := of().History(b.Context(), days); err != nil || len(a.Value) != days {
						b.Fatal(len(a.Value), err)
					}
				}
			})
		}
	}
}

// endedPositions mines days with so many positions together, each of them collateral for a day.
func endedPositions(t *testing.T, m *marketNode, many, each uint64) {
	t.Helper()
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), provide(tknPool, 1<<33, -6000, 6000, 1<<50), allow(tknPool))
	for id := uint64(0); id < many; {
		var list, end []contracts.Event
		for range each {
			id++
			e := listing(id)
			e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(id)
			list, end = append(list, provide(tknPool, id, -60, 60, 1_000_000), e), append(end, &contracts.DealCancelled{DealID: word(id)})
		}
		m.mine(t, daySeconds, list...)
		m.mine(t, daySeconds, end...)
	}
}

// However many pages of positions a history has, it reads each row of their days once: twice as many positions, twice as many
// rows.
func TestHistoryVisitsPositionsOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	visits := func(many uint64) float64 {
		m := newMarketNode(t, deployment)
		endedPositions(t, m, many, 2500)
		c := &counting{node: m.node}
		a, err := clientOf(t, c).History(t.Context(), 90)
		if all := must(t, a, err); all[len(all)-2].TVL.ByLane[contracts.LanePosition].IsZero() {
			t.Fatal("no positions were collateral")
		}
		return float64(c.rows) / float64(many)
	}
	few, many := visits(5000), visits(80_000)
	if many > few*1.1 {
		t.Errorf("%.1f rows are visited for each of 80,000 positions, %.1f for each of 5,000", many, few)
	}
	t.Logf("%.1f and %.1f rows for a position", few, many)
}

// Positions whose deals are in all partitions, and their pools too, are gone over once, in few scans, and by the first read of a
// client as well: the current day is not read by itself before the others.
func TestHistoryGoesOverContentsOnce(t *testing.T) {
	const many, perBlock = 20_000, 2_000 // more than two requests may have
	m := newMarketNode(t, deployment)
	var pools []common.Hash
	for i := range byte(16) {
		pool := common.Hash{0xd0, i}
		pools = append(pools, pool)
		m.mine(t, 1, initialize(t, pool, usdg, common.Address{i + 1, 0xd}, 0), provide(pool, 1<<33+uint64(i), -6000, 6000, 1<<50), allow(pool))
	}
	for id := uint64(0); id < many; {
		var events []contracts.Event
		for range perBlock {
			id++
			e := listing(id)
			e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(id)
			events = append(events, provide(pools[id%uint64(len(pools))], id, -60, 60, 1_000_000+id), e)
		}
		m.mine(t, 1, events...)
	}
	m.mine(t, 40*daySeconds)
	for days, scansEach := range map[int]int{1: 0, 30: 1} {
		c := &counting{node: m.node}
		a, err := clientOf(t, c).History(t.Context(), days)
		if all := must(t, a, err); all[len(all)-1].TVL.ByLane[contracts.LanePosition].IsZero() {
			t.Fatal("no positions are collateral")
		}
		if most := many + many/20; c.over > most {
			t.Errorf("%d days: %d rows of contents are gone over for %d positions", days, c.over, many)
		}
		if most := 2000 + scansEach*many/20; c.seeks > most {
			t.Errorf("%d days: %d seeks for %d positions, want at most %d", days, c.seeks, many, most)
		}
		less := clientOf(t, m.node)
		less.SetGathered(many / 5)
		in, err := less.History(t.Context(), days)
		if diff := cmp.Diff(a.Value, must(t, in, err)); diff != "" {
			t.Errorf("%d days, read in parts: %s", days, diff)
		}
	}
}

// What positions were before the days that are read, and what others were, which are no collateral, counts for nothing, though the
// rows of both are between those that are read.
func TestHistoryOfPositionsAmongOthers(t *testing.T) {
	const many, days, changes = 60, 30, 45
	m := newMarketNode(t, deployment)
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), provide(tknPool, 1<<33, -6000, 6000, 1<<50), allow(tknPool))
	var listings []contracts.Event
	for id := uint64(1); id <= many; id++ {
		if id%20 > 1 {
			continue
		}
		e := listing(id)
		e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(id)
		listings = append(listings, e)
	}
	said := make([]uint256.Int, 0, changes)
	for n := range uint64(changes) {
		events := make([]contracts.Event, 0, many)
		for id := uint64(1); id <= many; id++ {
			events = append(events, provide(tknPool, id, -60, 60, 1_000_000*(id+n)))
		}
		m.mine(t, daySeconds, append(events, listings...)...)
		listings = nil
		a, err := m.router.Stats(t.Context())
		s := must(t, a, err)
		said = append(said, s.TVL.USDG)
	}
	a, err := clientOf(t, m.node).History(t.Context(), days)
	for i, d := range must(t, a, err) {
		if want := said[changes-days+i]; d.TVL.USDG != want || want.IsZero() {
			t.Errorf("day %d of %d: %s was locked, Stats said %s", i, days, d.TVL.USDG.Dec(), want.Dec())
		}
	}
}

// What a request began to read of the past is read to its end though the request has ended: so retries come to an answer, and
// nothing is read twice.
func TestHistoryGoesOnForARetry(t *testing.T) {
	m := newMarketNode(t, deployment)
	eventfulDays(t, m, 3, 10, 60)
	c := &counting{node: m.node}
	visits := func(days int) int {
		before := c.rows
		a, err := clientOf(t, c).History(t.Context(), days)
		must(t, a, err)
		return c.rows - before
	}
	one, whole := visits(1), visits(30)
	ctx, cancel := context.WithCancel(t.Context())
	before := c.rows
	c.each = func(rows int) {
		if rows == before+(one+whole)/2 { // amid the days of the past
			cancel()
		}
	}
	r := clientOf(t, c)
	for tries := 1; ; tries++ {
		a, err := r.History(ctx, 30)
		if err == nil {
			alone, err := m.router.History(t.Context(), 30)
			if diff := cmp.Diff(must(t, alone, err), a.Value); diff != "" {
				t.Error(diff)
			}
			break
		}
		if tries > 1 || !errors.Is(err, context.Canceled) {
			t.Fatalf("request %d: %v", tries, err)
		}
		ctx = t.Context()
	}
	if rows, most := c.rows-before, whole+2*one; rows > most {
		t.Errorf("a request that ends early and its retry visit %d rows, want at most %d: one that goes on visits %d", rows, most, whole)
	}
}
