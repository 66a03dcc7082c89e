package polltest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that is told to fail.
type failing struct {
	testing.TB
	told bool
}

func (f *failing) Helper()               {}
func (f *failing) Fatalf(string, ...any) { f.told = true }

func TestWithin(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begin, limit := time.Now(), time.Second
			at := begin.Add(limit / 2)
			if late {
				at = begin.Add(2 * limit)
			}
			f := &failing{TB: t}
			Within(f, limit, func() error {
				if time.Now().Before(at) {
					return errors.New("not yet")
				}
				return nil
			})
			if f.told != late {
				t.Errorf("what comes after %s fails: %v", at.Sub(begin), f.told)
			}
			if took := time.Since(begin); took > limit {
				t.Errorf("it took %s", took)
			}
		})
	}
}
