package drips

import (
	"testing"

	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/topics"
)

func word(n uint64) uint256.Int { return *uint256.NewInt(n) }

func TestUnlocked(t *testing.T) {
	d := topics.Drip{Granted: word(1000), Total: word(1000), Start: 100, Length: 30, Cliff: 110}
	cut := d
	cut.Total, cut.CutAt = word(666), 120
	early := d
	early.Total, early.CutAt = word(0), 105
	for _, c := range []struct {
		drip *topics.Drip
		at   uint64
		want uint64
	}{
		{&d, 0, 0},
		{&d, 100, 0},
		{&d, 109, 0},
		{&d, 110, 333},
		{&d, 111, 366},
		{&d, 129, 966},
		{&d, 130, 1000},
		{&d, 1 << 40, 1000},
		{&cut, 110, 333},
		{&cut, 119, 633},
		{&cut, 120, 666},
		{&cut, 1 << 40, 666},
		{&early, 104, 0},
		{&early, 105, 0},
		{&early, 1 << 40, 0},
	} {
		if got := Unlocked(c.drip, c.at); got != word(c.want) {
			t.Errorf("at %d of %+v: %s, want %d", c.at, c.drip, got.Dec(), c.want)
		}
	}
}

// The distributor's invariant, a cut included: claimed <= unlocked <= total, and unlocked never shrinks. And
// between two corners of the curve nothing is off the line by more than what rounding takes.
func TestUnlockedNeverShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.Uint64Range(1, 1_000).Draw(t, "length")
		d := topics.Drip{Granted: word(rapid.Uint64().Draw(t, "granted")), Start: 1_000, Length: length}
		d.Cliff = d.Start + rapid.Uint64Range(0, length).Draw(t, "cliff")
		d.Total = d.Granted
		if rapid.Bool().Draw(t, "is cut") {
			at := rapid.Uint64Range(d.Start, d.Start+length).Draw(t, "cut")
			d.Total = Unlocked(&d, at) // what the contract leaves
			d.CutAt = at
		}
		var before uint256.Int
		for at := d.Start - 1; at <= d.Start+length+1; at++ {
			now := Unlocked(&d, at)
			if now.Lt(&before) || now.Gt(&d.Total) {
				t.Fatalf("at %d: %s after %s of %s", at, now.Dec(), before.Dec(), d.Total.Dec())
			}
			if d.Claimed = before; Claimable(&d, at) != *new(uint256.Int).Sub(&now, &before) {
				t.Fatalf("at %d another amount can be claimed", at)
			}
			before = now
		}
		if before != d.Total {
			t.Fatalf("%s of %s at the end", before.Dec(), d.Total.Dec())
		}
		curve := Curve(&d)
		for i, p := range curve {
			if p.Unlocked != Unlocked(&d, p.T) || i > 0 && p.T <= curve[i-1].T {
				t.Fatalf("curve %+v", curve)
			}
		}
		if curve[0].T != d.Start || curve[len(curve)-1].T != d.Start+length || curve[len(curve)-1].Unlocked != d.Total {
			t.Fatalf("curve %+v", curve)
		}
	})
}
