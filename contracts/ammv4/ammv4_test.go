package ammv4

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/holiman/uint256"
	"pgregory.net/rapid"
)

// vector is what the Solidity library answered.
type vector struct {
	Fn     string
	In     []string
	Out    []string
	Revert bool
}

func word(s string) *uint256.Int { return uint256.MustFromDecimal(s) }

// TestVectors compares with answers of Uniswap's own libraries, run on an EVM.
func TestVectors(t *testing.T) {
	file, err := os.Open("testdata/v4math.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]int{}
	for lines := bufio.NewScanner(unzipped); lines.Scan(); {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		got := answer(t, v)
		counted[v.Fn]++
		want := "revert"
		if !v.Revert {
			want = strings.Join(v.Out, " ")
		}
		if got != want {
			t.Errorf("%s%v = %s, Solidity says %s", v.Fn, v.In, got, want)
		}
	}
	total := 0
	for _, fn := range []string{
		"sqrtAtTick", "tickAtSqrt", "amount0", "amount1", "mulDiv", "nextIn", "nextOut", "step", "liq", "swapFee",
	} {
		if counted[fn] < 400 {
			t.Errorf("%d vectors of %s", counted[fn], fn)
		}
		total += counted[fn]
	}
	if total != 6451 {
		t.Errorf("%d vectors, not 6451", total)
	}
}

func answer(t *testing.T, v vector) string {
	t.Helper()
	say := func(z *uint256.Int, err error) string {
		if err != nil {
			return "revert"
		}
		return z.Dec()
	}
	value := func(z uint256.Int, err error) string { return say(&z, err) }
	switch v.Fn {
	case "sqrtAtTick":
		return say(SqrtPriceAtTick(int32(integer(t, v.In[0]))))
	case "tickAtSqrt":
		tick, err := TickAtSqrtPrice(word(v.In[0]))
		if err != nil {
			return "revert"
		}
		return strconv.Itoa(int(tick))
	case "amount0":
		return say(Amount0(word(v.In[0]), word(v.In[1]), word(v.In[2]), v.In[3] == "true"))
	case "amount1":
		return say(Amount1(word(v.In[0]), word(v.In[1]), word(v.In[2]), v.In[3] == "true"))
	case "mulDiv":
		z := new(uint256.Int)
		if !mulDiv(z, word(v.In[0]), word(v.In[1]), word(v.In[2]), false) {
			return "revert"
		}
		return z.Dec()
	case "nextIn":
		return value(NextFromInput(word(v.In[0]), word(v.In[1]), word(v.In[2]), v.In[3] == "true"))
	case "nextOut":
		return value(NextFromOutput(word(v.In[0]), word(v.In[1]), word(v.In[2]), v.In[3] == "true"))
	case "step":
		var s Step
		remaining, exactIn := strings.CutPrefix(v.In[3], "-")
		if err := s.run(word(v.In[0]), word(v.In[1]), word(v.In[2]), word(remaining), exactIn, uint32(integer(t, v.In[4]))); err != nil {
			return "revert"
		}
		return strings.Join([]string{s.Next.Dec(), s.In.Dec(), s.Out.Dec(), s.Fee.Dec()}, " ")
	case "liq":
		return value(LiquidityFor(word(v.In[0]), word(v.In[1]), word(v.In[2]), word(v.In[3]), word(v.In[4])))
	case "swapFee":
		return strconv.Itoa(int(SwapFee(uint32(integer(t, v.In[0])), uint32(integer(t, v.In[1])))))
	}
	t.Fatalf("no function %s", v.Fn)
	return ""
}

func integer(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTicksComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tick := rapid.Int32Range(MinTick, MaxTick-1).Draw(t, "tick")
		at, err := SqrtPriceAtTick(tick)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := TickAtSqrtPrice(at); err != nil || got != tick {
			t.Fatalf("the tick of the price at %d is %d, %v", tick, got, err)
		}
		below := new(uint256.Int).SubUint64(at, 1)
		if got, err := TickAtSqrtPrice(below); tick > MinTick && (err != nil || got != tick-1) {
			t.Fatalf("the tick just below the price at %d is %d, %v", tick, got, err)
		}
	})
}

// A range in parts pays what it pays whole, but for what rounding keeps; in range it pays both currencies, else one.
func TestAmountsOfARange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lower := rapid.Int32Range(-200_000, 199_998).Draw(t, "lower")
		upper := rapid.Int32Range(lower+1, 200_000).Draw(t, "upper")
		tick := rapid.Int32Range(-210_000, 210_000).Draw(t, "tick")
		liquidity := uint256.NewInt(rapid.Uint64Range(1, 1<<62).Draw(t, "liquidity"))
		price, err := SqrtPriceAtTick(tick)
		if err != nil {
			t.Fatal(err)
		}
		amount0, amount1, err := Amounts(price, tick, lower, upper, liquidity)
		if err != nil {
			t.Fatal(err)
		}
		if tick < lower && !amount1.IsZero() || tick >= upper && !amount0.IsZero() {
			t.Fatalf("out of range it pays %s and %s", amount0, amount1)
		}
		middle := lower + (upper-lower)/2
		if middle == lower {
			return
		}
		low0, low1, err := Amounts(price, tick, lower, middle, liquidity)
		if err != nil {
			t.Fatal(err)
		}
		high0, high1, err := Amounts(price, tick, middle, upper, liquidity)
		if err != nil {
			t.Fatal(err)
		}
		near := func(whole, a, b *uint256.Int) bool {
			parts := new(uint256.Int).Add(a, b)
			difference := new(uint256.Int).Sub(whole, parts)
			if parts.Gt(whole) {
				difference.Neg(difference)
			}
			return difference.LtUint64(3)
		}
		if !near(amount0, low0, high0) || !near(amount1, low1, high1) {
			t.Fatalf("whole %s and %s, parts %s+%s and %s+%s", amount0, amount1, low0, high0, low1, high1)
		}
	})
}
