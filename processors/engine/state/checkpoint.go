package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkpointsKept is how many checkpoints stay: the last, and one more in case it is bad.
const checkpointsKept = 2

// Checkpoint writes a copy of the store to a directory of dir that is named by position, which must
// grow: the caller's place in the changelog. Files are linked where the file system can. Older ones go.
func (s *Store) Checkpoint(fs vfs.FS, dir string, position int64) error {
	if err := s.flush(); err != nil { // what is in memory has no log of its own
		return wrap("checkpoint", err)
	}
	final := fs.PathJoin(dir, checkpointName(position))
	if _, err := fs.Stat(final); err == nil {
		return nil
	}
	part := final + partial
	if err := errors.Join(fs.RemoveAll(part), fs.MkdirAll(dir, 0o750)); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := s.db.Checkpoint(part); err != nil {
		return wrap("checkpoint", err)
	}
	if err := fs.Rename(part, final); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	have, err := Checkpoints(fs, dir)
	if err != nil {
		return err
	}
	for _, old := range have[min(len(have), checkpointsKept):] {
		if err := fs.RemoveAll(old); err != nil {
			return fmt.Errorf("drop old checkpoint: %w", err)
		}
	}
	return nil
}

const partial = ".partial"

func checkpointName(position int64) string { return fmt.Sprintf("%020d", position) }

// Checkpoints lists the complete checkpoints in a directory, newest first.
func Checkpoints(fs vfs.FS, dir string) ([]string, error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var found []string
	for _, n := range names {
		if _, err := strconv.ParseInt(n, 10, 64); err == nil && !strings.HasSuffix(n, partial) {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	slices.Reverse(found)
	for i, n := range found {
		found[i] = fs.PathJoin(dir, n)
	}
	return found, nil
}

// Adopt copies a checkpoint to where a store will be opened. Whatever is there goes first.
func Adopt(fs vfs.FS, checkpoint, dir string) error {
	part := dir + partial
	if err := errors.Join(fs.RemoveAll(part), fs.RemoveAll(dir), fs.MkdirAll(filepath.Dir(dir), 0o750)); err != nil {
		return fmt.Errorf("adopt checkpoint: %w", err)
	}
	ok, err := vfs.Clone(fs, fs, checkpoint, part, vfs.CloneSync)
	if err != nil {
		return fmt.Errorf("adopt checkpoint %s: %w", checkpoint, err)
	}
	if !ok {
		return fmt.Errorf("adopt checkpoint %s: %w", checkpoint, os.ErrNotExist)
	}
	if err := fs.Rename(part, dir); err != nil {
		return fmt.Errorf("adopt checkpoint: %w", err)
	}
	return nil
}
