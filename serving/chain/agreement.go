package chain

import (
	"context"
	"fmt"
	"slices"

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
// had a say a moment ago is silent, or one that was contradicted is alone now.
var errUnconfirmed = fmt.Errorf("%w: an endpoint does not confirm the block of another", ErrUnavailable)

// same reports whether two endpoints say the same of a block. Its hash alone would leave the rest to one of them.
func (b *Block) same(other *Block) bool {
	sameFee := b.BaseFee == other.BaseFee || b.BaseFee != nil && other.BaseFee != nil && *b.BaseFee == *other.BaseFee
	return sameFee && b.Number == other.Number && b.Hash == other.Hash && b.Parent == other.Parent &&
		b.Timestamp == other.Timestamp && b.GasLimit == other.GasLimit
}

// enough is how many of so many nodes make a block the head: two must agree, and of more than two most.
func enough(nodes int) int {
	if nodes < 3 {
		return nodes
	}
	return nodes/2 + 1
}

// settle returns the block that those who have a say agree on: the lowest of their latest ones. Of three nodes or more,
// those that most others contradict are outvoted, and the rest settles without them. A node has one vote, by as many
// endpoints as it may be asked. electorate is how many nodes there are to have a majority of.
func (c *Client) settle(ctx context.Context, voters []sighting, electorate int) (Block, error) {
	need, left := enough(electorate), voters
	var against []sighting
	for {
		at := c.atLowest(ctx, left)
		won, votes := most(at)
		switch {
		case votes < need && len(won) < len(at):
			c.contest(at)
			return Block{}, &DisagreementError{Number: at[0].block.Number, Hashes: hashes(at)}
		case votes < need:
			return Block{}, errUnconfirmed
		}
		for _, s := range at {
			if !from(won, s.from) {
				against = append(against, s)
			}
		}
		left = slices.DeleteFunc(slices.Clone(left), func(s sighting) bool { return !from(won, s.from) })
		if lowest(left) == won[0].block.Number {
			if !c.confirmed(won) {
				return Block{}, errUnconfirmed
			}
			c.stand(won, against)
			return won[0].block, nil
		}
	}
}

// atLowest asks those that are ahead of the lowest for their block at that height.
func (c *Client) atLowest(ctx context.Context, latest []sighting) []sighting {
	number := lowest(latest)
	var at []sighting
	var further []*endpoint
	for _, s := range latest {
		if s.block.Number == number {
			at = append(at, s)
		} else {
			further = append(further, s.from)
		}
	}
	said, _ := c.tell(ctx, further, hexutil.EncodeUint64(number)) // who does not say it does not confirm it
	for _, s := range said {
		if s.block.Number == number {
			at = append(at, s)
		}
	}
	return at
}

// most is what most nodes say, and how many. A node that says two things has no vote.
func most(at []sighting) (won []sighting, votes int) {
	for i := range at {
		same := slices.DeleteFunc(slices.Clone(at), func(s sighting) bool { return !s.block.same(&at[i].block) })
		n := nodes(slices.DeleteFunc(slices.Clone(same), func(s sighting) bool {
			return slices.ContainsFunc(at, func(o sighting) bool { return o.from.host == s.from.host && !o.block.same(&s.block) })
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
func (c *Client) confirmed(won []sighting) bool {
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
	return disputed && nodes(won) >= enough(len(hosts))
}

// contest notes which nodes contradicted each other, by whichever of their endpoints.
func (c *Client) contest(at []sighting) {
	for _, e := range c.endpoints {
		e.mu.Lock()
		if ofNode(at, e) && e.stands != outvoted {
			e.stands = contested
		}
		e.mu.Unlock()
	}
}

// stand notes who agreed on the head, and who said another block. Who was contradicted and says nothing now still is.
func (c *Client) stand(won, against []sighting) {
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

func nodes(said []sighting) int {
	hosts := map[string]bool{}
	for _, s := range said {
		hosts[s.from.host] = true
	}
	return len(hosts)
}

func lowest(said []sighting) uint64 {
	number := said[0].block.Number
	for _, s := range said {
		number = min(number, s.block.Number)
	}
	return number
}

func hashes(said []sighting) []common.Hash {
	var all []common.Hash
	for _, s := range said {
		if !slices.Contains(all, s.block.Hash) {
			all = append(all, s.block.Hash)
		}
	}
	return all
}

func from(said []sighting, e *endpoint) bool {
	return slices.ContainsFunc(said, func(s sighting) bool { return s.from == e })
}

func ofNode(said []sighting, e *endpoint) bool {
	return slices.ContainsFunc(said, func(s sighting) bool { return s.from.host == e.host })
}
