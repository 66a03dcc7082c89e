package topics

// Slab is memory for many small pieces that live about as long as each other: they are cut from large ones,
// each of which lives as long as the last piece of it. The zero value is ready.
type Slab struct{ free []byte }

const (
	slabBytes = 32 << 10 // the largest that the runtime keeps at hand
	slabRest  = 1 << 10  // less is left over
)

// Next is where the next piece is to be appended to, and then handed to Keep.
func (s *Slab) Next() []byte {
	if cap(s.free) < slabRest {
		s.free = make([]byte, 0, slabBytes)
	}
	return s.free
}

// Keep takes what was appended to Next: nothing else is written there any more. A piece that has grown out
// of the slab has memory of its own.
func (s *Slab) Keep(piece []byte) []byte {
	n := len(piece)
	if n > 0 && n <= cap(s.free) && &piece[0] == &s.free[:1][0] {
		s.free = s.free[n:n]
	}
	return piece[:n:n]
}

// Copy keeps a copy of b.
func (s *Slab) Copy(b []byte) []byte { return s.Keep(append(s.Next(), b...)) }
