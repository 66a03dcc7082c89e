package liquidity

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// Tables of days: see family.DayKey.
var (
	// poolDays has a topics.Pool under the day and the pool's ID, of pools that the registry has or ever had, and of
	// the token layer's. Others have no price that counts.
	poolDays = &state.Table{ID: tablePoolDays, Name: "pool days"}
	// liquidityDays has a topics.PositionLiquidity under the token ID and the day, of positions in the registry's
	// pools.
	liquidityDays = &state.Table{ID: tableLiquidityDays, Name: "position liquidity days"}
)

var errDay = errors.New("key of a day is too short")

func liquidityDayKey(id common.Hash, day uint64) []byte {
	return append(id.Bytes(), family.DayKey(day)...)
}

// putPool writes a pool, and what it was before the day's first change.
func (s *scope) putPool(w state.Writer, before, after *topics.Pool) error {
	if after.Limits != nil || after.ID == s.pool {
		if err := family.KeepFormer(w, poolDays, family.DayKey(family.Today(w), after.ID[:]...), before); err != nil {
			return err
		}
	}
	return family.Put(w, Pools, after.ID[:], after)
}

// ScanPoolsAfter calls fn for the rows of pools before their first change on each day after one, ascending by day. A
// pool that was not there has the row of none.
func ScanPoolsAfter(v state.Reader, day uint64, fn func(day uint64, id common.Hash, row []byte)) error {
	return scanRows(v, poolDays, nil, family.AfterDay(day), nil, func(key, row []byte) error {
		day, rest, ok := family.SplitDay(key)
		if !ok || len(rest) != common.HashLength {
			return errDay
		}
		fn(day, common.BytesToHash(rest), row)
		return nil
	})
}

// ScanLiquidityAfter does the same for positions, ascending by token ID and day, from the rows of one after the day on,
// until fn returns false.
func ScanLiquidityAfter(v state.Reader, id common.Hash, day uint64, fn func(id common.Hash, day uint64, row []byte) bool) error {
	var bad error
	err := v.Scan(liquidityDays, nil, liquidityDayKey(id, day), func(key, row []byte) bool {
		if len(key) < common.HashLength {
			bad = errDay
			return false
		}
		id, rest := common.Hash(key[:common.HashLength]), key[common.HashLength:]
		day, _, ok := family.SplitDay(rest)
		if !ok {
			bad = errDay
			return false
		}
		return fn(id, day, row)
	})
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("%s: %w", liquidityDays.Name, err)
	}
	return nil
}

func scanRows(v state.Reader, t *state.Table, prefix, after, last []byte, fn func(key, row []byte) error) error {
	var bad error
	err := v.Scan(t, prefix, after, func(key, row []byte) bool {
		if last != nil && bytes.Compare(key, last) > 0 {
			return false
		}
		bad = fn(key, row)
		return bad == nil
	})
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	return nil
}
