package chain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"go.uber.org/zap"
)

// standing is an endpoint's part in the head.
type standing int

const (
	noSay     standing = iota // it does not respond, is far behind, or did not confirm the block
	agrees                    // it said the same block
	outvoted                  // it said another, and is asked for nothing until it agrees again
	contested                 // it and others said different ones, and none had most of them
)

// errUnconfirmed: an endpoint that told a later block does not say which one it has at the height of the head, one that
// had a say a moment ago is silent, one that was contradicted is alone now, or one is behind a head that another still has.
var errUnconfirmed = fmt.Errorf("%w: an endpoint does not confirm the block of another", ErrUnavailable)

// same reports whether two endpoints say the same of a block. Its hash alone would leave the rest to one of them.
func (b *Block) same(other *Block) bool {
	sameFee := b.BaseFee == other.BaseFee || b.BaseFee != nil && other.BaseFee != nil && *b.BaseFee == *other.BaseFee
	return sameFee && b.Number == other.Number && b.Hash == other.Hash && b.Parent == other.Parent &&
		b.Timestamp == other.Timestamp && b.GasLimit == other.GasLimit
}

// enough is how many of an electorate make a block the head: two must agree, and of more than two most. Where there are
// three nodes one is not enough, whoever else is away: those who want to go on with one name two.
func (c *Client) enough(electorate int) int {
	if c.nodes > 2 {
		return max(majority(electorate), 2)
	}
	return majority(electorate)
}

func majority(nodes int) int {
	if nodes < 3 {
		return nodes
	}
	return nodes/2 + 1
}

// settle returns the latest block that enough of those who have a say have: of three, the second highest. A node that
// says it is behind does not turn the head back, and one that claims to be ahead does not push it. Those whom most others
// contradict, at that height or at their own, are outvoted. A node has one vote, by as many endpoints as it may be asked.
// electorate is how many nodes there are to have a majority of.
func (c *Client) settle(ctx context.Context, voters []report, electorate int) (Block, error) {
	need, last := c.enough(electorate), c.lately()
	heights := heightsOf(voters, need)
	asked := slices.Clone(heights)
	if last.Number > heights[len(heights)-1] {
		asked = append(asked, last.Number)
	}
	said := c.atHeights(ctx, voters, asked)
	var differ []report
	for _, number := range heights {
		won, votes := most(said[number])
		if votes < need {
			if len(won) < len(said[number]) {
				differ = said[number]
			}
			continue
		}
		if !c.confirmed(won) || number < last.Number && someSay(said[last.Number], &last) {
			return Block{}, errUnconfirmed
		}
		c.stand(won, against(said, heights, number, need))
		c.made(min(need, 2))
		return won[0].block, nil
	}
	if differ != nil {
		c.contest(differ)
		return Block{}, &DisagreementError{Number: differ[0].block.Number, Hashes: hashes(differ)}
	}
	return Block{}, errUnconfirmed
}

// made notes how many nodes a head took, and so an answer does.
func (c *Client) made(quorum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quorum = quorum
	c.metrics.alone.Set(float64(number(quorum < c.nodes && quorum < 2)))
}

// lately is the head, if it was agreed on lately; zero: there is none.
func (c *Client) lately() Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headErr != nil || time.Since(c.settled) >= c.cfg.MaxStill {
		return Block{}
	}
	return c.head
}

// heightsOf are the heights that the head may have, highest first: the highest that so many nodes have reached, and below
// it those of the nodes that have not. A node that was contradicted about a state is not counted on: another would then
// not have the block, and nobody would be left to agree with.
func heightsOf(voters []report, need int) (heights []uint64) {
	reached, believed := map[string]uint64{}, map[string]uint64{}
	for _, s := range voters {
		reached[s.from.host] = max(reached[s.from.host], s.block.Number)
		if !s.from.contradicted() {
			believed[s.from.host] = reached[s.from.host]
		}
		heights = append(heights, s.block.Number)
	}
	if len(believed) < need {
		believed = reached
	}
	numbers := slices.Sorted(maps.Values(believed))
	highest := numbers[max(len(numbers)-need, 0)]
	slices.Sort(heights)
	slices.Reverse(heights)
	return slices.DeleteFunc(slices.Compact(heights), func(n uint64) bool { return n > highest })
}

