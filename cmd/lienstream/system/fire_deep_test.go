package system

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/devchain"
)

// TestDeepReorg: a reorg within the window is undone. One of final blocks has to be confirmed by an operator: the
// ingester ends and names the command; then the tasks stop and name theirs. With these commands the state becomes the
// chain's.
func TestDeepReorg(t *testing.T) {
	w := newWorld(t, "anvil", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 4, TimePerBlock: 6 * time.Hour})
	w.onKafka(t)
	w.onRedis(t)
	w.mine(t.Context(), t, 260)
	f := newFleet(t, w)
	f.join(t, "ingest", "ingest")
	f.processors(t, "a")
	f.serving(t)
	f.whole(t)
	topicsEqualChain(t, w)

	t.Run("within the window", func(t *testing.T) {
		w.fork(t, 120) // of 128 blocks that are never final
		f.whole(t)
		topicsEqualChain(t, w)
		if n := f.nodes["a"].count(t, "lienstream_processors_reverts_total"); n < partitions {
			t.Errorf("%v blocks were taken back, in all partitions together", n)
		}
		f.unharmed(t, "ingest", "a", "serving")
	})

	t.Run("beyond it", func(t *testing.T) {
		ingest, a := f.nodes["ingest"], f.nodes["a"]
		w.fork(t, 200) // anvil calls final what is 144 blocks old
		select {
		case <-ingest.done:
		case <-time.After(time.Minute):
			t.Fatal("the ingester goes on, against what it published as final")
		}
		if ingest.err == nil {
			t.Error("the ingester ended as if all were well")
		}
		f.unharmed(t, "a", "serving")
		cures := regexp.MustCompile("`lienstream ([^`]+)`").FindAllStringSubmatch(ingest.output(), -1)
		if len(cures) < 2 || !ingest.says("the chain contradicts a finalized block") {
			t.Fatalf("the ingester does not tell what happened and what to do:\n%s", tail(ingest.output(), 1000))
		}
		cures = cures[len(cures)-2:] // it may have said so before, while only one of the chain's endpoints had called the block final
		f.cure(t, "ingest", cures[0][1])
		a.stops(t, partitions)
		if !a.says("task stopped") || !a.says("`lienstream "+cures[1][1]+"`") {
			t.Error("the tasks' log does not tell what happened and what to do")
		}
		f.tells(t, "partition %d is stopped on a: ", "`lienstream "+cures[1][1]+"`", 0, partitions-1)
		if n := a.count(t, "lienstream_processors_restarts_total"); n > 0 {
			t.Errorf("tasks began anew %v times", n)
		}
		a.interrupt(t)
		f.cure(t, "a", cures[1][1])
		f.whole(t)
		w.topicsEqual(t, false)

		// Later blocks are applied as usual.
		f.nodes["ingest"].interrupt(t)
		f.restart("ingest")
		f.restart("a")
		w.fork(t, 20)
		f.whole(t)
		w.topicsEqual(t, false)
	})
	for _, name := range []string{"serving", "a", "ingest"} {
		f.nodes[name].interrupt(t)
	}
}

// cure runs the command that a text names.
func (f *fleet) cure(t *testing.T, name, command string) {
	t.Helper()
	role, flags, _ := strings.Cut(command, " ")
	if role != f.nodes[name].role {
		t.Fatalf("%q is not for %s", command, name)
	}
	f.restart(name, strings.Fields(flags)...)
}

// fork drops the last blocks, final ones too, and mines as many others and one more: half of them with the dropped
// transactions, the rest empty. The scenario does not know, and cannot go on after that.
func (w *world) fork(t *testing.T, depth uint64) {
	t.Helper()
	ctx := t.Context()
	head, err := w.judge.eth.BlockNumber(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dropped := make([]*types.Block, depth)
	for i := range dropped {
		if dropped[i], err = w.judge.eth.BlockByNumber(ctx, new(big.Int).SetUint64(head-depth+1+uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.backend.Rewind(ctx, depth); err != nil {
		t.Fatal(err)
	}
	var last uint64
	for i, b := range dropped {
		var txs []*types.Transaction
		if i < len(dropped)/2 {
			txs = b.Transactions()
		}
		last = b.Time() + 1
		if _, err := w.backend.Mine(ctx, last, txs); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.backend.Mine(ctx, last+1, nil); err != nil {
		t.Fatal(err)
	}
}
