package engine

import (
	"sync"
	"time"
)

// clockWindow is how long an estimated clock difference is used without being confirmed.
const clockWindow = 10 * time.Second

// clock computes the age of records although their writer's clock differs from ours. The smallest difference
// between our time and the time of a record that has just been written is taken as the difference of the
// clocks; anything more is age.
type clock struct {
	mu        sync.Mutex
	apart     time.Duration // smallest difference since began, or in the previous window
	least     time.Duration // smallest difference since began
	began     time.Time     // start of the window
	confirmed bool          // a live record was seen in the window
}

// age is the age of a record. live means that it was written after its reader started. Until there is a live
// record, the clocks count as equal.
func (c *clock) age(written time.Time, live bool) time.Duration {
	now := time.Now()
	d := now.Sub(written)
	c.mu.Lock()
	defer c.mu.Unlock()
	if live {
		switch {
		case !c.confirmed:
			c.apart, c.least, c.began, c.confirmed = d, d, now, true
		case now.Sub(c.began) > clockWindow:
			c.apart, c.least, c.began = min(c.least, d), d, now
		default:
			c.least, c.apart = min(c.least, d), min(c.apart, d)
		}
	}
	if !c.confirmed {
		return d
	}
	return max(d-c.apart, 0)
}

// since is the age of an earlier record, now.
func (c *clock) since(written time.Time) time.Duration { return c.age(written, false) }
