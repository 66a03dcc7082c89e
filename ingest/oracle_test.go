package ingest_test

import (
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
)

// TestOraclePaused: of two stocks neither is paused, and the oracle of one is, until it goes on. That one is in the topic as paused
// meanwhile, the other one as not.
func TestOraclePaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	_ = run(t, w.config())
	w.step(t, 2)
	o := newOwner(t, w, 7)
	halted, create := o.create("StockToken", o.address(), "Halted", "HALT")
	o.mine(create)
	other, create := o.create("StockToken", o.address(), "Other", "OTHR")
	o.mine(create, o.set(halted, true, contracts.LaneStock))
	for _, is := range []bool{true, false} {
		o.mine(o.call(halted, "StockToken", "setOraclePaused", is), o.set(halted, true, contracts.LaneStock), o.set(other, true, contracts.LaneStock))
	}
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	said := map[common.Address][]bool{}
	for _, p := range w.probes(t) {
		switch {
		case p.Token != halted && p.Token != other:
		case p.Paused == nil || p.UIMultiplier == nil:
			t.Errorf("token %s: paused %v, multiplier %v", p.Token, p.Paused, p.UIMultiplier)
		default:
			said[p.Token] = append(said[p.Token], *p.Paused)
		}
	}
	if is := said[halted]; !slices.Equal(is, []bool{false, true, false}) {
		t.Errorf("the one whose oracle is paused for a while: %v", is)
	}
	if is := said[other]; !slices.Equal(is, []bool{false, false}) {
		t.Errorf("the other one: %v", is)
	}
}

// TestHaltedOracles: the scenario halts the oracle of a stock for some blocks, which no event tells of. It is in the topic as paused meanwhile.
func TestHaltedOracles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, 160)
	_ = run(t, w.config())
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	halted := false
	for _, p := range w.probes(t) {
		checkProbe(t, w, p)
		halted = halted || p.Paused != nil && *p.Paused && w.tells(t, p, "paused()").IsZero()
	}
	if !halted {
		t.Error("no stock is in the topic as paused whose oracle alone is")
	}
}
