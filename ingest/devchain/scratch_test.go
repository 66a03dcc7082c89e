package devchain

import (
	"os"
	"testing"
)

// A chain on disk is the same chain, and leaves nothing behind.
func TestScratch(t *testing.T) {
	scratch := t.TempDir()
	run := func(cfg Config) string {
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := newScenario(t, deploy(t, c, MarketConfig{}), ScenarioConfig{Reorgs: true, ReorgEvery: 5})
		head := steps(t, s, 20)
		if entries, err := os.ReadDir(scratch); err != nil || (len(entries) == 1) != (cfg.Scratch != "") {
			t.Errorf("with scratch %q: %d entries there: %v", cfg.Scratch, len(entries), err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return head.Hash.Hex()
	}
	memory := run(Config{})
	if disk := run(Config{Scratch: scratch}); disk != memory {
		t.Errorf("head %s on disk, %s in memory", disk, memory)
	}
	if entries, err := os.ReadDir(scratch); err != nil || len(entries) != 0 {
		t.Errorf("%d entries left behind: %v", len(entries), err)
	}
}
