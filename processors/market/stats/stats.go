// Package stats keeps sums and counts of deals for answers about the market as a whole: each partition has its
// share, and readers add them up. It must depend on nothing but the given state and the change of a deal: no
// clock, no chain.
//
// Invariants, for the deals of a partition:
//  1. Totals counts every deal once, by state; its sums are over all deals ever funded.
//  2. Collateral is the sum of the raw amounts of the ERC20 deals in LISTED or FUNDED.
//  3. The newest row of Flows equals the sums of Totals; each other row has the sums at the end of its hour.
//  4. A histogram counts every deal ever funded once (a cost only in the histogram of its term). A branch's count
//     is the sum of the counts of the node there.
//  5. The tables of days have what collateral and positions were before the first change of each day (family.DayKey).
package stats

import (
	"fmt"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// Apply applies a deal's change: before is nil for a new deal. A change within the same state has no effect.
func Apply(w state.Writer, before, after *topics.Deal) error {
	if before != nil && before.State == after.State {
		return nil
	}
	var t Totals
	if err := get(w, totals, keyTotals, &t); err != nil {
		return err
	}
	if before != nil {
		t.ByState[before.State]--
	}
	t.ByState[after.State]++

	var err error
	switch {
	case before == nil:
		err = moveCollateral(w, after, false)
	case after.State == contracts.DealFundedState: // its collateral stays locked
		err = funded(w, &t, after)
	default:
		err = moveCollateral(w, after, true)
	}
	if err != nil {
		return err
	}
	put(w, totals, keyTotals, &t)
	return nil
}

// funded counts a deal that was funded.
func funded(w state.Writer, t *Totals, d *topics.Deal) (err error) {
	f := d.Funding
	add(&t.Volume, &f.Price)
	add(&t.Fees, &f.Fee)
	put(w, flows, flowKey(f.FundedAt), &t.Flow)
	deals.Numbers(d, func(h deals.Histogram, number uint256.Int) {
		if err == nil {
			err = count(w, h, &number)
		}
	})
	return err
}

// moveCollateral counts the collateral of a new deal, or of one that ends.
func moveCollateral(w state.Writer, d *topics.Deal, ends bool) error {
	if d.Kind != contracts.KindERC20 { // a position's value is that of its contents: see deals.IndexOpenPosition
		id := d.AmountOrTokenID.Bytes32()
		former := open(ends)
		return family.KeepFormer(w, openDays, family.DayKey(family.Today(w), id[:]...), &former)
	}
	key := CollateralKey(d.Lane, d.Token)
	var c Amount
	if err := get(w, collateral, key, &c); err != nil {
		return err
	}
	if err := family.KeepFormer(w, collateralDays, family.DayKey(family.Today(w), key...), &c); err != nil {
		return err
	}
	move := add
	if ends {
		move = sub
	}
	move(&c.Raw, &d.AmountOrTokenID)
	if c.Raw.IsZero() {
		w.Delete(collateral, key)
		return nil
	}
	put(w, collateral, key, &c)
	return nil
}

// The contract's sums are far below 256 bits.
func add(to, by *uint256.Int) { to.Add(to, by) }
func sub(to, by *uint256.Int) { to.Sub(to, by) }

// row is a row of this family. Rows have fixed lengths: they are small, change often and are private.
type row interface {
	append(b []byte) []byte
	decode(data []byte) bool
}

// get leaves r unchanged if there is no row.
func get(w state.Writer, t *state.Table, key []byte, r row) error {
	data, err := w.Get(t, key)
	if err == nil && data != nil && !r.decode(data) {
		err = errLength
	}
	if err != nil {
		return fmt.Errorf("%s %x: %w", t.Name, key, err)
	}
	return nil
}

func put(w state.Writer, t *state.Table, key []byte, r row) {
	w.Put(t, key, r.append(make([]byte, 0, maxRowBytes)))
}
