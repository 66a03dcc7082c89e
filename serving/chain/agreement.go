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

// voteState is an endpoint's part in the last vote about the head.
type voteState int

const (
	noVote    voteState = iota // it does not respond, is far behind, or did not confirm the head
	agrees                     // it returned the head
	outvoted                   // it returned another block: it is asked for nothing until it agrees again
	contested                  // it and others returned different blocks, none of them with a majority
)

// errUnconfirmed: the head cannot be confirmed now, for one of these reasons:
//
//   - an endpoint with a later block does not return its block at the height of the head
//   - an endpoint that voted a moment ago does not respond
//   - an endpoint that was contradicted is alone now
//   - an endpoint is behind a head that another one still has
var errUnconfirmed = fmt.Errorf("%w: an endpoint does not confirm the block of another", ErrUnavailable)

// same reports whether two endpoints returned the same header. With equal hashes alone, one endpoint could set the
// other fields.
func (b *Block) same(other *Block) bool {
	sameFee := b.BaseFee == other.BaseFee || b.BaseFee != nil && other.BaseFee != nil && *b.BaseFee == *other.BaseFee
	return sameFee && b.Number == other.Number && b.Hash == other.Hash && b.Parent == other.Parent &&
		b.Timestamp == other.Timestamp && b.GasLimit == other.GasLimit
}

// enough is how many nodes of an electorate make a block the head: both of two, and a majority of more. Where three
// nodes are configured, one alone is never enough, however many are away; with two configured it may be.
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

// settle returns the latest block that enough voters have: of three, the second highest. So a node that claims to be
// behind does not turn the head back, and one that claims to be ahead does not advance it. Nodes that a majority
// contradicts, at the head's height or at their own, are outvoted. A node has one vote, however many endpoints it has.
// The electorate is the number of nodes of which a majority is needed.
func (c *Client) settle(ctx context.Context, voters []report, electorate int) (Block, error) {
	need, last := c.enough(electorate), c.recentHead()
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
		if !c.confirmed(won) || number < last.Number && includes(said[last.Number], &last) {
			return Block{}, errUnconfirmed
		}
		c.noteVotes(won, contradicting(said, heights, number, need))
		c.noteQuorum(min(need, 2))
		return won[0].block, nil
	}
	if differ != nil {
		c.contest(differ)
		return Block{}, &DisagreementError{Number: differ[0].block.Number, Hashes: hashes(differ)}
	}
	return Block{}, errUnconfirmed
}

// noteQuorum notes how many nodes must give the same answer: as many as agreed on the head.
func (c *Client) noteQuorum(quorum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quorum = quorum
	c.metrics.alone.Set(float64(number(quorum < c.nodes && quorum < 2)))
}

// recentHead is the head if it was agreed on within Config.MaxStill; zero: there is none.
func (c *Client) recentHead() Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headErr != nil || time.Since(c.settled) >= c.cfg.MaxStill {
		return Block{}
	}
	return c.head
}

// heightsOf are the heights that the head may have, highest first: the highest that `need` nodes have reached, and the
// heights of the nodes below it. A node whose answer others contradicted is not counted, if enough remain: the head
// would be a block that only it and one other node have.
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

// atHeights collects the blocks at the given heights. Endpoints that are ahead of a height are asked for their block
// there.
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
	told, _ := c.fetchBlocks(ctx, further) // an endpoint that fails does not confirm the block
	for _, s := range told {
		if slices.Contains(heights, s.block.Number) {
			said[s.block.Number] = append(said[s.block.Number], s)
		}
	}
	return said
}

// contradicting are the reports that a majority contradicts: at the height of the head, or at their own below it.
func contradicting(said map[uint64][]report, heights []uint64, head uint64, need int) (all []report) {
	for _, number := range heights {
		if won, votes := most(said[number]); number <= head && votes >= need {
			all = append(all, slices.DeleteFunc(slices.Clone(said[number]), func(s report) bool { return from(won, s.from) })...)
		}
	}
	return all
}

func includes(said []report, block *Block) bool {
	return slices.ContainsFunc(said, func(s report) bool { return s.block.same(block) })
}

// most is the block that most nodes returned, and how many did. A node that returned two blocks has no vote.
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

// confirmed reports whether a block's reports may make it the head. Nodes that were contradicted must not win because
// the others are silent: if only such nodes report it, a majority of all contradicted nodes must agree, and at least
// one of them must not be outvoted.
func (c *Client) confirmed(won []report) bool {
	disputed := false
	for _, s := range won {
		switch s.from.vote() {
		case contested:
			disputed = true
		case outvoted:
		default:
			return true
		}
	}
	hosts := map[string]bool{}
	for _, e := range c.endpoints {
		if n := e.vote(); n == contested || n == outvoted {
			hosts[e.host] = true
		}
	}
	return disputed && nodes(won) >= majority(len(hosts))
}

// contest notes which nodes contradicted each other. It applies to all endpoints of such a node.
func (c *Client) contest(at []report) {
	for _, e := range c.endpoints {
		e.mu.Lock()
		if ofNode(at, e) && e.voted != outvoted {
			e.voted = contested
		}
		e.mu.Unlock()
	}
}

// noteVotes notes which endpoints agreed on the head and which returned another block. One that was contradicted and
// does not respond now stays contradicted.
func (c *Client) noteVotes(won, against []report) {
	for _, e := range c.endpoints {
		e.mu.Lock()
		was := e.voted
		switch {
		case from(against, e):
			e.voted = outvoted
		case from(won, e):
			e.voted = agrees
		case ofNode(against, e):
			e.voted = outvoted
		case was == agrees:
			e.voted = noVote
		}
		if e.voted == outvoted && was != outvoted {
			c.log.Warn("endpoint outvoted: most others have another head", zap.String("endpoint", e.name))
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
