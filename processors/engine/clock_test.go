package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// Whoever writes may have another clock, by a minute and more: what comes as it is written is new, what comes
// later is as old as it is.
func TestClock(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Minute, -time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var c clock
			write := func() time.Time { return time.Now().Add(-apart) }
			c.age(write(), true)
			for range 100 {
				written := write()
				<-time.After(3 * time.Millisecond)
				if age := c.age(written, true); age > 10*time.Millisecond {
					t.Fatalf("apart %s: a record that just came is %s old", apart, age)
				}
			}
			old := write()
			<-time.After(5 * time.Second)
			if age := c.since(old); age < 4*time.Second || age > 6*time.Second {
				t.Fatalf("apart %s: a record of 5 s ago is %s old", apart, age)
			}
		})
	}
}

// Another writer has another clock: after a while it is the one that counts.
func TestClockOfAnotherWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		for i := range 60 {
			<-time.After(time.Second)
			apart := time.Duration(0)
			if i >= 20 {
				apart = time.Minute
			}
			age := c.age(time.Now().Add(-apart), true)
			if i > 45 && age > time.Second || i < 20 && age > time.Second {
				t.Fatalf("at %d s: %s old", i, age)
			}
		}
	})
}
