package system

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lienstream/lienstream/topics/polltest"
)

// aDay is how many blocks the embedded chain makes in a day.
const aDay = 2 * 24 * 60 * 60

// TestDays runs what `make run` runs, at speed, for as many blocks as LIENSTREAM_BLOCKS says, and holds what it takes of
// memory and disk against what it had at half of them: a day of it fits into 1 GB.
func TestDays(t *testing.T) {
	blocks, err := strconv.Atoi(os.Getenv("LIENSTREAM_BLOCKS"))
	if err != nil {
		t.Skip("takes minutes: set LIENSTREAM_BLOCKS, or `make days`")
	}
	dir, ops := t.TempDir(), address(t)
	p := start(t, "up", "up", "--data-dir="+dir, "--indexer-addr="+address(t), "--agent-addr="+address(t), "--valuation-addr="+address(t),
		"--support-addr="+address(t), "--notify-addr="+address(t), "--payment-chain-addr=127.0.0.1:0", "--query-addr="+address(t),
		"--ops-addr="+ops, "--chain-addr="+address(t), "--block-time=2ms")
	up := &member{process: p, ops: ops}
	var half, end taken
	for at := blocks / 8; at <= blocks; at += blocks / 8 {
		polltest.Within(t, time.Hour, func() error {
			if p.ended() {
				t.Fatalf("it ended before block %d: %v", at, p.err)
			}
			n, err := up.metric(t.Context(), "lienstream_devchain_blocks_total")
			if err == nil && n < float64(at) {
				err = fmt.Errorf("%v blocks", n)
			}
			return err
		})
		end = take(t, p.cmd.Process.Pid, dir)
		t.Logf("after %d blocks: %v", at, end)
		if at <= blocks/2 {
			half = end
		}
	}
	t.Logf("stopped within %v", p.interrupt(t))
	perBlock := float64(end.disk()-half.disk()) / float64(blocks-blocks/2)
	day := float64(end.disk()) + perBlock*float64(aDay-blocks)
	t.Logf("%.1f KB a block, %.0f MB after a day", perBlock/1e3, day/1e6)
	if blocks < aDay && day > 1e9 {
		t.Errorf("a day takes %.0f MB", day/1e6)
	}
	if end.memory > half.memory*5/4+(64<<20) {
		t.Errorf("memory grew from %d to %d MB", half.memory>>20, end.memory>>20)
	}
}

// taken is what a run takes, in bytes.
type taken struct {
	memory int64
	dirs   map[string]int64
}

func (t taken) disk() (sum int64) {
	for _, n := range t.dirs {
		sum += n
	}
	return sum
}

func (t taken) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d MB of memory, %d MB on disk", t.memory>>20, t.disk()>>20)
	for name, n := range t.dirs {
		fmt.Fprintf(&b, ", %s %d MB", name, n>>20)
	}
	return b.String()
}

func take(t *testing.T, pid int, dir string) taken {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(status))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	all := taken{memory: pages * int64(os.Getpagesize()), dirs: map[string]int64{}}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // files go while they are counted
		}
		if info, err := d.Info(); err == nil {
			name, _, _ := strings.Cut(strings.TrimPrefix(path, dir+"/"), "/")
			all.dirs[strings.TrimRight(name, "0123456789")] += info.Size()
		}
		return nil
	})
	return all
}
