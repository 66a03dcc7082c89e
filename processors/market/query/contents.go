package query

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/topics"
)

// A token ID does not tell which partition has the position's contents, so each partition is asked for all of them.
// Most of what that would take is to look up what is elsewhere.

// wanted are token IDs, ascending, each with its place in a query.
type wanted []wantedID

type wantedID struct {
	id    common.Hash
	place int
}

func wantedOf(keys []common.Hash) wanted {
	all := make(wanted, len(keys))
	for i, key := range keys {
		all[i] = wantedID{key, i}
	}
	compare := func(a, b wantedID) int { return a.id.Cmp(b.id) }
	if !slices.IsSortedFunc(all, compare) {
		slices.SortFunc(all, func(a, b wantedID) int { return cmp.Or(compare(a, b), cmp.Compare(a.place, b.place)) })
	}
	return all
}

// maxPassed is how many rows a scan passes over before it seeks the next one that is wanted: about what a seek costs.
const maxPassed = 16

// in calls fn for those whose contents a partition has, ascending. It goes through both in turns, and from each to the
// next that the other may have: so it takes no more steps than the partition has rows, nor many more than there are
// IDs. What fn gets is valid until it returns.
func (w wanted) in(v state.Reader, fn func(place int, row []byte, p *topics.PositionLiquidity) error) error {
	var p topics.PositionLiquidity
	for ended := false; len(w) > 0 && !ended; {
		ended = true // unless the scan gives up before the last row
		passed, bad := 0, error(nil)
		err := v.Scan(liquidity.PositionLiquidities, nil, before(w[0].id), func(key, row []byte) bool {
			at := common.Hash(key)
			for len(w) > 0 && w[0].id.Cmp(at) < 0 {
				w = w[1:]
			}
			switch {
			case len(w) == 0:
				return false
			case w[0].id != at:
				passed++
				ended = passed < maxPassed
				return ended
			}
			passed, p = 0, topics.PositionLiquidity{}
			if bad = p.UnmarshalBinary(row); bad != nil {
				bad = fmt.Errorf("decode position: %w", bad)
			}
			for ; bad == nil && len(w) > 0 && w[0].id == at; w = w[1:] {
				bad = fn(w[0].place, row, &p)
			}
			return bad == nil
		})
		if err = errors.Join(bad, err); err != nil {
			return err
		}
	}
	return nil
}

// before is the key after which a scan begins at this one. Nil: at the first.
func before(key common.Hash) []byte {
	n := new(uint256.Int).SetBytes(key[:])
	if n.IsZero() {
		return nil
	}
	raw := n.SubUint64(n, 1).Bytes32()
	return raw[:]
}
