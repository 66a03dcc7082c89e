package engine

import (
	"time"

	"github.com/lienstream/lienstream/topics"
)

// failedAt records an error that ended a task at an offset.
func (r *replica) failedAt(err error, next int64) {
	if reason(err) == reasonDisk {
		r.failed = next + 1
	}
	if (unfitness{err: err}).ofBuild() {
		r.unread = next + 1
	}
}

// passed records that a task has come to an offset, and neither disk nor build has failed it there.
func (r *replica) passed(next int64) {
	if next >= r.unread {
		r.unread = 0
		r.fits()
	}
	if r.failed > 0 && next >= r.failed {
		r.failed = 0
		r.refused(false)
	}
}

// refused records whether a task failed on the disk.
func (r *replica) refused(disk bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !disk:
		r.refuses = time.Time{}
	case r.refuses.IsZero():
		r.refuses = time.Now()
	}
}

// refusing is since when every task failed on the disk before it got on; zero: the last did not.
func (r *replica) refusing() time.Time {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.refuses
}

// write calls f, which writes to the store. The store blocks while its disk is full.
func (r *replica) write(f func() error) error {
	note := func(since time.Time) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.writing = since
	}
	note(time.Now())
	defer note(time.Time{})
	return f()
}

// waiting is since when a write of the owner has been blocked by the disk; zero: none is.
func (r *replica) waiting() time.Time {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch {
	case r.role != topics.RoleOwner:
		return time.Time{}
	case !r.writing.IsZero():
		return r.writing
	}
	return r.refuses
}

// written records how the store's last write ended.
func (r *replica) written(err error) {
	if err == nil {
		r.unwritten.Store(nil)
		return
	}
	r.unwritten.Store(&err)
}
