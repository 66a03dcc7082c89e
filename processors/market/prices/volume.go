package prices

import (
	"errors"
	"fmt"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
)

// Volume is how much of each currency was traded, in raw units: what was paid or received, with fees.
type Volume [2]uint256.Int

const amountBytes = 32

var errVolume = errors.New("volume: wrong row length")

// AppendBinary appends the row. The error is always nil.
func (v *Volume) AppendBinary(b []byte) ([]byte, error) {
	for i := range v {
		raw := v[i].Bytes32()
		b = append(b, raw[:]...)
	}
	return b, nil
}

// UnmarshalBinary reads a row.
func (v *Volume) UnmarshalBinary(data []byte) error {
	if len(data) != len(v)*amountBytes {
		return fmt.Errorf("%w: %d bytes", errVolume, len(data))
	}
	for i := range v {
		v[i].SetBytes(data[i*amountBytes : (i+1)*amountBytes])
	}
	return nil
}

// Add adds a volume. At 2^128 raw units a swap, no number of swaps exceeds 256 bits.
func (v *Volume) Add(more *Volume) {
	for i := range v {
		v[i].Add(&v[i], &more[i])
	}
}

// trade adds a swap to its hour.
func trade(w state.Writer, e *contracts.Swapped) error {
	at := w.Block().Timestamp
	key := Key(e.PoolID, at-at%Hour)
	var sum Volume
	if _, err := family.Get(w, Volumes, key, &sum); err != nil {
		return err
	}
	var swap Volume
	swap[0].Abs(&e.Amount0)
	swap[1].Abs(&e.Amount1)
	sum.Add(&swap)
	return family.Put(w, Volumes, key, &sum)
}
