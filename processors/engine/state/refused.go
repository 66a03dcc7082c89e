package state

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// refusedPause is how long a store waits before it writes again to a disk that has refused a write.
const refusedPause = 250 * time.Millisecond

// refusedQuiet is how long a store says no more of a disk that refuses.
const refusedQuiet = time.Second

// patientFS lets no file begin until refusedPause after the last failure. Pebble repeats a failed flush or compaction
// at once: on a full disk it would keep a core busy, and the log.
type patientFS struct {
	vfs.FS

	mu     sync.Mutex
	failed time.Time // when a flush or a compaction last failed
	told   time.Time // when that was last to be said
}

// refused records a failure, and reports whether it is to be said.
func (p *patientFS) refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = time.Now()
	if p.failed.Sub(p.told) < refusedQuiet {
		return false
	}
	p.told = p.failed
	return true
}

// Create implements vfs.FS: every flush and compaction begins with it.
func (p *patientFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	p.mu.Lock()
	pause := time.Until(p.failed.Add(refusedPause))
	p.mu.Unlock()
	if pause > 0 {
		<-time.After(pause)
	}
	return p.FS.Create(name, category)
}

// Unwrap implements vfs.FS.
func (p *patientFS) Unwrap() vfs.FS { return p.FS }
