package system

import (
	"os"
	"strconv"
	"testing"
)

// kills is how many processes TestCrashAnywhere kills: 12, or LIENSTREAM_KILLS.
func kills(t *testing.T) int {
	t.Helper()
	s := os.Getenv("LIENSTREAM_KILLS")
	if s == "" {
		return 12
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 10_000 {
		t.Fatalf("LIENSTREAM_KILLS: %q is not between 1 and 10000", s)
	}
	t.Logf("%d kills", n)
	return n
}
