package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fetchedMemory has the memory of records that were given back, for the next ones that a Consumer fetches. Near the head
// fetches are small, and it keeps out of them: whatever comes back is zeroed as a whole.
type fetchedMemory struct{ values, records sync.Pool }

const (
	// leastCompressed is the smallest batch, as it was sent, whose values are decompressed into memory that is used again.
	leastCompressed = 4 << 10
	// mostValues is the largest memory of values that is kept.
	mostValues = 4 << 20
	// leastRecords and mostRecords bound the batches whose records are kept.
	leastRecords = 64
	mostRecords  = 32 << 10
)

// GetDecompressBytes implements kgo.PoolDecompressBytes.
func (m *fetchedMemory) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	if len(compressed) < leastCompressed {
		return nil
	}
	if b, ok := m.values.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (m *fetchedMemory) PutDecompressBytes(b []byte) {
	if cap(b) >= leastCompressed && cap(b) <= mostValues {
		m.values.Put(&b)
	}
}

// GetRecords implements kgo.PoolRecords.
func (m *fetchedMemory) GetRecords(n int) []kgo.Record {
	if n < leastRecords {
		return nil
	}
	if r, ok := m.records.Get().(*[]kgo.Record); ok && cap(*r) >= n {
		return *r
	}
	return nil
}

// PutRecords implements kgo.PoolRecords.
func (m *fetchedMemory) PutRecords(r []kgo.Record) {
	if cap(r) >= leastRecords && cap(r) <= mostRecords {
		m.records.Put(&r)
	}
}

// Release gives the memory of records back, which Poll has returned. Neither they nor their bytes may be used any more. Who
// keeps any of them need not call it.
func Release(records []*Record) {
	for i, r := range records {
		r.Recycle()
		records[i] = nil
	}
}
