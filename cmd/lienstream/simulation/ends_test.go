package simulation

import (
	"strings"
	"testing"
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