// atHeights asks those that are ahead of a height for their block there.
func (c *Client) atHeights(ctx context.Context, latest []report, heights []uint64) map[uint64][]report {
	said := map[uint64][]report{}
	var further []blockQuery
	for _, number := range slices.Compact(slices.Sorted(slices.Values(heights))) {
		for _, s := range latest {
			if s.block.Number == number {
				said[number] = append(said[number], s)
			} else if s.block.Number > number {
				further = append(further, blockQuery{s.from, hexutil.EncodeUint64(number)})
			}
		}
	}
	told, _ := c.tell(ctx, further) // who does not say it does not confirm it
	for _, s := range told {
		if slices.Contains(heights, s.block.Number) {
			said[s.block.Number] = append(said[s.block.Number], s)
		}
	}
	return said
}

// against are those that most others contradict: at the height of the head, or below it at their own.
func against(said map[uint64][]report, heights []uint64, head uint64, need int) (all []report) {
	for _, number := range heights {
		if won, votes := most(said[number]); number <= head && votes >= need {
			all = append(all, slices.DeleteFunc(slices.Clone(said[number]), func(s report) bool { return from(won, s.from) })...)
		}
	}
	return all
}

func someSay(said []report, block *Block) bool {
	return slices.ContainsFunc(said, func(s report) bool { return s.block.same(block) })
}

// most is what most nodes say, and how many. A node that says two things has no vote.
func most(at []report) (won []report, votes int) {
	for i := range at {
		same := slices.DeleteFunc(slices.Clone(at), func(s report) bool { return !s.block.same(&at[i].block) })
		n := nodes(slices.DeleteFunc(slices.Clone(same), func(s report) bool {
			return slices.ContainsFunc(at, func(o report) bool { return o.from.host == s.from.host && !o.block.same(&s.block) })
		}))
		if won == nil || n > votes {
			won, votes = same, n
		}
	}
	return won, votes
}

// confirmed reports whether those who say a block are enough to make it the head. Who was contradicted does not win by the
// others' silence: of those who were contradicted as many must agree as if all had a say, and who is outvoted needs one
// that is not.
func (c *Client) confirmed(won []report) bool {
	disputed := false
	for _, s := range won {
		switch s.from.standing() {
		case contested:
			disputed = true
		case outvoted:
		default:
			return true
		}
	}
	hosts := map[string]bool{}
	for _, e := range c.endpoints {
		if n := e.standing(); n == contested || n == outvoted {
			hosts[e.host] = true
		}
	}
	return disputed && nodes(won) >= majority(len(hosts))
}

// contest notes which nodes contradicted each other, by whichever of their endpoints.
func (c *Client) contest(at []report) {
	for _, e := range c.endpoints {
		e.mu.Lock()
		if ofNode(at, e) && e.stands != outvoted {
			e.stands = contested
		}
		e.mu.Unlock()
	}
}

// stand notes who agreed on the head, and who said another block. Who was contradicted and says nothing now still is.
func (c *Client) stand(won, against []report) {
	for _, e := range c.endpoints {
		e.mu.Lock()
		was := e.stands
		switch {
		case from(against, e):
			e.stands = outvoted
		case from(won, e):
			e.stands = agrees
		case ofNode(against, e):
			e.stands = outvoted
		case was == agrees:
			e.stands = noSay
		}
		if e.stands == outvoted && was != outvoted {
			c.log.Warn("endpoint is outvoted about the head", zap.String("endpoint", e.name))
		}
		e.mu.Unlock()
	}
}

func nodes(said []report) int {
	hosts := map[string]bool{}
	for _, s := range said {
		hosts[s.from.host] = true
	}
	return len(hosts)
}

func hashes(said []report) []common.Hash {
	var all []common.Hash
	for _, s := range said {
		if !slices.Contains(all, s.block.Hash) {
			all = append(all, s.block.Hash)
		}
	}
	return all
}

func from(said []report, e *endpoint) bool {
	return slices.ContainsFunc(said, func(s report) bool { return s.from == e })
}

func ofNode(said []report, e *endpoint) bool {
	return slices.ContainsFunc(said, func(s report) bool { return s.from.host == e.host })
}
