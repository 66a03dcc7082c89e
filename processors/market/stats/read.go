package stats

import (
	"encoding/binary"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/family"
)

// ReadTotals reads a partition's totals.
func ReadTotals(v state.Reader) ([]byte, error) { return v.Get(totals, keyTotals) }

// ReadFlow reads the sums as of the end of a second: those of the full hours, and what was funded since.
func ReadFlow(v state.Reader, at uint64) ([]byte, error) {
	var (
		sums Flow
		bad  error
	)
	err := v.Scan(flows, nil, flowKey(at), func(_, row []byte) bool { // the last full hour before the second
		if !sums.decode(row) {
			bad = errLength
		}
		return false
	})
	if err == nil && bad == nil {
		err = v.ScanIndex(deals.IndexFundedAt, nil, deals.FundedAtKey(at), func(entry, value []byte) bool {
			funded, price, fee, err := deals.DecodeFundedAt(entry, value)
			if err != nil || funded < at-at%hour {
				bad = err
				return false
			}
			add(&sums.Volume, &price)
			add(&sums.Fees, &fee)
			return true
		})
	}
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, fmt.Errorf("flow by %d: %w", at, err)
	}
	return sums.append(nil), nil
}

// ScanHours calls fn for each hour of funded deals from one on, the newest first, with what was added in it.
func ScanHours(v state.Reader, from uint64, fn func(n uint64, added []byte)) error {
	var (
		newer Flow   // at the end of that hour
		n     uint64 // its number
		known bool
		bad   error
	)
	tell := func(before *Flow) {
		if known {
			sub(&newer.Volume, &before.Volume)
			sub(&newer.Fees, &before.Fees)
			fn(n, newer.append(nil))
		}
	}
	err := v.Scan(flows, nil, nil, func(key, row []byte) bool {
		var sums Flow
		if !sums.decode(row) || len(key) != 8 {
			bad = errLength
			return false
		}
		tell(&sums)
		n, newer = ^binary.BigEndian.Uint64(key), sums
		known = n >= from/hour
		return known
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return fmt.Errorf("hours of funded deals: %w", err)
	}
	tell(new(Flow)) // the first hour of all
	return nil
}

// ScanCollateral calls fn for the collateral of each lane and token.
func ScanCollateral(v state.Reader, fn func(key, row []byte) bool) error {
	return v.Scan(collateral, nil, nil, fn)
}

// ScanCollateralAfter calls fn for the collateral before the first change of each day after one, ascending by day.
func ScanCollateralAfter(v state.Reader, day uint64, fn func(day uint64, key []byte, raw *uint256.Int)) error {
	var a Amount
	return scanAfter(v, collateralDays, family.AfterDay(day), &a, func(day uint64, key []byte) bool {
		fn(day, key, &a.Raw)
		return true
	})
}

// ScanOpenAfter calls fn for the positions whose deals were listed or ended on a day, ascending by day and token ID,
// with whether they were collateral before. It begins after a family.DayKey of a day and perhaps a token ID.
func ScanOpenAfter(v state.Reader, after []byte, fn func(day uint64, id common.Hash, was bool) bool) error {
	var was open
	return scanAfter(v, openDays, after, &was, func(day uint64, key []byte) bool { return fn(day, common.BytesToHash(key), bool(was)) })
}

func scanAfter(v state.Reader, t *state.Table, after []byte, row family.Row, fn func(day uint64, key []byte) bool) error {
	var bad error
	err := v.Scan(t, nil, after, func(key, data []byte) bool {
		day, rest, ok := family.SplitDay(key)
		if !ok {
			bad = errLength
			return false
		}
		bad = row.UnmarshalBinary(data)
		return bad == nil && fn(day, rest)
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	return nil
}

// CollateralOf decodes the lane and the token in a key.
func CollateralOf(key []byte) (contracts.Lane, common.Address) {
	return contracts.Lane(key[0]), common.BytesToAddress(key[1:])
}
