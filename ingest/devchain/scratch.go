package devchain

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

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
