package query

import (
	"github.com/lienstream/lienstream/processors/drips"
	"github.com/lienstream/lienstream/topics"
)

// dripsAt is drips as of a time.
func dripsAt(items []item, now uint64) ([]Drip, error) {
	rows, err := decodeAll[topics.Drip](items)
	if err != nil {
		return nil, err
	}
	all := make([]Drip, len(rows))
	for i, row := range rows {
		d := Drip{Drip: row, UnlockedNow: drips.Unlocked(&row, now), ClaimableNow: drips.Claimable(&row, now)}
		for _, p := range drips.Curve(&row) {
			d.Curve = append(d.Curve, CurvePoint{p.T, p.Unlocked})
		}
		all[i] = d
	}
	return all, nil
}
