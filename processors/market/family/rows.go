package family

import (
	"fmt"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Row is a row's type.
type Row interface {
	AppendBinary(b []byte) ([]byte, error)
	UnmarshalBinary(data []byte) error
}

// rowBytes is the capacity for most rows.
const rowBytes = 240

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
	data, err := r.AppendBinary(make([]byte, 0, rowBytes))
	if err != nil {
		return err
	}
	w.Put(t, key, data)
	return nil
}
