package ingest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// TestFill: an answer that is unknown leaves null what depends on it; a function that is not there does not.
func TestFill(t *testing.T) {
	var (
		says = func(n uint64) rpc.CallResult { b := uint256.NewInt(n).Bytes32(); return rpc.CallResult{Data: b[:]} }
		no   = says(0)
		yes  = says(1)
		none = rpc.CallResult{}
		lost = rpc.CallResult{Failed: true}

		word  = uint256.NewInt
		at    = func(n uint64) *uint64 { return &n }
		is    = func(paused bool) *bool { return &paused }
		split = topics.Probe{UIMultiplier: word(2), NewUIMultiplier: word(3), EffectiveAt: at(4)}
	)
	with := func(p topics.Probe, paused *bool) topics.Probe { p.Paused = paused; return p }
	for _, test := range []struct {
		name    string
		answers []rpc.CallResult
		want    topics.Probe
		whole   bool
	}{
		{"all", []rpc.CallResult{says(2), says(3), says(4), no, no}, with(split, is(false)), true},
		{"no function", []rpc.CallResult{none, none, none, none, none}, topics.Probe{}, true},
		{"no announcements", []rpc.CallResult{says(2), none, none, no, none}, topics.Probe{UIMultiplier: word(2), Paused: is(false)}, true},
		{"paused", []rpc.CallResult{says(2), says(3), says(4), yes, no}, with(split, is(true)), true},
		{"its oracle paused", []rpc.CallResult{says(2), says(3), says(4), none, yes}, with(split, is(true)), true},
		{"pause unknown", []rpc.CallResult{says(2), says(3), says(4), lost, no}, split, false},
		{"pause of the oracle unknown", []rpc.CallResult{says(2), says(3), says(4), no, lost}, split, false},
		{"pause unknown, no other", []rpc.CallResult{says(2), says(3), says(4), lost, none}, split, false},
		{"paused, its oracle unknown", []rpc.CallResult{says(2), says(3), says(4), yes, lost}, with(split, is(true)), false},
		{"pause unknown, its oracle paused", []rpc.CallResult{says(2), says(3), says(4), lost, yes}, with(split, is(true)), false},
		{"multiplier unknown", []rpc.CallResult{lost, says(3), says(4), no, none}, topics.Probe{Paused: is(false)}, false},
		{"the next one unknown", []rpc.CallResult{says(2), lost, says(4), no, none}, topics.Probe{Paused: is(false)}, false},
		{"its time unknown", []rpc.CallResult{says(2), says(3), lost, no, none}, topics.Probe{Paused: is(false)}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got topics.Probe
			if whole := fill(&got, test.answers); whole != test.whole {
				t.Errorf("whole: %t", whole)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
