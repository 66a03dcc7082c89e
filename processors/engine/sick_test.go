package engine

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// sectors is a disk whose sectors go bad where tables are long: what is read there fails, or is not what was written.
type sectors struct {
	vfs.FS
	rot bool
	bad atomic.Bool
}

// Open implements vfs.FS.
func (s *sectors) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return f, err
	}
	return sectorFile{f, s}, nil
}

type sectorFile struct {
	vfs.File
	of *sectors
}

// ReadAt implements vfs.File.
func (f sectorFile) ReadAt(b []byte, off int64) (int, error) {
	bad := f.of.bad.Load() && off >= 4096
	if bad && !f.of.rot {
		return 0, syscall.EIO
	}
	n, err := f.File.ReadAt(b, off)
	if bad && n > 0 {
		b[n/2] ^= 1
	}
	return n, err
}

// A disk with bad sectors loses its partition to a healthy standby, also where all else of it can be read and written. It does so
// within seconds: the time is virtual.
func TestBadSectorsAreLeft(t *testing.T) { sickDiskIsLeft(t, false) }

// A disk that corrupts what it stores does so again after a restore.
func TestRottenDiskIsLeft(t *testing.T) { sickDiskIsLeft(t, true) }

func sickDiskIsLeft(t *testing.T, rot bool) {
	if testing.Short() {
		t.Skip("takes a broker")
	}
	emptyPools()
	defer emptyPools()
	synctest.Test(t, func(t *testing.T) { ownerOnBadDisk(t, &sectors{FS: vfs.NewMem(), rot: rot}) })
}

// ownerOnBadDisk has a node own a partition on a disk that goes bad.
func ownerOnBadDisk(t *testing.T, disk *sectors) {
	const within = 20 * time.Second
	e := newPipedEnv(t, 1, 1)
	c := newChain(t, e.kafka, e.cat, 8)
	c.keys, c.logs = 20_000, 400
	acfg, bcfg := e.config("a", disk), e.config("b", vfs.NewMem())
	acfg.Standbys, bcfg.Standbys = 1, 1
	acfg.Memory.MemTable, acfg.Memory.Blocks, acfg.Memory.Rows = 64<<10, 1, 1 // it reads from disk
	a := e.start(acfg)
	for range 60 {
		c.add(1)
	}
	e.caughtUp(c, a)
	b := e.start(bcfg)
	polltest.Until(t, "a standby at the head", e.at(c, b, topics.RoleStandby))
	disk.bad.Store(true)
	since := time.Now()
	for range 20 {
		c.add(1)
	}
	polltest.Until(t, "the standby owns", e.at(c, b, topics.RoleOwner))
	if took := time.Since(since); took > within {
		t.Errorf("the standby owns %v after the disk went bad", took)
	}
	e.caughtUp(c, b)
	e.invariantState(c, b)
	e.invariantTopics(c)
}
