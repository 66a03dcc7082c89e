package state

import "github.com/cespare/xxhash/v2"

// keySet is a Bloom filter that grows with its keys. Most keys that Apply looks for in a backfill are new, and to find out
// that Pebble has none costs a look into each of its tables.
type keySet struct {
	parts []keySetPart // each of twice the size of the one before; keys are added to the last one
}

type keySetPart struct {
	words []uint64 // a key sets keyBits bits of one word
	keys  int
}

const (
	keySetShare  = 8   // of the memory of a store's rows, as a divisor
	leastKeySet  = 256 // words of the first part
	keysPerWord  = 4   // with four bits each, one in a hundred keys that are not there is taken for one that is
	keyBits      = 4
	wordBits     = 64
	wordBitsLog2 = 6
)

func keyHash(table byte, key string) uint64 {
	return xxhash.Sum64String(key) + uint64(table)*0x9e3779b97f4a7c15
}

// at is the word and the bits of a key.
func (p *keySetPart) at(hash uint64) (word *uint64, bits uint64) {
	for i := range keyBits {
		bits |= 1 << (hash >> (i * wordBitsLog2) % wordBits)
	}
	return &p.words[hash>>(keyBits*wordBitsLog2)&uint64(len(p.words)-1)], bits
}

func (s *keySet) has(hash uint64) bool {
	for i := range s.parts {
		if word, bits := s.parts[i].at(hash); *word&bits == bits {
			return true
		}
	}
	return false
}

func (s *keySet) add(hash uint64) {
	if s.has(hash) {
		return
	}
	n := len(s.parts)
	if n == 0 || s.parts[n-1].keys == keysPerWord*len(s.parts[n-1].words) {
		s.parts = append(s.parts, keySetPart{words: make([]uint64, leastKeySet<<n)})
		n++
	}
	last := &s.parts[n-1]
	word, bits := last.at(hash)
	*word |= bits
	last.keys++
}

func (s *keySet) bytes() (n int) {
	for i := range s.parts {
		n += len(s.parts[i].words) * wordBits / 8
	}
	return n
}
