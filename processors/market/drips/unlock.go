package drips

import (
	"cmp"
	"slices"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/topics"
)

// Point is a corner of a drip's unlock curve.
type Point struct {
	T        uint64
	Unlocked uint256.Int
}

// Unlocked is what a drip has unlocked at a time, as RewardDistributor.unlocked computes it: after a cut the
// whole total; otherwise 0 before the cliff, and then min(total, total*(t-start)/length), rounded down.
func Unlocked(d *topics.Drip, t uint64) uint256.Int {
	if d.CutAt != 0 && t >= d.CutAt {
		return d.Total
	}
	// Before its cut a drip unlocked the granted amount.
	if t < d.Cliff || t < d.Start || d.Length == 0 {
		return uint256.Int{}
	}
	elapsed := t - d.Start
	if elapsed >= d.Length {
		return d.Granted
	}
	var z uint256.Int
	z.MulDivOverflow(&d.Granted, uint256.NewInt(elapsed), uint256.NewInt(d.Length)) // less than Granted
	return z
}

// Claimable is what can be claimed of a drip at a time.
func Claimable(d *topics.Drip, t uint64) (z uint256.Int) {
	unlocked := Unlocked(d, t)
	if unlocked.Gt(&d.Claimed) {
		z.Sub(&unlocked, &d.Claimed)
	}
	return z
}

// Curve is the corners of the unlock curve: start, cliff, cut and end, ascending by time, without duplicates.
func Curve(d *topics.Drip) []Point {
	times := []uint64{d.Start, d.Cliff, d.Start + d.Length}
	if d.CutAt != 0 {
		times = append(times, d.CutAt)
	}
	slices.SortFunc(times, cmp.Compare)
	times = slices.Compact(times)
	curve := make([]Point, len(times))
	for i, t := range times {
		curve[i] = Point{t, Unlocked(d, t)}
	}
	return curve
}
