package notifier_test

import (
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
)

// The model's state: the canonical blocks, each with its events, and the subscriptions.
type (
	happening struct {
		funded *deal
		ended  int64 // deal
		opened uint32
		budget budgetEvent
	}
	budgetEvent struct {
		epoch, term     uint32
		whole, reserved int64
	}
	standing struct {
		time uint64
		what []happening
	}
	asked struct {
		wallet  common.Address
		channel string
		kinds   map[string]bool
	}
	oracle struct {
		asked  []asked
		told   map[string]uint64      // wallet and funding: by when all that was due was told
		news   map[string]bool        // that were told of
		alerts map[common.Hash]uint64 // when each was due

		reached uint64               // the time of the last tick
		again   map[common.Hash]bool // alerts of a time that was taken back: they wait, published, until they are due
	}
)

var prefOf = map[string]string{
	"t48": "t48", "t24": "t24", "t6": "t6", "t1": "t1", "expiry": "expiry", "graceEnd": "expiry",
	"epoch": "epoch", "budget90": "budget", "budget100": "budget",
}

// fire is an alert: of all that one tick makes due of a deal a channel is told of the last that it asked for.
func (o *oracle) fire(t testing.TB, a asked, kind string, d *deal, n budgetEvent, due uint64) {
	if !a.kinds[prefOf[kind]] {
		return
	}
	alert := topics.Alert{Wallet: a.wallet, Channel: a.channel, Kind: kind, Due: due, Epoch: uint64(n.epoch), Term: uint64(n.term)}
	if d != nil {
		alert.DealID = fmt.Sprint(d.id)
	}
	id := alert.ID()
	if _, told := o.alerts[id]; told && !o.again[id] {
		t.Fatalf("the model tells %s twice", kind)
	}
	o.alerts[id] = due
	delete(o.again, id)
}

// tick is what comes due when the safe block has come to a time, as the chain stands.
func (o *oracle) tick(t testing.TB, chain []standing, now uint64) {
	if soon := now + 600; o.reached > soon {
		for funding, by := range o.told {
			o.told[funding] = min(by, soon)
		}
		for id, due := range o.alerts {
			o.again[id] = o.again[id] || due > soon
		}
	}
	o.reached = now
	open := map[int64]*deal{}
	type newsOf struct {
		kind string
		at   uint64
		n    budgetEvent
	}
	var due []newsOf
	reached := map[string]newsOf{} // by kind, epoch and term
	for _, b := range chain {
		for _, h := range b.what {
			switch {
			case h.funded != nil:
				open[h.funded.id] = h.funded
			case h.ended != 0:
				delete(open, h.ended)
			case h.opened != 0:
				due = append(due, newsOf{"epoch", b.time, budgetEvent{epoch: h.opened}})
			case h.budget.epoch != 0:
				for _, percent := range []int64{90, 100} {
					kind := fmt.Sprint("budget", percent)
					key := fmt.Sprint(kind, h.budget.epoch, h.budget.term)
					was, found := reached[key]
					if h.budget.reserved*100 < h.budget.whole*percent || was.n.reserved == was.n.whole && h.budget.reserved < h.budget.whole {
						delete(reached, key)
						found = false
					}
					if !found && h.budget.reserved*100 >= h.budget.whole*percent {
						reached[key] = newsOf{kind, b.time, h.budget}
					}
				}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(open)) {
		d := open[id]
		for _, wallet := range []common.Address{d.borrower, d.lender} {
			funding := fmt.Sprint(wallet, d.id, d.fundedAt, d.expiry)
			after := max(o.told[funding], d.fundedAt)
			type stage struct {
				kind string
				due  uint64
			}
			var passed []stage
			for _, s := range []stage{
				{"t48", d.expiry - 48*hour},
				{"t24", d.expiry - 24*hour},
				{"t6", d.expiry - 6*hour},
				{"t1", d.expiry - hour},
				{"expiry", d.expiry},
				{"graceEnd", d.graceEnd},
			} {
				if s.due > after && s.due <= now {
					passed = append(passed, s)
				}
			}
			if len(passed) == 0 {
				continue
			}
			o.told[funding] = now
			for _, a := range o.asked {
				for _, s := range slices.Backward(passed) {
					if a.wallet == wallet && a.kinds[prefOf[s.kind]] {
						o.fire(t, a, s.kind, d, budgetEvent{}, s.due)
						break
					}
				}
			}
		}
	}
	due = slices.AppendSeq(due, maps.Values(reached))
	due = slices.DeleteFunc(due, func(n newsOf) bool { return n.at >= now })
	for _, n := range due {
		told := fmt.Sprint(n.kind, n.n.epoch, n.n.term)
		if o.news[told] || slices.ContainsFunc(due, func(other newsOf) bool {
			return other.kind == "epoch" && other.n.epoch > n.n.epoch ||
				other.kind == "budget100" && n.kind == "budget90" && other.n.epoch == n.n.epoch && other.n.term == n.n.term
		}) {
			continue
		}
		o.news[told] = true
		for _, a := range o.asked {
			o.fire(t, a, n.kind, nil, budgetEvent{epoch: n.n.epoch, term: n.n.term}, n.at)
		}
	}
}

// Whatever happens on the chain, with reorgs as deep as they may come, what is fired is what a model of its own says:
// each alert once, for whom it concerns, at its time, and only if it was true.
func TestModel(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { testModel(t, rand.New(rand.NewPCG(seed, 17))) })
	}
}

