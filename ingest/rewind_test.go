package ingest_test

import (
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
)

// TestRewind: an ingester that is told to reverts what the chain took back of what was published as final, at its
// start and while it runs. After it comes one like any other.
func TestRewind(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, devchain.Config{Seed: 3, SafeBlocks: 900, FinalizedBlocks: 1000})
	w.step(t, 300)
	cfg := w.config()
	cfg.Finality, cfg.FinalizedEvery = ingest.FinalityWindow, 10*time.Millisecond
	in := run(t, cfg)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	fork := func(depth uint64) {
		t.Helper()
		if err := w.scenario.Rewind(t.Context(), depth); err != nil {
			t.Fatal(err)
		}
		w.step(t, int(depth)+3)
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}

	fork(200)
	cfg.Rewind = true
	in = run(t, cfg)
	before := check(t, w)
	w.step(t, 150)
	check(t, w)
	fork(180)
	if after := check(t, w); before == 0 || after == before {
		t.Errorf("%d final blocks were reverted at the start, %d later", before, after-before)
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}

	cfg.Rewind = false
	in = run(t, cfg)
	fork(5)
	check(t, w)
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}

// check holds the topic against the chain, and returns how many final blocks were reverted in it.
func check(t *testing.T, w *world) int {
	t.Helper()
	_, deep := checkRewound(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	return deep
}
