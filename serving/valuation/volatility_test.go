package valuation

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/processors/market/query"
)

// TestVolatilityOfPaths: of closes as the pipeline keeps them the deviation is that of the prices, within five parts of a hundred.
func TestVolatilityOfPaths(t *testing.T) {
	random := rand.New(rand.NewPCG(4663, 9))
	const (
		paths, hours = 100, 100
		minute       = 60
		perMinute    = 10 / 7.745966692414834 // ticks: 10 an hour
	)
	h := DefaultConfig().Haircut
	h.MinHours, h.Decay = 0, 0.99
	var sum float64
	for range paths {
		at, series := 0.0, []level{}
		for range hours {
			var seconds []query.PriceAt
			for i := range uint64(60) {
				at += random.NormFloat64() * perMinute * 100
				seconds = append(seconds, query.PriceAt{At: i * minute, Low: int32(math.Round(at)), High: int32(math.Round(at))})
			}
			low, high, _ := query.MedianTick(seconds, hour-1, 1800)
			series = append(series, levelOf(low, high, true))
		}
		sigma, _ := h.deviation(series)
		sum += sigma * sigma
	}
	want := 1000 * logTick
	if got := math.Sqrt(sum / paths); math.Abs(got/want-1) > 0.05 {
		t.Errorf("a deviation of %.5f an hour, of the paths it is %.5f", got, want)
	}
}

// TestHoursOfAHalt: while the chain stands still hours close where the last one did, and the first one after it has all that the
// price did meanwhile. Over many paths and moments the deviation is no smaller for it.
func TestHoursOfAHalt(t *testing.T) {
	random := rand.New(rand.NewPCG(4663, 43))
	const paths, hours, halt = 4000, 168, 12
	h := DefaultConfig().Haircut
	var with, without float64
	for range paths {
		at := 0.0
		var moves, halted []level
		for range hours {
			at += random.NormFloat64() * 100
			moves = append(moves, level{low: at, high: at})
		}
		from := 1 + random.IntN(hours-halt-1)
		halted = slices.Clone(moves)
		for i := from; i < from+halt; i++ {
			halted[i] = halted[from-1]
		}
		sum := func(of []level) float64 { sigma := h.ofReturns(of); return sigma * sigma }
		with, without = with+sum(halted), without+sum(moves)
	}
	if with < 0.97*without {
		t.Errorf("a variance of %g with a halt, without %g", with/paths, without/paths)
	}
}

// TestMomentsBeginNothing: moments of liquidity before a pool's life do not make it calmer.
func TestMomentsBeginNothing(t *testing.T) {
	h := DefaultConfig().Haircut
	var life []level
	for i := range int32(h.MinHours + 2) {
		life = append(life, levelOf(i%2*500, i%2*500, true))
	}
	without, _ := h.deviation(append([]level{{empty: true}, {empty: true}}, life...))
	if with, _ := h.deviation(append([]level{{brief: true}, {brief: true}}, life...)); with < without {
		t.Errorf("the deviation is %g, without such moments %g", with, without)
	}
}

// TestMomentsLowerNothing: whatever moments of liquidity there are while a pool is empty, at whatever prices, the deviation is no
// lower than without them.
func TestMomentsLowerNothing(t *testing.T) {
	h := DefaultConfig().Haircut
	hours := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) level {
		at := float64(rapid.IntRange(-500, 500).Draw(t, "tick"))
		return level{low: at, high: at, brief: rapid.Bool().Draw(t, "brief")}
	}), 1, 40)
	rapid.Check(t, func(t *rapid.T) {
		with := hours.Draw(t, "hours")
		with = append(with, level{}) // now
		without := slices.Clone(with)
		for i := range without {
			without[i].empty = without[i].brief
		}
		if moments, none := h.ofReturns(with), h.ofReturns(without); moments < none*(1-1e-9) {
			t.Fatalf("a deviation of %g, without moments %g", moments, none)
		}
	})
}

func TestVolatility(t *testing.T) {
	h := DefaultConfig().Haircut
	var flat, wild []level
	for i := range int32(100) {
		flat = append(flat, levelOf(7, 7, true))
		wild = append(wild, levelOf(i%2*100, i%2*100, true)) // 100 ticks up, 100 down: 1 % an hour
	}
	if sigma, n := h.deviation(flat); sigma != 0 || n != 99 {
		t.Errorf("a price that stands still has %g over %d hours", sigma, n)
	}
	want := 0.01 * math.Sqrt(ofMedians)
	if sigma, _ := h.deviation(wild); math.Abs(sigma-want) > 1e-6 {
		t.Errorf("1 %% an hour of medians is %g, want %g", sigma, want)
	}
	calm := append(slices.Clone(wild), wild[len(wild)-1]) // in an hour that has just begun
	if sigma, _ := h.deviation(calm); math.Abs(sigma-want) > 1e-6 {
		t.Errorf("it is %g in a calm minute, want %g", sigma, want)
	}
	if sigma, _ := h.deviation(flat[:5]); sigma != h.UnknownHourly {
		t.Errorf("of an unknown price %g", sigma)
	}
	// 1.65 · 1 % · sqrt(100 h) = 16.5 %.
	if got, want := h.factor(0.01, 100*3600, 10_000), math.Exp(-0.165)*billion; math.Abs(float64(got)-want) > 2 {
		t.Errorf("%d billionths, want %g", got, want)
	}
	if got := h.factor(0, 3600, 2500); got != billion/4 {
		t.Errorf("the lane's most: %d billionths", got)
	}
}
