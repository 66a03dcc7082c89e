package query

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/wire"
)

// An answer with many parts is rows in sections: the first byte of an item's key is the section. Each partition
// adds its rows, and the caller combines them.
const (
	sectionDeal byte = iota
	sectionReward
	sectionSummary
	sectionBid
	sectionBalance
	sectionDrip
	sectionDripSum
	sectionAsset
	sectionEpoch
	sectionPool
	sectionStaking
	sectionSeed
	sectionTick // of a pool: one, or a window of them
	sectionBurn
	sectionBurned
	sectionOwned     // positions by their owner
	sectionLiquidity // of positions
	sectionTotals
	sectionFlowDay
	sectionFlowWeek
	sectionFlowHour
	sectionCollateral
	sectionCounts // of a histogram's node
	sectionOpenPosition
	sectionHour    // of the price of a pool: observations, or closes
	sectionSecond  // of it, too
	sectionVolume  // of a pool
	sectionHolders // of a token
	sectionLargest // holdings of it
	sectionHolding // of an account
	sectionDay     // what was funded in it
	sectionPoolDay // pools before its first change

	sections // number of sections
)

// collector collects the items of an answer by section.
type collector struct{ items []read.Item }

func (c *collector) add(section byte, key, row []byte) {
	if row != nil {
		c.items = append(c.items, read.Item{Key: sectionKey(section, key), Row: bytes.Clone(row)})
	}
}

// addAll returns a callback that adds the rows of a scan.
func (c *collector) addAll(section byte) func(key, row []byte) bool {
	return func(key, row []byte) bool {
		c.add(section, key, row)
		return true
	}
}

// sorted returns the items ascending by key, as required.
func (c *collector) sorted() []read.Item {
	slices.SortStableFunc(c.items, func(a, b read.Item) int { return bytes.Compare(a.Key, b.Key) })
	return c.items
}

func sectionKey(section byte, key []byte) []byte {
	return append(append(make([]byte, 0, 1+len(key)), section), key...)
}

// inSections splits the items of an answer, and removes the section from their keys.
func inSections(items []read.Item) (split [sections][]read.Item, err error) {
	for _, it := range items {
		if len(it.Key) == 0 || it.Key[0] >= sections {
			return split, read.ErrMalformed
		}
		s := it.Key[0]
		it.Key = it.Key[1:]
		split[s] = append(split[s], it)
	}
	return split, nil
}

// row is a row of topics.
type row[T any] interface {
	*T
	UnmarshalBinary(data []byte) error
}

// decodeAll decodes the rows of a section.
func decodeAll[T any, P row[T]](items []read.Item) ([]T, error) {
	all := make([]T, len(items))
	for i, it := range items {
		if err := P(&all[i]).UnmarshalBinary(it.Row); err != nil {
			return nil, fmt.Errorf("decode answer: %w", err)
		}
	}
	return all, nil
}

// decodeFirst decodes the first row of a section; nil: there is none.
func decodeFirst[T any, P row[T]](items []read.Item) (*T, error) {
	if len(items) == 0 {
		return nil, nil //nolint:nilnil // a missing row is no error
	}
	all, err := decodeAll[T, P](items[:1])
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

func decodeRow[T any, P row[T]](it read.Item) (v T, err error) {
	if err = P(&v).UnmarshalBinary(it.Row); err != nil {
		err = fmt.Errorf("decode answer: %w", err)
	}
	return v, err
}

// maxRowBytes bounds a row of topics: those of the tables are far smaller.
const maxRowBytes = 4 << 10

// codeRow codes a row of topics behind its length.
func codeRow(c *wire.Coder, r interface {
	AppendBinary(b []byte) ([]byte, error)
	UnmarshalBinary(data []byte) error
},
) {
	var raw []byte
	if !c.Decoding() {
		raw, _ = r.AppendBinary(nil) // its error is always nil
	}
	c.Bytes(&raw, maxRowBytes)
	if c.Decoding() {
		if err := r.UnmarshalBinary(raw); err != nil {
			c.Fail("%v", err)
		}
	}
}

// codeWord codes a number of 256 bits.
func codeWord(c *wire.Coder, n *uint256.Int) {
	raw := n.Bytes32()
	c.Fixed(raw[:])
	n.SetBytes32(raw[:])
}

// sumWords adds up rows of one 256-bit number each.
func sumWords(items []read.Item) (sum uint256.Int) {
	for _, it := range items {
		sum.Add(&sum, new(uint256.Int).SetBytes(it.Row))
	}
	return sum
}
