package valuation

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// attacked is a chain on which somebody moves pools, beside one on which nobody does: but for that they are the same, in
// every block's time.
type attacked struct {
	by      *actor
	router  common.Address
	control *world
	limits  map[string]int // answers and numbers that were compared, by kind
	refused int
}

func newAttacked(t *testing.T) *attacked {
	a := &attacked{control: newWorld(t), limits: map[string]int{}}
	w := newWorld(t)
	a.by = w.deployer()
	var created *types.Transaction
	a.router, created = a.by.swapRouter()
	txs := []*types.Transaction{created}
	for _, token := range []common.Address{w.dep.USDG, w.dep.TKN, w.dep.STKN} {
		txs = append(txs, a.by.approve(token, a.router)...)
	}
	a.mine(1, txs...)
	a.mine(1800) // where the scenario left the prices becomes the reference
	return a
}

// mine mines a block on both chains, with transactions on the one.
func (a *attacked) mine(seconds uint64, txs ...*types.Transaction) {
	a.by.w.t.Helper()
	a.by.w.mine(seconds, txs...)
	a.control.mine(seconds)
}

// compare asks both chains for all that somebody could want to raise: on the attacked one it is refused, or no higher.
func (a *attacked) compare(when string) {
	t := a.by.w.t
	t.Helper()
	for _, ask := range a.questions() {
		status, fair := a.control.ask(ask.target)
		if status != 200 {
			continue // refused, or no such deal: then of no use to compare with
		}
		status, body := a.by.w.ask(ask.target)
		if status == 503 {
			a.refused++
			continue
		}
		have, want := fieldsOf(t, body), fieldsOf(t, fair)
		for _, name := range ask.fields {
			if have[name] == nil || want[name] == nil {
				t.Fatalf("%s: %s has no %s: %s", when, ask.target, name, body)
			}
			a.limits[name]++
			if have[name].Cmp(want[name]) > 0 {
				t.Errorf("%s: %s of %s is %s, without it %s", when, name, ask.target, have[name], want[name])
			}
		}
	}
}

type question struct {
	target string
	fields []string
}

func (a *attacked) questions() (all []question) {
	for id := range 200 {
		all = append(all, question{"/deals/" + strconv.Itoa(id) + "/valuation", []string{"valueUSDG", "suggestedCap"}})
	}
	reinvest := "/quote/reinvest?tickLower=-1200&tickUpper=1200&amount=1000000000000000000000&route="
	return append(all, question{reinvest + "match&payAsset=" + a.by.w.dep.USDG.Hex(), []string{"maxPay"}}, question{reinvest + "zap", []string{"maxSold"}})
}

// TestNobodyRaisesALimitByALittle: the pools are moved by less than is refused. Then a quote's limit is higher by no more than
// what prices may be off, however narrow a range.
func TestNobodyRaisesALimitByALittle(t *testing.T) {
	a := newAttacked(t)
	own := a.by.w.state().byID(a.by.w.dep.PoolID)
	middle := own.Tick / own.TickSpacing * own.TickSpacing
	const amount = 1e15
	ask := func(w *world, half int32) (status int, maxPay *big.Int, sold *big.Int) {
		path := fmt.Sprintf("/quote/reinvest?slippageBps=0&amount=%d&tickLower=%d&tickUpper=%d&route=", int64(amount), middle-half, middle+half)
		status, body := w.ask(path + "match&payAsset=" + w.dep.USDG.Hex())
		zapStatus, zap := w.ask(path + "zap")
		return max(status, zapStatus), fieldsOf(t, body)["maxPay"], fieldsOf(t, zap)["maxSold"]
	}
	compared := 0
	for _, p := range a.by.w.state().pools {
		if other, ok := p.other(a.by.w.dep.USDG); p != own && (!ok || other != a.by.w.dep.TKN) {
			continue
		}
		for _, ticks := range []int32{175, -175, 30, -30} {
			push, back := a.push(p.ID, ticks)
			a.mine(1, push())
			for _, half := range []int32{180, 600, 12_000} {
				when := fmt.Sprintf("pool %s by %d ticks, a range of %d", p.ID.TerminalString(), ticks, 2*half)
				status, fair, fairSold := ask(a.control, half)
				if status != 200 {
					t.Fatalf("%s: %d without", when, status)
				}
				if status, pays, sold := ask(a.by.w, half); status == 200 {
					compared++
					more := new(big.Int).Sub(pays, tolerated(fair, 2))
					if more.Cmp(new(big.Int).Quo(fair, big.NewInt(20))) > 0 { // of the amount itself, which is worth about as much
						t.Errorf("%s: %s is paid, without it %s", when, pays, fair)
					}
					if most := tolerated(big.NewInt(amount), 1); sold.Cmp(most.Sub(most, big.NewInt(amount)).Add(most, fairSold)) > 0 {
						t.Errorf("%s: %s is sold, without it %s", when, sold, fairSold)
					}
				} else if status != 503 {
					t.Errorf("%s: %d", when, status)
				} else {
					a.refused++
				}
			}
			a.mine(1, back())
		}
	}
	if compared < 8 || a.refused < 4 {
		t.Errorf("%d compared, %d refused", compared, a.refused)
	}
}

