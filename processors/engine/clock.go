package engine

import (
	"sync"
	"time"
)

// clockWindow is how long a difference of clocks is believed that nothing confirms.
const clockWindow = 10 * time.Second

// clock says how old records are, though whoever wrote them has another clock. The least difference between the
// time of a record and ours, of those that came as they were written, is how far the clocks are apart: what is
// more is age.
type clock struct {
	mu        sync.Mutex
	apart     time.Duration // the least since began, or in the window before
	least     time.Duration // since began
	began     time.Time     // of the window
	confirmed bool          // there was a record that came as it was written
}

// age is how old a record is. Live says that it was written since its reader began: without one, clocks count as
// one.
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

// since is the age of a record as of the last ones.
func (c *clock) since(written time.Time) time.Duration { return c.age(written, false) }
