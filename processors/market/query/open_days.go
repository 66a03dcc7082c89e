package query

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// On which days positions were collateral: the nodes list when they began or ceased to be, in the order of their
// tables, so that each row is read once however many pages there are, and the client puts the days together.

// openChange is a day on which a position began or ceased to be collateral of deals of a partition. Partitions come one
// after the other, days ascend.
type openChange struct {
	partition int32
	day       uint64
	id        common.Hash // of the token
}

// stillOpen is the day of positions that are collateral now.
const stillOpen = math.MaxUint32

const openChangeBytes = 4 + 4 + common.HashLength

// lastID is after all IDs of a day.
var lastID = common.MaxHash

// item reports whether it was collateral before.
func (o openChange) item(was bool) read.Item {
	it := read.Item{Key: append(binary.BigEndian.AppendUint32(nil, uint32(o.partition)), family.DayKey(o.day, o.id[:]...)...), Row: []byte{0}}
	if was {
		it.Row[0] = 1
	}
	return it
}

// openChangeOf decodes a key. False: it is none.
func openChangeOf(key []byte) (o openChange, ok bool) {
	if len(key) != openChangeBytes {
		return o, false
	}
	day, id, ok := family.SplitDay(key[4:])
	return openChange{int32(binary.BigEndian.Uint32(key)), day, common.BytesToHash(id)}, ok
}

// openChangesQuery asks for a page of the changes after the first one of the days.
type openChangesQuery struct {
	After []byte
	Limit int
	Days  int
}

func (q *openChangesQuery) Code(c *wire.Coder) {
	codePage(c, &q.After, &q.Limit)
	c.Int(&q.Days)
}

func (q *openChangesQuery) Validate() error {
	if q.Limit < 1 || q.Limit > maxOpenPositions {
		return fmt.Errorf("limit: %d is not in 1-%d", q.Limit, maxOpenPositions)
	}
	if len(q.After) != 0 && len(q.After) != openChangeBytes {
		return fmt.Errorf("after: position has %d bytes", len(q.After))
	}
	return checkDays(q.Days)
}

// daySet has a bit for each of the days, the first one first.
type daySet []byte

func daySetBytes(days int) int { return (days + 7) / 8 }

func (s daySet) add(i int)      { s[i/8] |= 1 << (i % 8) }
func (s daySet) has(i int) bool { return s[i/8]&(1<<(i%8)) != 0 }

func (s daySet) empty() bool { return !slices.ContainsFunc(s, func(b byte) bool { return b != 0 }) }

// openDays are the positions of a partition.
type openDays struct {
	period
	of map[common.Hash]*openSpan
}

// openSpan is on which days a position was collateral, as far as is known: until the day at a place.
type openSpan struct {
	days daySet
	end  int
}

func (o *openDays) add(day uint64, id common.Hash, was bool) {
	s := o.of[id]
	if s == nil {
		s = &openSpan{days: make(daySet, daySetBytes(o.days))}
		o.of[id] = s
	}
	for end := o.at(day); s.end < end; s.end++ {
		if was {
			s.days.add(s.end)
		}
	}
}

// take moves those that were collateral on one of the days to a query, ascending.
func (o *openDays) take(q *dayAmountsQuery) {
	for _, id := range slices.SortedFunc(maps.Keys(o.of), common.Hash.Cmp) {
		if set := o.of[id].days; !set.empty() {
			q.Keys, q.Open = append(q.Keys, id), append(q.Open, set)
		}
	}
	clear(o.of)
}

// dayAmounts are the contents of the positions that were collateral, page by page, in the form of other collateral.
func (c *Client) dayAmounts(ctx context.Context, at topics.BlockRef, days int) (all []read.Item, err error) {
	p := periodOf(at.Timestamp, days)
	open, sums := openDays{p, map[common.Hash]*openSpan{}}, &dayAmountsQuery{Days: p.days}
	var last openChange
	for more := true; more; {
		q := &openChangesQuery{Limit: maxOpenPositions, Days: p.days}
		from := c.All()
		if last != (openChange{}) {
			q.After, from = last.item(false).Key, slices.DeleteFunc(slices.Clone(from), func(n int32) bool { return n < last.partition })
		}
		page, err := c.Read(ctx, read.Request{Operation: opOpenChanges, Query: q, Partitions: from, At: &at, Limit: q.Limit})
		if err != nil {
			return nil, err
		}
		for _, it := range page.Items {
			change, ok := openChangeOf(it.Key)
			if !ok || len(it.Row) != 1 || change.day <= p.first {
				return nil, read.ErrMalformed
			}
			if change.partition != last.partition {
				open.take(sums)
			}
			open.add(change.day, change.id, it.Row[0] != 0)
			last = change
		}
		if more = len(page.Items) == q.Limit; !more {
			open.take(sums)
		}
		if all, err = c.addAmountsOf(ctx, all, at, sums, !more); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// maxGathered is how many positions are gathered before their contents are read. Those of a partition have pools in
// all, so if they were read partition by partition, each request would go over all contents that there are.
const maxGathered = 64 * maxOpenPositions

// addAmountsOf appends the contents of positions, and takes them from the query, once there are enough or at the end:
// ascending, as many at once as a request may have.
func (c *Client) addAmountsOf(ctx context.Context, all []read.Item, at topics.BlockRef, q *dayAmountsQuery, end bool) ([]read.Item, error) {
	if len(q.Keys) < c.gathered && !end {
		return all, nil
	}
	sort.Sort((*byID)(q))
	for len(q.Keys) > 0 {
		n := min(len(q.Keys), maxOpenPositions)
		page := &dayAmountsQuery{Days: q.Days, Keys: q.Keys[:n], Open: q.Open[:n]}
		q.Keys, q.Open = q.Keys[n:], q.Open[n:]
		sums, err := c.Read(ctx, read.Request{Operation: opDayAmounts, Query: page, At: &at})
		if err != nil {
			return nil, err
		}
		split, err := inSections(sums.Items)
		if err != nil {
			return nil, err
		}
		all = append(all, split[sectionCollateral]...)
	}
	return all, nil
}

// byID sorts the positions of a query.
type byID dayAmountsQuery

func (q *byID) Len() int           { return len(q.Keys) }
func (q *byID) Less(i, j int) bool { return q.Keys[i].Cmp(q.Keys[j]) < 0 }
func (q *byID) Swap(i, j int) {
	q.Keys[i], q.Keys[j] = q.Keys[j], q.Keys[i]
	q.Open[i], q.Open[j] = q.Open[j], q.Open[i]
}