// fieldsOf are the amounts of an answer.
func fieldsOf(t *testing.T, body []byte) map[string]*big.Int {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(body, &all); err != nil {
		t.Fatal(err)
	}
	amounts := map[string]*big.Int{}
	for name, value := range all {
		if text, ok := value.(string); ok {
			if n, ok := new(big.Int).SetString(text, 10); ok {
				amounts[name] = n
			}
		}
	}
	return amounts
}

// push moves a pool by ticks, back is the swap that returns it to its price.
func (a *attacked) push(id common.Hash, ticks int32) (push, back func() *types.Transaction) {
	p := a.by.w.state().byID(id)
	down, much := ticks < 0, new(big.Int).Lsh(big.NewInt(1), 90)
	return func() *types.Transaction { return a.by.swap(a.router, p, down, much, p.Tick+ticks) },
		func() *types.Transaction { return a.by.swapTo(a.router, p, !down, much, &p.SqrtPriceX96) }
}

// TestNobodyRaisesAnythingOnTheChain: somebody with money moves the pools by 30 % in one block, for ten minutes, and there
// and back around a valuation. No value, suggested cap or limit of a quote is higher for it than on a chain without.
func TestNobodyRaisesAnythingOnTheChain(t *testing.T) {
	a := newAttacked(t)
	a.compare("before")
	if a.refused > 0 || a.limits["suggestedCap"] < 20 || a.limits["maxPay"] != 1 || a.limits["maxSold"] != 1 {
		t.Fatalf("before anything happens %v are compared and %d refused", a.limits, a.refused)
	}
	pools := []common.Hash{a.by.w.dep.PoolID}
	for _, p := range a.by.w.state().pools {
		if other, ok := p.other(a.by.w.dep.USDG); ok && other == a.by.w.dep.TKN {
			pools = append(pools, p.ID)
		}
	}
	for _, id := range pools {
		for _, ticks := range []int32{2624, -3567} { // +30 %, -30 %
			name := fmt.Sprintf("pool %s by %d ticks", id.TerminalString(), ticks)
			push, back := a.push(id, ticks)
			a.mine(1, push(), back())
			a.compare(name + " and back in one block")
			before := a.refused
			a.mine(1, push())
			a.compare(name + " in one block")
			if a.refused == before {
				t.Errorf("%s: nothing is refused", name)
			}
			a.mine(1, back())
			a.compare(name + ", around a valuation")
			a.mine(600)
			a.mine(1, push())
			for range 5 {
				a.mine(120)
				a.compare(name + " for ten minutes")
			}
			a.mine(1, back())
			a.compare(name + ", after ten minutes back")
			for range 6 {
				a.mine(600)
				a.compare(name + ", later")
			}
		}
	}
	t.Logf("compared %v, refused %d", a.limits, a.refused)
}
