package memory

import (
	"errors"
	"fmt"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/dustin/go-humanize"
)

// What a process takes of its container by default: the rest is for what a budget cannot know in advance.
const (
	containerShare = 0.6
	mostByDefault  = 2 << 30 // more makes nothing faster
)

// Budget is a target for the memory of a process, in bytes; 0: not set. It is the value of a flag.
type Budget uint64

// Set parses a size such as 512MiB or 1GB.
func (b *Budget) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is no size such as 512MiB or 1GB", text)
	}
	*b = Budget(n)
	return nil
}

func (b *Budget) String() string {
	switch {
	case *b == 0:
		return ""
	case *b%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", *b>>20)
	}
	return fmt.Sprintf("%dB", uint64(*b))
}

// OfContainer is the budget of a process in its container; 0: the container has no limit, or there is none.
func OfContainer() (Budget, error) { return share(memlimit.FromCgroup) }

func share(limit memlimit.Provider) (Budget, error) {
	n, err := limit()
	switch {
	case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrNoCgroup),
		errors.Is(err, memlimit.ErrCgroupsNotSupported), errors.Is(err, os.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("memory limit of the container: %w", err)
	}
	return min(Budget(float64(n)*containerShare), mostByDefault), nil
}

// Beyond is what the budget leaves after the given bytes; 0: nothing.
func (b Budget) Beyond(bytes Budget) uint64 { return uint64(max(b, bytes) - bytes) }
