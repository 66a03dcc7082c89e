package valuation

import (
	"math/big"
	"net/http"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLastHalt: the last gap is found, as by going from block to block, however many blocks there are, and hardly any is read.
func TestLastHalt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const gap, window = 60, 1800
		at := []uint64{2_000_000_000}
		for range rapid.IntRange(0, 30).Draw(t, "stretches") {
			each := rapid.Uint64Range(0, 12).Draw(t, "block time")
			for range rapid.IntRange(0, 300).Draw(t, "blocks") {
				at = append(at, at[len(at)-1]+each)
			}
			at = append(at, at[len(at)-1]+rapid.Uint64Range(0, 130).Draw(t, "gap"))
		}
		start := rapid.Uint64Range(0, 1e9).Draw(t, "start")
		last := len(at) - 1
		from := mark{number: int64(start) - 1}
		known := rapid.IntRange(-1, last).Draw(t, "known")
		if known >= 0 {
			from = mark{int64(start) + int64(known), at[known]}
		}
		after, want := at[last]-window, uint64(0)
		for i := known + 1; i <= last; i++ {
			if at[i]-append([]uint64{0}, at...)[i] > gap && at[i] > after { // the block before the first is of 1970
				want = at[i]
			}
		}
		rounds, read := 0, 0
		got, err := lastHalt(from, mark{int64(start) + int64(last), at[last]}, after, gap, func(numbers []uint64) (times []uint64, err error) {
			rounds, read = rounds+1, read+len(numbers)
			for _, n := range numbers {
				times = append(times, at[n-start])
			}
			return times, nil
		})
		if err != nil || got != want {
			t.Fatalf("after %d a halt ends at %d, %v; want %d of %v from %d on", after, got, err, want, at, known)
		}
		if known >= 0 && at[last]-at[known] <= gap && read > 0 {
			t.Fatalf("%d blocks are read although the last known one is %d s old", read, at[last]-at[known])
		}
		if rounds > 12 || read > 600 {
			t.Fatalf("%d blocks are read, in %d rounds, of %d", read, rounds, len(at))
		}
	})
}

// TestAHaltIsNoHistory: somebody moves a pool, and adds liquidity, in the last block before the chain stands still for half an
// hour. That the price and the liquidity are there when it goes on says nothing: nobody could do anything about it.
func TestAHaltIsNoHistory(t *testing.T) {
	a := newAttacked(t)
	path := "/assets/" + a.by.w.dep.TKN.Hex() + "/value"
	run := func(seconds uint64) {
		for range seconds / 30 {
			a.mine(30)
		}
	}
	run(1900)
	a.by.w.service.cfg.MaxGap = time.Minute
	a.mine(1)
	if status, body := a.by.w.ask(path); status != http.StatusOK {
		t.Fatalf("before: %d %s", status, body)
	}
	fair := a.worth(path)
	pools := slices.DeleteFunc(slices.Clone(a.by.w.state().pools), func(p *pool) bool {
		other, ok := p.other(a.by.w.dep.USDG)
		return !ok || other != a.by.w.dep.TKN
	})
	for _, p := range pools {
		dear := int32(2624) // the token's price is 30 % higher
		if p.Currency0 == a.by.w.dep.USDG {
			dear = -dear
		}
		push, back := a.push(p.ID, dear)
		a.mine(1, push())
		a.mine(1800)
		for range 10 {
			if status, body := a.by.w.ask(path); status != http.StatusServiceUnavailable {
				t.Errorf("after a halt: %d %s", status, body)
			}
			a.mine(1)
		}
		a.mine(1, back())
		run(1770)
		if status, body := a.by.w.ask(path); status != http.StatusServiceUnavailable {
			t.Errorf("before half an hour has passed since: %d %s", status, body)
		}
		run(60)
		if status, _ := a.by.w.ask(path); status != http.StatusOK || a.worth(path).Cmp(fair) > 0 {
			t.Errorf("half an hour after: %d, worth %s, before %s", status, a.worth(path), fair)
		}
	}
	if len(pools) == 0 {
		t.Error("no pool was moved")
	}
}

// worth is the price that the attacked chain's service answers.
func (a *attacked) worth(path string) *big.Rat {
	a.by.w.t.Helper()
	var value assetBody
	a.by.w.get(path, &value)
	worth, ok := new(big.Rat).SetString(value.PriceUSDG)
	if !ok {
		a.by.w.t.Fatalf("%+v", value)
	}
	return worth
}
