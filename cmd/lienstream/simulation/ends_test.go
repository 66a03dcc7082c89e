package simulation

import (
	"strings"
	"testing"
	"testing/cryptotest"
)

// What a run leaves behind is said, and is not the end of those that follow.
func TestLeavesNothing(t *testing.T) {
	err := leavesNothing(t, func(*testing.T) {
		wait := make(chan struct{})
		go func() { <-wait }()
	})
	if err == nil || !strings.Contains(err.Error(), "TestLeavesNothing") {
		t.Errorf("a goroutine is left: %v", err)
	}
	if err := leavesNothing(t, func(*testing.T) {}); err != nil {
		t.Errorf("none is left: %v", err)
	}
}

// Who rolls processors takes none that a resize has stopped: it would be started twice.
func TestTakesMembersAlone(t *testing.T) {
	r := &run{members: map[string]bool{"processor0": true, "processor1": true, "processor2": false}, busy: map[string]bool{"processor0": true}}
	for host, want := range map[string]bool{"processor0": false, "processor1": true, "processor2": false, "processor3": false} {
		if r.takes(host, "ingester0") != want {
			t.Errorf("%s is taken: %v, want %v", host, !want, want)
		}
	}
}

// Where the embedded broker has the group stuck that reads the chain for alerts, they come once it is freed.
func TestAlertsWaitForAStuckGroup(t *testing.T) {
	if *seedFlag != 0 {
		t.Skip("a seed is asked for")
	}
	rec, o := judge(t)
	opt := defaultOptions()
	opt.calm, opt.alerts, opt.stuck = true, true, true
	var res result
	var cannot error
	left := leavesNothing(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, 1)
		res, cannot = simulate(t.Context(), rec, o, 1, opt, &story{})
	})
	if cannot != nil || left != nil || len(res.findings) > 0 {
		t.Errorf("cannot run: %v; left: %v; findings: %v", cannot, left, res.examples)
	}
	if res.stuck == 0 || res.alerts == 0 {
		t.Errorf("%d groups were stuck, and %d alerts came", res.stuck, res.alerts)
	}
}
