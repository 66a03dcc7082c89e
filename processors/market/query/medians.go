package query

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/stats"
	"github.com/lienstream/lienstream/topics"
)

// A median is found from the root of its histogram on: the branches' counts of all partitions say in which of them it
// is. An answer has the nodes that the last medians needed; what is missing is read as of the same block.

// maxNodes is how many nodes may be asked for: those above two numbers of each histogram.
const maxNodes = 2 * int(deals.Histograms) * stats.MaxPathBytes

// countsQuery asks for nodes of the histograms.
type countsQuery struct{ Nodes [][]byte }

func (q *countsQuery) Code(c *wire.Coder) {
	wire.Slice(c, &q.Nodes, maxNodes, 1, func(node *[]byte) { c.Bytes(node, stats.MaxPathBytes) })
}

func (q *countsQuery) Validate() error {
	if len(q.Nodes) > maxNodes {
		return fmt.Errorf("nodes: %d", len(q.Nodes))
	}
	for _, node := range q.Nodes {
		if !stats.IsNode(node) {
			return fmt.Errorf("nodes: %x is not a node", node)
		}
	}
	return nil
}

func readCounts(_ context.Context, views *read.Views, q *countsQuery) ([]read.Item, error) {
	var c collector
	for _, v := range views.Of {
		if err := addCounts(&c, v, q.Nodes); err != nil {
			return nil, err
		}
	}
	return c.sorted(), nil
}

func addCounts(c *collector, v state.View, nodes [][]byte) error {
	counts := stats.NewCountsReader(v)
	for _, node := range slices.SortedFunc(slices.Values(nodes), bytes.Compare) {
		row, err := counts.Read(node)
		if err != nil {
			return err
		}
		c.add(sectionCounts, node, row)
	}
	return nil
}

// roots are the paths of the histograms' roots.
func roots() (all [][]byte) {
	for h := range deals.Histograms {
		all = append(all, []byte{byte(h)})
	}
	return all
}

// histogramSet has nodes of the histograms, added up over all partitions.
type histogramSet map[string][]branchCount

type branchCount struct {
	branch byte
	n      uint64
}

// ask makes the set of nodes that are asked for: one that no partition has is empty.
func ask(nodes [][]byte) histogramSet {
	set := histogramSet{}
	for _, node := range nodes {
		set[string(node)] = nil
	}
	return set
}

// add adds the partitions' counts. Items are sorted, so those of a node are adjacent.
func (set histogramSet) add(items []read.Item) error {
	for _, it := range items {
		known, asked := set[string(it.Key)]
		if !asked || !stats.Counts(it.Row, func(branch byte, n uint64) {
			known = append(known, branchCount{branch, n})
		}) {
			return read.ErrMalformed
		}
		set[string(it.Key)] = known
	}
	for node, all := range set {
		slices.SortFunc(all, func(a, b branchCount) int { return cmp.Compare(a.branch, b.branch) })
		merged := all[:0]
		for _, b := range all {
			if last := len(merged) - 1; last >= 0 && merged[last].branch == b.branch {
				merged[last].n += b.n
			} else {
				merged = append(merged, b)
			}
		}
		set[node] = merged
	}
	return nil
}

// find finds the number with a rank, from 0. Nil: the node at the end of the path has to be asked for.
func (set histogramSet) find(h deals.Histogram, rank uint64) (number *uint256.Int, path []byte, err error) {
	path = []byte{byte(h)}
	for !stats.Whole(path) {
		all, asked := set[string(path)]
		if !asked {
			return nil, path, nil
		}
		in := slices.IndexFunc(all, func(b branchCount) bool {
			if rank < b.n {
				return true
			}
			rank -= b.n
			return false
		})
		if in < 0 {
			return nil, nil, fmt.Errorf("histogram node %x: its branches count more than it does: %w", path, read.ErrMalformed)
		}
		path = append(path, all[in].branch)
	}
	return stats.NumberAt(path), path, nil
}

// median is the number in the middle, or the mean of the two, rounded down. Nil: there is none, or nodes are
// missing.
func (set histogramSet) median(h deals.Histogram) (m *uint256.Int, missing [][]byte, err error) {
	var total uint64
	for _, b := range set[string([]byte{byte(h)})] {
		total += b.n
	}
	if total == 0 {
		return nil, nil, nil
	}
	var middle [2]*uint256.Int
	for i, rank := range []uint64{(total - 1) / 2, total / 2} {
		number, path, err := set.find(h, rank)
		if err != nil {
			return nil, nil, err
		}
		if middle[i] = number; number == nil && !slices.ContainsFunc(missing, func(p []byte) bool { return bytes.Equal(p, path) }) {
			missing = append(missing, path)
		}
	}
	if missing != nil {
		return nil, missing, nil
	}
	// (low+high)/2 without overflow.
	half := new(uint256.Int).Sub(middle[1], middle[0])
	return half.Add(half.Rsh(half, 1), middle[0]), nil, nil
}

// medians are those of the set, or the nodes that are missing.
func (set histogramSet) medians() (m Medians, missing [][]byte, err error) {
	for h, to := range map[deals.Histogram]**uint256.Int{
		deals.HistogramCost7: &m.CostBps7d, deals.HistogramCost21: &m.CostBps21d, deals.HistogramTimeToFund: &m.TimeToFundSeconds,
	} {
		var more [][]byte
		if *to, more, err = set.median(h); err != nil {
			return m, nil, err
		}
		missing = append(missing, more...)
	}
	return m, missing, nil
}

// mediansOf are the medians as of the block of a set, level by level. needed are the nodes that it took.
func (c *Client) mediansOf(ctx context.Context, at topics.BlockRef, set histogramSet) (m Medians, needed [][]byte, err error) {
	for range stats.MaxPathBytes {
		m, missing, err := set.medians()
		if err != nil {
			return m, nil, err
		}
		if missing == nil {
			return m, set.needed(), nil
		}
		a, err := c.Read(ctx, read.Request{Operation: opCounts, Query: &countsQuery{missing}, At: &at})
		if err != nil {
			return m, nil, err
		}
		split, err := inSections(a.Items)
		if err != nil {
			return m, nil, err
		}
		more := ask(missing)
		if err := more.add(split[sectionCounts]); err != nil {
			return m, nil, err
		}
		maps.Copy(set, more)
	}
	return m, nil, fmt.Errorf("a histogram is deeper than its numbers: %w", read.ErrMalformed)
}

// needed are the nodes that the medians took, but the roots.
func (set histogramSet) needed() (all [][]byte) {
	for h := range deals.Histograms {
		var total uint64
		for _, b := range set[string([]byte{byte(h)})] {
			total += b.n
		}
		if total == 0 {
			continue
		}
		for _, rank := range []uint64{(total - 1) / 2, total / 2} {
			_, path, err := set.find(h, rank)
			for end := len(path) - 1; err == nil && end > 1; end-- {
				if node := path[:end]; !slices.ContainsFunc(all, func(p []byte) bool { return bytes.Equal(p, node) }) {
					all = append(all, node)
				}
			}
		}
	}
	return all
}
