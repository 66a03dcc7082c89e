package query

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/deals"
	"github.com/lienstream/lienstream/topics"
)

// An answer made of many things is rows in sections: the first byte of an item's key says which. Each
// partition adds what it has; whoever asked puts them together.
const (
	sectionDeal byte = iota
	sectionReward
	sectionSummary
	sectionBid
	sectionBalance
	sectionDrip
	sectionAsset
	sectionEpoch
	sectionPool
	sectionStaking
	sectionSeed
	sectionTick
	sectionBurn
	sectionBurned
	sectionOwned     // positions by their owner
	sectionLiquidity // of positions
	sectionTotals
	sectionFlowDay
	sectionFlowWeek
	sectionCollateral
	sectionCoarse
	sectionFine
	sectionOpenPosition
	sectionHour // of the price of a pool

	sections // how many there are
)

// unlimited is the limit of an answer in sections, which bound themselves.
const unlimited = math.MaxInt32

// market is what of the deployment an answer needs.
type market struct {
	Pool             common.Hash // of sTKN and TKN; zero: there is no token layer
	STKN, TKN, USDG  common.Address
	PositionManager  common.Address
	AccountPartition int32 // that of the account which is asked for
}

func marketOf(d contracts.Deployment) market {
	return market{Pool: d.PoolID, STKN: d.STKN, TKN: d.TKN, USDG: d.USDG, PositionManager: d.PositionManager}
}

// bucket is a part of a histogram.
type bucket struct {
	Histogram deals.Histogram
	Bucket    [2]byte
}

// collector gathers the items of an answer in sections.
type collector struct{ items []item }

func (c *collector) add(section byte, key, row []byte) {
	if row != nil {
		c.items = append(c.items, item{key: sectionKey(section, key), row: bytes.Clone(row)})
	}
}

// addAll gathers the rows of a scan.
func (c *collector) addAll(section byte) func(key, row []byte) bool {
	return func(key, row []byte) bool {
		c.add(section, key, row)
		return true
	}
}

// sorted returns the items as every answer has them: ascending by key.
func (c *collector) sorted() []item {
	slices.SortStableFunc(c.items, func(a, b item) int { return bytes.Compare(a.key, b.key) })
	return c.items
}

func sectionKey(section byte, key []byte) []byte {
	return append(append(make([]byte, 0, 1+len(key)), section), key...)
}

// inSections splits the items of an answer, and takes the section off their keys.
func inSections(items []item) (split [sections][]item, err error) {
	for _, it := range items {
		if len(it.key) == 0 || it.key[0] >= sections {
			return split, errMalformed
		}
		s := it.key[0]
		it.key = it.key[1:]
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
func decodeAll[T any, P row[T]](items []item) ([]T, error) {
	all := make([]T, len(items))
	for i, it := range items {
		if err := P(&all[i]).UnmarshalBinary(it.row); err != nil {
			return nil, fmt.Errorf("decode answer: %w", err)
		}
	}
	return all, nil
}

// decodeFirst decodes the first row of a section, nil where there is none.
func decodeFirst[T any, P row[T]](items []item) (*T, error) {
	if len(items) == 0 {
		return nil, nil //nolint:nilnil // none is no error
	}
	all, err := decodeAll[T, P](items[:1])
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

func decodeRow[T any, P row[T]](it item) (v T, err error) {
	if err = P(&v).UnmarshalBinary(it.row); err != nil {
		err = fmt.Errorf("decode answer: %w", err)
	}
	return v, err
}

// sumWords adds up rows of one 256-bit number each.
func sumWords(items []item) (sum uint256.Int) {
	for _, it := range items {
		sum.Add(&sum, new(uint256.Int).SetBytes(it.row))
	}
	return sum
}

func accountEntity(a common.Address) contracts.Entity {
	return contracts.Entity{Family: contracts.FamilyAccount, ID: common.BytesToHash(a[:])}
}

func (r *Router) accountPartition(a common.Address) int32 {
	return topics.Partition(accountEntity(a).Key(), r.cfg.Partitions)
}

func (r *Router) poolPartition(id common.Hash) int32 {
	return topics.Partition(contracts.Entity{Family: contracts.FamilyPool, ID: id}.Key(), r.cfg.Partitions)
}
