package family

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Row is a row's type.
type Row interface {
	AppendBinary(b []byte) ([]byte, error)
	UnmarshalBinary(data []byte) error
}

// buffers hold rows while they are encoded: what is kept of one has just its size.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Get reads a row into r. Where there is none, r keeps its value.
func Get(w state.Writer, t *state.Table, key []byte, r Row) (found bool, err error) {
	data, err := w.Get(t, key)
	if err != nil || data == nil {
		return false, err
	}
	if err := r.UnmarshalBinary(data); err != nil {
		return false, fmt.Errorf("%s %x: %w", t.Name, key, err)
	}
	return true, nil
}

// Put writes a row.
func Put(w state.Writer, t *state.Table, key []byte, r Row) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	var err error
	if *buf, err = r.AppendBinary((*buf)[:0]); err != nil {
		return err
	}
	w.Put(t, key, bytes.Clone(*buf))
	return nil
}
