package sender

import (
	"testing"
	"time"

	"github.com/lienstream/lienstream/processors/notifier"
)

// Alerts are held while the clock is behind the chain, for as long as it catches up, and not once it has; nor for
// longer than that is worth where it does not.
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
	for _, each := range []time.Duration{time.Second, 4 * time.Minute} { // so that it takes minutes, and more than a day
		for behind := 3 * 24 * time.Hour; behind > tolerated; behind -= 10 * time.Minute {
			if !look(behind, each) {
				t.Fatalf("not held %s behind the chain", behind)
			}
		}
		if look(tolerated, time.Second) {
			t.Error("held, though the clock has caught up")
		}
	}
	for waited := time.Duration(0); waited < catchUps*most; waited += time.Minute {
		if behind := time.Hour - waited/2; !look(behind, time.Minute) { // too slowly
			t.Fatalf("not held %s behind the chain", behind)
		}
	}
	if look(time.Hour-catchUps*most/2, time.Minute) {
		t.Error("held, though it hardly catches up")
	}
	look(0, time.Minute)
	for waited := time.Duration(0); waited < catchUps*most; waited += time.Minute {
		if !look(time.Hour, time.Minute) {
			t.Fatalf("not held after %s an hour behind", waited)
		}
	}
	if look(time.Hour, time.Minute) {
		t.Error("held for ever")
	}
}

// How far the clock is behind grows with each second without a tick, and not twice if only one partition of it
// stands.
func TestLag(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	for name, c := range map[string]struct {
		clock notifier.Clock
		want  time.Duration
	}{
		"nothing is known":       {notifier.Clock{}, 0},
		"of a former build":      {notifier.Clock{Time: 1000, Head: 1600}, 10 * time.Minute},
		"just told":              {notifier.Clock{Time: 1000, Head: 1600, Told: now, Heard: now}, 10 * time.Minute},
		"nobody tells":           {notifier.Clock{Time: 1000, Head: 1600, Told: now.Add(-time.Hour), Heard: now.Add(-time.Hour)}, 70 * time.Minute},
		"one partition stands":   {notifier.Clock{Time: 1000, Head: 4600, Told: now.Add(-time.Hour), Heard: now}, time.Hour},
		"the broker's is ahead":  {notifier.Clock{Time: 1000, Head: 1600, Heard: now.Add(time.Minute)}, 10 * time.Minute},
		"the time was confirmed": {notifier.Clock{Time: 1600, Head: 1500, Heard: now}, 0},
	} {
		if got := lag(c.clock, now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
