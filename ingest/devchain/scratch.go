package devchain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// scratchReserve is what must be free where the chain's data is: go-ethereum's database panics where a write fails, in a
// goroutine of its own, so the chain ends before that. It is more than all that the database holds in memory.
const scratchReserve = 128 << 20

// ErrDiskFull: less than scratchReserve is free.
var ErrDiskFull = errors.New("disk full")

// room returns an error if there is no room for another block where the chain's data is.
func room(dir string, free func(dir string) (uint64, error)) error {
	if dir == "" {
		return nil
	}
	left, err := free(dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if left < scratchReserve {
		return fmt.Errorf("%w: %d MiB are free in %s, the embedded chain needs %d", ErrDiskFull, left>>20, dir, scratchReserve>>20)
	}
	return nil
}

// free is how many bytes are free on the disk of a folder.
func free(dir string) (uint64, error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return usage.AvailBytes, err
}

// scratchPrefix begins the names of chains' folders.
const scratchPrefix = "lienstream-devchain-"

// sweep removes the folders of chains that were killed: go-ethereum locks a file in its own while it lives.
func sweep(scratch string) error {
	left, err := filepath.Glob(filepath.Join(scratch, scratchPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		lock, openErr := os.Open(filepath.Join(dir, nodeName, "LOCK"))
		if openErr != nil {
			continue // it is being made, or closed
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		err = errors.Join(err, lock.Close())
	}
	return err
}
