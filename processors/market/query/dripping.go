package query

import (
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/drips"
	"github.com/lienstream/lienstream/topics"
)

// dripsAt returns drips as of a time.
func dripsAt(items []read.Item, now uint64) ([]Drip, error) {
	rows, err := decodeAll[topics.Drip](items)
	if err != nil {
		return nil, err
	}
	all := make([]Drip, len(rows))
	for i, row := range rows {
		all[i] = dripAt(row, now)
	}
	return all, nil
}

func dripAt(row topics.Drip, now uint64) Drip {
	d := Drip{Drip: row, UnlockedNow: drips.Unlocked(&row, now), ClaimableNow: drips.Claimable(&row, now)}
	for _, p := range drips.Curve(&row) {
		d.Curve = append(d.Curve, CurvePoint{p.T, p.Unlocked})
	}
	return d
}

// dripSums sums up all drips of an account at a time.
type dripSums struct {
	claimable uint256.Int
	dripping  uint256.Int // total minus unlocked
}

func (s *dripSums) count(d *topics.Drip, now uint64) {
	claimable, unlocked := drips.Claimable(d, now), drips.Unlocked(d, now)
	s.claimable.Add(&s.claimable, &claimable)
	s.dripping.Add(&s.dripping, new(uint256.Int).Sub(&d.Total, &unlocked))
}

func (s *dripSums) words() [2]*uint256.Int { return [...]*uint256.Int{&s.claimable, &s.dripping} }

// append encodes the sums as a row.
func (s *dripSums) append(b []byte) []byte {
	for _, w := range s.words() {
		raw := w.Bytes32()
		b = append(b, raw[:]...)
	}
	return b
}

// decode decodes the row; a missing row is zero.
func (s *dripSums) decode(items []read.Item) error {
	if len(items) == 0 {
		return nil
	}
	words := s.words()
	row := items[0].Row
	if len(row) != len(words)*32 {
		return read.ErrMalformed
	}
	for i, w := range words {
		w.SetBytes32(row[i*32:])
	}
	return nil
}
