package simulation

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// oracle has the answers of a node without faults. All other runs are compared with it.
type oracle struct {
	*entities
	paths   []string                               // of the indexer
	values  []string                               // of the valuation service
	agent   []string                               // of the agent API
	sent    map[common.Hash][]*sent                // what it is asked to prepare, by the head
	answers map[string]map[string]reply            // by the block's hash and the path
	ids     []string                               // of deals
	deals   map[string]*deal                       // each once, by its text and that of its bids: most are those of the block before
	markets map[string]*market                     // by the block's hash
	history history                                // of the rows of entities
	topics  map[int32]map[string]map[string]string // what was committed at the ends, by the number of partitions and the block's hash; see committed
}

// ends are about the steps that runs end at: what the topics hold is compared there.
var ends = []int{110, 135, 160}

// highest returns the first step from each end on that brings the head higher than it was before. After a reorg to a
// lower head, what is final depends on which heads were seen.
func (r *recording) highest(ends []int) (at []int) {
	top := uint64(0)
	for i, s := range r.steps {
		head := s.from + uint64(len(s.added)) - 1
		if n := len(at); n < len(ends) && i >= ends[n] && head > top {
			at = append(at, i)
		}
		top = max(top, head)
	}
	return at
}

func newOracle(rec *recording) (*oracle, error) {
	e := entitiesOf(rec)
	sent, err := sentOf(rec)
	return &oracle{
		entities: e,
		paths:    e.paths(), values: e.values(), agent: e.agentPaths(), sent: sent, answers: map[string]map[string]reply{},
		ids: e.deals, deals: map[string]*deal{}, markets: map[string]*market{}, history: history{},
		topics: map[int32]map[string]map[string]string{},
	}, err
}

// ask has one node of so many partitions follow the chain, and with all asks it all questions as of every block. What it says
// does not depend on their number; what the topics hold does. Who is not asked all is given one block at a time, and tells what
// entities were as of each.
func (o *oracle) ask(ctx context.Context, rec *recording, partitions int32, all bool, story *story) error {
	if !all {
		rec = rec.oneByOne()
	}
	s, err := newSystem(ctx, rec, 0, size{1, partitions}, story)
	if err != nil {
		return err
	}
	s.valuation, s.agent = all, all
	o.topics[partitions] = map[string]map[string]string{}
	for _, host := range []string{"ingester0", "processor0", "serving0"} {
		if err := s.start(ctx, host); err != nil {
			return err
		}
	}
	for more := true; more; more = s.chain.step() {
		if err := s.settle(ctx, "serving0", time.Minute); err != nil {
			return err
		}
		if all {
			values, agent := o.values, o.agent
			if s.chain.played%valuesEvery > 0 {
				values, agent = nil, nil
			}
			at, err := s.answers(ctx, "serving0", o.paths, values)
			if err != nil {
				return err
			}
			for _, q := range o.sent[s.chain.head()] {
				agent = append(slices.Clip(agent), q.path)
			}
			if len(agent) > 0 {
				rec.states.alone(true)
				err = s.agentAnswers(ctx, "serving0", agent, at)
				rec.states.alone(false)
			}
			if err != nil {
				return err
			}
			o.answers[s.chain.head().Hex()] = at
			if err := o.keepMarket(s.chain.head().Hex()); err != nil {
				return fmt.Errorf("market: %w", err)
			}
		}
		if slices.Contains(rec.ends, s.chain.played-1) {
			time.Sleep(10 * time.Second) // what is shown at the tip is committed a moment later
			var remember func(topics.Topic, *kafka.Record)
			if !all && s.chain.played-1 == rec.ends[len(rec.ends)-1] {
				remember = s.remember(o.history)
			}
			if o.topics[partitions][s.chain.head().Hex()], err = s.committed(ctx, remember); err != nil {
				return err
			}
			if all {
				err = s.entitiesLike(ctx, o.answers[s.chain.head().Hex()])
			}
			if err != nil {
				return err
			}
		}
	}
	if len(s.crashes) > 0 {
		return fmt.Errorf("the oracle crashed: %v", s.crashes)
	}
	return s.close()
}

// valuesEvery is after how many steps of the chain the oracle is asked for values again: they are most of what it computes.
const valuesEvery = 3

// answers are a node's to all of these questions as of the head. The valuation service reads a block's state a moment
// after others know the block.
func (s *system) answers(ctx context.Context, host string, paths ...[]string) (map[string]reply, error) {
	at := map[string]reply{}
	for _, path := range slices.Concat(paths...) {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			r, err := s.get(ctx, host, path)
			if err != nil {
				return nil, err
			}
			if r.hash == s.chain.head().Hex() && r.answered() {
				if isValue(path) {
					r.body = digest(r.body)
				}
				at[path] = r
				break
			}
			if time.Now().After(end) {
				return nil, fmt.Errorf("%s: %d as of %s: %.200s", path, r.status, r.number, r.body)
			}
		}
	}
	return at, nil
}

// digest is what is kept of a value: each block has another.
func digest(body string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(body))) }