func testModel(t *testing.T, rng *rand.Rand) {
	const unsafe = 3
	c := newChain(t, unsafe)
	o := &oracle{told: map[string]uint64{}, news: map[string]bool{}, alerts: map[common.Hash]uint64{}, again: map[common.Hash]bool{}}
	wallets := []common.Address{{1}, {2}, {3}, {4}}
	for _, wallet := range wallets {
		for i, channel := range notifier.Channels {
			a := asked{wallet, channel.String(), map[string]bool{}}
			var kinds []notifier.Kind
			for _, k := range notifier.Kinds {
				if rng.IntN(3) > 0 {
					a.kinds[k.String()] = true
					kinds = append(kinds, k)
				}
			}
			o.asked = append(o.asked, a)
			c.subscribe(wallet, channel, int64(i+1), kinds...)
		}
	}
	var (
		blocks []standing
		deals  int64
		epochs uint32
		floor  uint64 // nothing is reverted at and below it
	)
	for range 60 {
		for n := 0; rng.IntN(5) == 0 && n < 2*unsafe-1 && c.head.Number > floor; n++ {
			c.revert()
			blocks = blocks[:len(blocks)-1]
		}
		later := 5 + rng.Uint64N(4*hour)
		if rng.IntN(12) == 0 {
			later += 30 * hour // a downtime
		}
		b := standing{time: c.head.Timestamp + later}
		var logs []*topics.Log
		for range rng.IntN(3) {
			deals++
			d := &deal{
				id: deals, borrower: wallets[rng.IntN(4)], lender: wallets[rng.IntN(4)], fundedAt: b.time, expiry: b.time + 1 + rng.Uint64N(80*hour),
			}
			if d.lender == d.borrower {
				continue // the vault takes no such deal
			}
			d.graceEnd = d.expiry + 24*hour
			logs = append(logs, c.listed(d), c.funded(d))
			b.what = append(b.what, happening{funded: d})
		}
		if open := stillOpen(blocks); len(open) > 0 && rng.IntN(2) == 0 {
			id := open[rng.IntN(len(open))]
			logs = append(logs, c.log("DealReclaimed", map[string]any{"dealId": big.NewInt(id)}))
			b.what = append(b.what, happening{ended: id})
		}
		if rng.IntN(8) == 0 {
			epochs++
			logs = append(logs, c.log("EpochOpened", map[string]any{
				"n": uint64(epochs), "startsAt": b.time, "endsAt": b.time + 7*24*hour, "dealBudget7": uint64(1000), "dealBudget21": uint64(1000),
			}))
			b.what = append(b.what, happening{opened: epochs})
		} else if known := lastEpoch(blocks); known != 0 && rng.IntN(3) == 0 {
			log, e := c.reserves(rng, blocks, known)
			logs = append(logs, log)
			b.what = append(b.what, happening{budget: e})
		}
		c.block(later, logs...)
		blocks = append(blocks, b)
		floor = max(floor, c.back(2*unsafe).Number)
		c.applied()
		if len(blocks) > unsafe {
			o.tick(t, blocks, blocks[len(blocks)-1-unsafe].time)
		}
	}
	got := c.alerts()
	seen := map[common.Hash]bool{}
	for _, id := range got {
		if seen[id] {
			t.Errorf("alert %s came twice", id)
		}
		if seen[id] = true; o.alerts[id] == 0 {
			t.Errorf("alert %s is none of the model's", id)
		}
	}
	if len(seen) != len(o.alerts) || len(seen) < 50 {
		t.Errorf("%d alerts, the model has %d", len(seen), len(o.alerts))
	}
}

// reserves is the event by which more or less of one of an epoch's budgets is reserved than before.
func (c *chain) reserves(rng *rand.Rand, before []standing, epoch uint32) (*topics.Log, budgetEvent) {
	e := budgetEvent{epoch: epoch, term: []uint32{7, 21}[rng.IntN(2)] * 24 * hour, whole: 1000, reserved: 800 + rng.Int64N(201)}
	event := "EpochReserved"
	if e.reserved < reservedOf(before, epoch, e.term) {
		event = "EpochReturned"
	}
	return c.log(event, map[string]any{"n": uint64(epoch), "term": uint64(e.term), "reservedAfter": uint64(e.reserved)}), e
}

func stillOpen(chain []standing) []int64 {
	open := map[int64]bool{}
	for _, b := range chain {
		for _, h := range b.what {
			if h.funded != nil {
				open[h.funded.id] = true
			}
			delete(open, h.ended)
		}
	}
	return slices.Sorted(maps.Keys(open))
}

func lastEpoch(chain []standing) (n uint32) {
	for _, b := range chain {
		for _, h := range b.what {
			n = max(n, h.opened)
		}
	}
	return n
}

func reservedOf(chain []standing, epoch, term uint32) (amount int64) {
	for _, b := range chain {
		for _, h := range b.what {
			if h.budget.epoch == epoch && h.budget.term == term {
				amount = h.budget.reserved
			}
		}
	}
	return amount
}
