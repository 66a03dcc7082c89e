package engine

import (
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// What a partition says of finality before and after each revert is known for all, from whatever place a task began at.
func TestScout(t *testing.T) {
	e := newEnv(t, 1)
	end := func(number, finalized uint64) topics.Raw {
		return &topics.BlockEnd{Block: ref(number, 0), Finalized: finalized, Head: 100}
	}
	revert := &topics.BlockRevert{Block: ref(5, 0)}
	e.write(end(4, 1), end(5, 2), revert, end(5, 3), end(6, 4), revert, revert, end(9, 7))
	first := map[uint64]uint64{}
	for reverts, final := range []uint64{2, 4, 0, 7} {
		first[uint64(reverts)] = final
	}
	for name, tc := range map[string]struct {
		at   rawPoint
		want map[uint64]uint64
	}{
		"from the start":         {rawPoint{input: 0}, first},
		"after the first revert": {rawPoint{input: 3, era: era{reverts: 1}}, map[uint64]uint64{0: 0, 1: 4, 2: 0, 3: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := New(e.config("a", vfs.NewMem()), toy{})
			check(t, err)
			n.far.Store(1)
			ended := make(chan error, 1)
			go func() { ended <- n.readAhead(t.Context(), tc.at) }()
			polltest.Until(t, "it has read all", func() bool { return n.scout.foresees(rawPoint{era: era{reverts: 3}}) == 7 })
			n.far.Store(0)
			check(t, <-ended)
			for reverts, want := range tc.want {
				if got := n.scout.foresees(rawPoint{era: era{reverts: reverts}}); got != want {
					t.Errorf("after %d reverts block %d is final, want %d", reverts, got, want)
				}
			}
			if got := n.scout.foresees(rawPoint{era: era{topic: kafka.TopicID{1}}}); got != 0 {
				t.Errorf("block %d is final in another topic", got)
			}
		})
	}
}

func TestScoutForgets(t *testing.T) {
	s := newScout()
	for reverts := range uint64(maxEras + 1) {
		s.saw(era{reverts: reverts}, 5)
	}
	if newest := s.foresees(rawPoint{era: era{reverts: maxEras}}); newest != 5 || len(s.final) > maxEras {
		t.Errorf("of %d eras the newest has %d as final", len(s.final), newest)
	}
}

// A block that is known to be final before it is applied has no undo record, though nothing that is fetched with it says so.
func TestScoutSparesUndo(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 3)
	c.ahead = 1 << 20
	for range 60 {
		c.final = uint64(max(len(c.blocks)-100, 0))
		c.add(10)
	}
	cfg := e.config("a", vfs.NewMem())
	cfg.FetchBytes, cfg.CommitBytes = 2<<10, 16<<10
	n, err := New(cfg, toy{})
	check(t, err)
	history, err := kafka.NewHistory(cfg.Kafka)
	check(t, err)
	defer history.Close()
	id, err := history.TopicID(t.Context(), n.input, 0)
	check(t, err)
	n.scout.saw(era{topic: id}, c.final)
	r := e.run(n)
	e.caughtUp(c, r)
	e.invariantState(c, r)
	e.invariantTopics(c)
	const (
		undo  = 3  // the first byte of the keys of undo records, before the block's number
		first = 10 // blocks are there before the task knows how far behind it is
	)
	var last uint64
	for _, rec := range e.readAll(n.changelog, 0) {
		if rec.Key[0] == undo {
			last = binary.BigEndian.Uint64(rec.Key[1:])
			if last > first && last <= c.final {
				t.Fatalf("block %d has an undo record, though all up to %d are final", last, c.final)
			}
		}
	}
	if last == 0 {
		t.Fatal("no block has an undo record, not even those that may be reverted")
	}
}
