package simulation

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// ailment is what fails on a disk.
type ailment func(errorfs.OpKind) error

// full is a disk without space.
func full(k errorfs.OpKind) error {
	switch k {
	case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFilePreallocate:
		return syscall.ENOSPC
	default:
		return nil
	}
}

// unsynced is a disk that takes what is written, and fails to keep it.
func unsynced(k errorfs.OpKind) error {
	switch k {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return syscall.EIO
	default:
		return nil
	}
}

// ailing is the disk of a host as its processes see it: it fails where the host has an ailment. Only tables do, which
// hold all that is stored: where its manifest fails, Pebble ends the process, which here is everybody's.
func (s *system) ailing(host string, disk vfs.FS) vfs.FS {
	return errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		s.mu.Lock()
		fails := s.ailments[host]
		s.mu.Unlock()
		if fails == nil || !strings.HasSuffix(op.Path, ".sst") {
			return nil
		}
		return fails(op.Kind)
	}))
}

// ail gives a host an ailment for a while. What is stored is written when a process ends and when it restores: so one
// host in three is killed meanwhile, and one is told to end.
func (r *run) ail(ctx context.Context, f fault, fails ailment) error {
	set := func(a ailment) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ailments[f.host] = a
	}
	set(fails)
	defer set(nil)
	var err error
	switch f.seed % 3 {
	case 0:
		err = r.kill(f.host)
	case 1:
		_, err = r.end(f.host) // it says that it could not write
	}
	if f.seed%3 < 2 {
		time.Sleep(restart)
		err = errors.Join(err, r.start(ctx, f.host))
	}
	time.Sleep(f.lasts)
	return err
}
