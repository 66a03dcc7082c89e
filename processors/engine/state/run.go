package state

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// run reads a sorted list of entries. At its end the key is nil.
type run struct {
	age        int
	key, value []byte

	memory *sorter // and what is left of it
	left   []sorted

	file vfs.File // or
	in   *bufio.Reader
	sum  uint32
	buf  []byte
}

func (r *run) next() error {
	if r.memory != nil {
		if r.key, r.value = nil, nil; len(r.left) > 0 {
			r.key, r.value = r.memory.key(r.left[0]), r.memory.value(r.left[0])
			r.left = r.left[1:]
		}
		return nil
	}
	if err := r.read(); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("sorted run: %w", err)
	}
	return nil
}

func (r *run) read() error {
	n, err := binary.ReadUvarint(r.in)
	if err != nil {
		return err
	}
	if n == 0 {
		r.key, r.value = nil, nil
		var sum [4]byte
		if _, err := io.ReadFull(r.in, sum[:]); err != nil {
			return err
		}
		if binary.BigEndian.Uint32(sum[:]) != r.sum {
			return fmt.Errorf("%w: checksum", ErrCorrupt)
		}
		return nil
	}
	r.buf = binary.AppendUvarint(r.buf[:0], n)
	from := len(r.buf)
	if err := r.take(n); err != nil {
		return err
	}
	to := len(r.buf)
	if n, err = binary.ReadUvarint(r.in); err != nil {
		return err
	}
	r.buf = binary.AppendUvarint(r.buf, n)
	at := len(r.buf)
	if n > 0 {
		if err := r.take(n - 1); err != nil {
			return err
		}
	}
	r.sum = crc32.Update(r.sum, castagnoli, r.buf)
	if r.key, r.value = r.buf[from:to], nil; n > 0 {
		r.value = r.buf[at:]
	}
	return nil
}

// maxSortedBytes is more than the length of any key or value: a greater one is corrupt.
const maxSortedBytes = 1 << 30

func (r *run) take(n uint64) error {
	if n > maxSortedBytes {
		return fmt.Errorf("%w: %d bytes", ErrCorrupt, n)
	}
	at := len(r.buf)
	r.buf = slices.Grow(r.buf, int(n))[:at+int(n)]
	_, err := io.ReadFull(r.in, r.buf[at:])
	return err
}

func (r *run) close() error {
	if r.file == nil {
		return nil
	}
	return wrap("sorted run", r.file.Close())
}

// runHeap has the least key first, among equal keys the newest, and finished runs last.
type runHeap []*run

func (h runHeap) Len() int      { return len(h) }
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h runHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.key == nil || b.key == nil {
		return a.key != nil
	}
	if c := bytes.Compare(a.key, b.key); c != 0 {
		return c < 0
	}
	return a.age > b.age
}
func (h *runHeap) Push(any) {} // all are there from the beginning
func (h *runHeap) Pop() any { return nil }
