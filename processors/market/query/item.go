package query

import (
	"fmt"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// decodeDeal decodes a deal with all of its bids.
func decodeDeal(it read.Item) (d DealWithBids, err error) {
	if err := d.Deal.UnmarshalBinary(it.Row); err != nil {
		return d, fmt.Errorf("decode deal: %w", err)
	}
	if len(it.Parts) > 0 {
		d.Bids = make([]topics.Bid, len(it.Parts))
	}
	for i, row := range it.Parts {
		if err := d.Bids[i].UnmarshalBinary(row); err != nil {
			return d, fmt.Errorf("decode bid of deal %s: %w", d.Deal.ID.Dec(), err)
		}
	}
	return d, nil
}

// decodeListedDeal decodes a deal of a list: with the bids that its borrower could accept, were they not
// expired.
func decodeListedDeal(it read.Item) (DealWithBids, error) {
	d, err := decodeDeal(it)
	current := d.Bids[:0]
	for _, b := range d.Bids {
		if rules.OnTerms(&d.Deal, &b) {
			current = append(current, b)
		}
	}
	d.Bids = current
	return d, err
}

func decodeAsset(it read.Item) (a topics.Asset, err error) {
	if err = a.UnmarshalBinary(it.Row); err != nil {
		err = fmt.Errorf("decode asset: %w", err)
	}
	return a, err
}
