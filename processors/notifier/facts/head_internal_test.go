package facts

import (
	"testing"

	"github.com/lienstream/lienstream/processors/notifier"
)

// TestBelieved: a chain that becomes slower is no less far than its head says, and one whose head is made up is not in the future.
func TestBelieved(t *testing.T) {
	for name, test := range map[string]struct {
		head, written, paced, want uint64
	}{
		"an even pace":             {head: 5000, written: 5001, paced: 5000, want: 5000},
		"half the pace":            {head: 5000, written: 5001, paced: 4400, want: 5000},
		"made up":                  {head: 9000, written: 5001, paced: 4990, want: 5001},
		"made up, a clock ahead":   {head: 9000, written: 20, paced: 4990, want: 4990},
		"made up, and old records": {head: 9000, written: 0, paced: 4990, want: 4990},
	} {
		tick := notifier.Tick{Head: test.head, Written: int64(test.written) * 1000}
		if got := believed(&tick, test.paced); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
