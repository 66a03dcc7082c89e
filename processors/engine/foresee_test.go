package engine

import (
	"testing"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// What later barriers call final is known before the first of the records is applied, but for blocks that one of
// them reverts.
func TestForesee(t *testing.T) {
	end := func(number, finalized uint64) topics.Raw {
		return &topics.BlockEnd{Block: ref(number, 0), Finalized: finalized, Head: 100}
	}
	for name, tc := range map[string]struct {
		keepUntil int64 // the records begin at offset 10
		input     []topics.Raw
		want      uint64
	}{
		"nothing":                        {0, nil, 2},
		"no barrier":                     {0, []topics.Raw{logOf(ref(5, 0))}, 2},
		"a lower floor":                  {0, []topics.Raw{end(5, 1)}, 2},
		"the highest":                    {0, []topics.Raw{end(5, 2), logOf(ref(6, 0)), end(6, 9), end(7, 8)}, 9},
		"a revert above":                 {0, []topics.Raw{end(5, 4), &topics.BlockRevert{Block: ref(5, 0)}, end(5, 4)}, 4},
		"a revert of what becomes final": {0, []topics.Raw{end(5, 2), &topics.BlockRevert{Block: ref(5, 0)}, end(9, 9)}, 4},
		"a revert of what was final":     {0, []topics.Raw{end(5, 9), &topics.BlockRevert{Block: ref(1, 0)}}, 2},
		"a revert of block 0":            {0, []topics.Raw{end(0, 0), &topics.BlockRevert{Block: ref(0, 0)}, end(5, 5)}, 2},
		"a rebuild that must keep undo":  {11, []topics.Raw{end(5, 9)}, 2},
		"a rebuild that has passed":      {10, []topics.Raw{end(5, 9)}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			a := applier{now: unopened().Progress}
			a.now.Floor, a.now.Rebuild.KeepUntil = 2, tc.keepUntil
			var records []*kafka.Record
			for i, raw := range tc.input {
				rec := &kafka.Record{Offset: 10 + int64(i), Value: topics.AppendRaw(nil, raw)}
				if l, ok := raw.(*topics.Log); ok {
					rec.Key = l.Address[:]
				}
				records = append(records, rec)
			}
			a.foresee(records, 0)
			if a.now.Floor != tc.want {
				t.Errorf("floor %d, not %d", a.now.Floor, tc.want)
			}
		})
	}
}

// A topic whose first records are read together begins at offset 0, where nothing has to be kept.
func TestForeseeFromTheFirstRecord(t *testing.T) {
	a := applier{now: unopened().Progress}
	a.foresee([]*kafka.Record{{Offset: 0, Value: topics.AppendRaw(nil, &topics.BlockEnd{Block: ref(5, 0), Finalized: 4, Head: 100})}}, 0)
	if a.now.Floor != 4 {
		t.Errorf("floor %d, not 4", a.now.Floor)
	}
}
