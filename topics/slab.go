package topics

// Slab allocates many small byte slices of similar lifetime from large blocks; a block lives as long as its
// last slice. The zero value is ready for use.
type Slab struct{ free []byte }

const (
	slabBytes = 32 << 10 // the largest size that the runtime caches per thread
	slabRest  = 1 << 10  // minimum free space of a block in use
)

// Next returns a slice to append to and then pass to Keep.
func (s *Slab) Next() []byte {
	if cap(s.free) < slabRest {
		s.free = make([]byte, 0, slabBytes)
	}
	return s.free
}

// Keep takes what was appended to Next. A slice that has outgrown the block has its own memory.
func (s *Slab) Keep(piece []byte) []byte {
	n := len(piece)
	if n > 0 && n <= cap(s.free) && &piece[0] == &s.free[:1][0] {
		s.free = s.free[n:n]
	}
	return piece[:n:n]
}

// Copy keeps a copy of b.
func (s *Slab) Copy(b []byte) []byte { return s.Keep(append(s.Next(), b...)) }

// Scratch is a Slab whose blocks are used again. The zero value is ready for use.
type Scratch struct {
	slab   Slab
	blocks [][]byte // at most scratchBytes
	used   int
}

const scratchBytes = 4 << 20

// Next is Slab.Next.
func (s *Scratch) Next() []byte {
	if cap(s.slab.free) >= slabRest {
		return s.slab.free
	}
	if s.used < len(s.blocks) {
		s.slab.free = s.blocks[s.used]
		s.used++
		return s.slab.free
	}
	b := s.slab.Next()
	if len(s.blocks) < scratchBytes/slabBytes {
		s.blocks = append(s.blocks, b)
		s.used++
	}
	return b
}

// Keep is Slab.Keep.
func (s *Scratch) Keep(piece []byte) []byte { return s.slab.Keep(piece) }

// Copy is Slab.Copy.
func (s *Scratch) Copy(b []byte) []byte { return s.Keep(append(s.Next(), b...)) }

// Reset makes all memory free again. What it has given out must not be used any more.
func (s *Scratch) Reset() { s.slab.free, s.used = nil, 0 }
