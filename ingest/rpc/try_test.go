package rpc

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/topics/pause"
)

// TestStalledIsCounted: an endpoint that never answers does not fail a request if another one answers before the
// timeout. Each time counts as an error of the silent one, and not of the other.
func TestStalledIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := callers(t, &caller{name: "stalled"}, &caller{name: "fast"})
		stalled, asked := c.endpoints[0], 0
		for range 30 {
			said, by, err := hedged(t.Context(), c, choice{}, func(ctx context.Context, e *endpoint) (string, error) {
				if e != stalled {
					return e.name, nil
				}
				asked++
				<-ctx.Done()
				return "", ctx.Err()
			})
			if err != nil || said != "fast" || by == stalled {
				t.Fatalf("%q of %s, %v", said, by.name, err)
			}
			if err := pause.For(t.Context(), slowFor/10); err != nil {
				t.Fatal(err)
			}
		}
		if asked != 3 { // others are preferred in between
			t.Errorf("the stalled endpoint was asked %d times", asked)
		}
		for name, want := range map[string]float64{"stalled": float64(asked), "fast": 0} {
			if n := testutil.ToFloat64(c.metrics.errors.WithLabelValues(name, "slow")); n != want {
				t.Errorf("%s was counted %v times, not %v", name, n, want)
			}
		}
	})
}
