package prices

import (
	"bytes"
	"testing"
)

// FuzzRows: a row is refused, or written again it is the same.
func FuzzRows(f *testing.F) {
	f.Add(make([]byte, spanBytes))
	f.Add(make([]byte, CloseBytes))
	f.Fuzz(func(t *testing.T, row []byte) {
		var s span
		if s.UnmarshalBinary(row) == nil {
			if again, err := s.AppendBinary(nil); err != nil || !bytes.Equal(again, row) {
				t.Fatalf("%x is read as %x, %v", row, again, err)
			}
		}
		if p, err := DecodeClose(row); err == nil {
			if again := AppendClose(nil, &p); !bytes.Equal(again, row) {
				t.Fatalf("%x is read as %x", row, again)
			}
		}
	})
}
