package ammv4

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
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
	path := "testdata/v4math.jsonl"
	if all := os.Getenv("LIENSTREAM_V4_VECTORS"); all != "" {
		path = all
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	counted := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		got, known := answer(t, v)
		if !known {
			continue
		}
		counted[v.Fn]++
		want := "revert"
		if !v.Revert {
			want = v.Out[0]
		}
		if got != want {
			t.Errorf("%s%v = %s, Solidity says %s", v.Fn, v.In, got, want)
		}
	}
	for _, fn := range []string{"sqrtAtTick", "tickAtSqrt", "amount0", "amount1", "mulDiv"} {
		if counted[fn] < 100 {
			t.Errorf("%d vectors of %s", counted[fn], fn)
		}
	}
}

func answer(t *testing.T, v vector) (string, bool) {
	t.Helper()
	say := func(z *uint256.Int, err error) (string, bool) {
		if err != nil {
			return "revert", true
		}
		return z.Dec(), true
	}
	switch v.Fn {
	case "sqrtAtTick":
		tick, err := strconv.ParseInt(v.In[0], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return say(SqrtPriceAtTick(int32(tick)))
	case "tickAtSqrt":
		tick, err := TickAtSqrtPrice(word(v.In[0]))
		if err != nil {
			return "revert", true
		}
		return strconv.Itoa(int(tick)), true
	case "amount0":
		return say(Amount0(word(v.In[0]), word(v.In[1]), word(v.In[2]), v.In[3] == "true"))
	case "amount1":
		return say(Amount1(word(v.In[0]), word(v.In[1]), word(v.In[2]), v.In[3] == "true"))
	case "mulDiv":
		z, ok := MulDiv(word(v.In[0]), word(v.In[1]), word(v.In[2]), false)
		if !ok {
			return "revert", true
		}
		return z.Dec(), true
	}
	return "", false
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
