package simulation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// history is what entities were as one node told it, which was given one block at a time: by entity and key, the values by the
// blocks that their rows name. From one block to the next of a branch, a value is what it was.
type history map[string]map[common.Hash]rowDigest

type rowDigest [8]byte

// digestOf is what is kept of a row, without its block. A burn's has a sum over its partition, which is another where there are
// more of them.
func digestOf(t topics.Topic, r *kafka.Record, row []byte) rowDigest {
	if t.Entity == topics.EntityBurn {
		said, _ := topics.Text(t.Kind, r.Value)
		all, _ := said.(map[string]any)
		burn, _ := all["value"].(map[string]any)
		row = fmt.Append(nil, burn["caller"], burn["usdg_spent"], burn["tkn_bought"], burn["stkn_burned"], burn["at"], burn["tx"], burn["log_index"])
	}
	sum := sha256.Sum256(row)
	return rowDigest(sum[:len(rowDigest{})])
}

// oneByOne is a recording of the same blocks, in which each step adds one; the first one adds all that there was before.
func (r *recording) oneByOne() *recording {
	one := *r
	one.steps, one.ends = nil, nil
	for i, s := range r.steps {
		if i == 0 {
			one.steps = append(one.steps, s)
			continue
		}
		for above, h := range s.added {
			one.steps = append(one.steps, step{s.from + uint64(above), []common.Hash{h}})
		}
		if slices.Contains(r.ends, i) {
			one.ends = append(one.ends, len(one.steps)-1)
		}
	}
	return &one
}

// remember has a history know the rows of a node's topics.
func (s *system) remember(into history) func(topics.Topic, *kafka.Record) {
	return func(t topics.Topic, r *kafka.Record) {
		if len(r.Value) == 0 {
			return
		}
		row, at, ok := s.blockOf(r.Value)
		if !ok {
			return // which is told by what is committed
		}
		key := t.Entity + " " + string(r.Key)
		if into[key] == nil {
			into[key] = map[common.Hash]rowDigest{}
		}
		if _, newer := into[key][at]; !newer { // they are read from the newest to the oldest
			into[key][at] = digestOf(t, r, row)
		}
	}
}

// rowJudge judges the blocks that rows name: each row is what the entity was as of its block.
type rowJudge struct {
	*run
	lines map[common.Hash][]common.Hash // of a block: itself and all below it
	rows  int
	wrong int
	first string
}

func (r *run) judgesRows() *rowJudge {
	return &rowJudge{run: r, lines: map[common.Hash][]common.Hash{}}
}

// line is a block and all below it, by their numbers.
func (j *rowJudge) line(h common.Hash) []common.Hash {
	if all, is := j.lines[h]; is {
		return all
	}
	b := j.chain.rec.blocks[h]
	if b == nil {
		return nil
	}
	var all []common.Hash
	if n := b.header.Number.Uint64(); n > 0 {
		all = slices.Clip(j.line(b.header.ParentHash))
	}
	all = append(all, h)
	j.lines[h] = all
	return all
}

// add judges a row.
func (j *rowJudge) add(t topics.Topic, r *kafka.Record) {
	if len(r.Value) == 0 {
		return
	}
	row, at, ok := j.blockOf(r.Value)
	b := j.chain.rec.blocks[at]
	first := j.chain.rec.steps[0]
	if !ok || b == nil || b.header.Number.Uint64() < first.from+uint64(len(first.added))-1 {
		return // told by what is committed, made up, or of a block of which one node told nothing
	}
	j.rows++
	line := j.line(at)
	is, value := digestOf(t, r, row), rowDigest{}
	known, aside := uint64(0), uint64(0) // the newest block below that says so, and the newest of another branch with that value
	for of, digest := range j.oracle.history[t.Entity+" "+string(r.Key)] {
		switch n := j.chain.rec.blocks[of].header.Number.Uint64(); {
		case n >= uint64(len(line)):
		case line[n] != of && digest == is:
			aside = max(aside, n)
		case line[n] == of && n >= known:
			known, value = n, digest
		}
	}
	// What a reorg takes back and does again is told once, as of the block that is gone.
	if value == is || aside > known {
		return
	}
	if j.wrong++; j.wrong == 1 {
		j.first = fmt.Sprintf("ent.%s, key %x: its row of block %d %s is not what it has been since block %d (0: there was none)", t.Entity, r.Key, b.header.Number, at, known)
	}
}

// tell says what was found.
func (j *rowJudge) tell() {
	if j.result.rows += j.rows; j.wrong > 0 {
		j.found("row of another block", "%d of %d rows: %s", j.wrong, j.rows, j.first)
	}
}

// blockOf cuts the block off a row, its number, hash and timestamp, both numbers as Avro has them, and says which it is.
func (s *system) blockOf(row []byte) (rest []byte, hash common.Hash, ok bool) {
	for at := len(row) - common.HashLength - 1; at > 0 && at > len(row)-common.HashLength-binary.MaxVarintLen64-1; at-- {
		hash := common.BytesToHash(row[at : at+common.HashLength])
		b := s.chain.rec.blocks[hash]
		if b == nil {
			b = s.forged.block(hash) // what its revert restored says so, as of any block that was reverted
		}
		if b == nil {
			continue
		}
		rest, named := cutVarint(row[:at], b.header.Number.Uint64())
		timed := slices.Equal(row[at+common.HashLength:], binary.AppendVarint(nil, int64(b.header.Time)))
		if named && timed {
			return rest, hash, true
		}
	}
	return row, common.Hash{}, false
}

func cutVarint(row []byte, n uint64) ([]byte, bool) {
	end := binary.AppendVarint(nil, int64(n))
	at := len(row) - len(end)
	if at < 0 || !slices.Equal(row[at:], end) {
		return row, false
	}
	return row[:at], true
}
