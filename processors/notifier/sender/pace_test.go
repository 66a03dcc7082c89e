package sender

import (
	"testing"
	"time"

	"github.com/lienstream/lienstream/processors/notifier"
)

// Alerts are held while the clock is behind the chain, at whatever speed it runs, and not once it has caught up; nor for longer
// than that is worth.
func TestPace(t *testing.T) {
	const most = time.Minute
	p, now := new(pace), time.Unix(1_900_000_000, 0)
	look := func(behind, later time.Duration) bool {
		now = now.Add(later)
		return p.look(notifier.Clock{Time: 1, Told: now, Behind: behind}, 1, now, most)
	}
	if now = now.Add(time.Second); !p.look(notifier.Clock{Told: now.Add(-time.Hour)}, 1, now, most) {
		t.Error("not held, though nobody has told since this node owns the partition")
	}
	for behind := 3 * 24 * time.Hour; behind > tolerated; behind -= 10 * time.Minute {
		if !look(behind, time.Second) {
			t.Fatalf("not held %s behind the chain", behind)
		}
	}
	if look(tolerated, time.Second) {
		t.Error("held, though the clock has caught up")
	}
	for waited := time.Duration(0); waited < catchUps*most; waited += time.Minute {
		if !look(time.Hour, time.Minute) {
			t.Fatalf("not held after %s an hour behind", waited)
		}
	}
	if look(time.Hour, time.Minute) {
		t.Error("held for ever")
	}
}
