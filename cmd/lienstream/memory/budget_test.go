package memory

import (
	"errors"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestBudget(t *testing.T) {
	for text, want := range map[string]struct {
		bytes Budget
		again string
	}{
		"512MiB": {512 << 20, "512MiB"}, "1GiB": {1 << 30, "1024MiB"}, "300 MB": {300_000_000, "300000000B"},
		"0": {}, "": {}, "much": {}, "-1GiB": {},
	} {
		var b Budget
		if err := b.Set(text); (err == nil) != (want.bytes > 0) || b != want.bytes || b.String() != want.again {
			t.Errorf("%q is %d bytes, %q: %v", text, b, b.String(), err)
		}
		var again Budget
		if err := again.Set(b.String()); b > 0 && (err != nil || again != b) {
			t.Errorf("%q read again is %d: %v", b.String(), again, err)
		}
	}
}

// A process leaves a part of its container alone, and a large one altogether.
func TestShareOfContainer(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		limit memlimit.Provider
		want  Budget
		err   error
	}{
		"a limit":        {memlimit.Limit(1000), 600, nil},
		"a large limit":  {memlimit.Limit(64 << 30), mostByDefault, nil},
		"no limit":       {func() (uint64, error) { return 0, memlimit.ErrNoLimit }, 0, nil},
		"no container":   {func() (uint64, error) { return 0, memlimit.ErrNoCgroup }, 0, nil},
		"another system": {func() (uint64, error) { return 0, memlimit.ErrCgroupsNotSupported }, 0, nil},
		"unreadable":     {func() (uint64, error) { return 0, broken }, 0, broken},
	} {
		if got, err := share(tc.limit); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}

func TestBeyond(t *testing.T) {
	for _, tc := range []struct{ budget, beside, want Budget }{{0, 5, 0}, {4, 5, 0}, {5, 5, 0}, {9, 5, 4}} {
		if got := tc.budget.Beyond(tc.beside); Budget(got) != tc.want {
			t.Errorf("%d beyond %d: %d", tc.budget, tc.beside, got)
		}
	}
}
