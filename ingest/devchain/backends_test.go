package devchain

import (
	"os"
	"testing"
)

const (
	nodeModules = "../../contracts/node_modules"
	anvilBinary = nodeModules + "/@foundry-rs/anvil-linux-amd64/bin/anvil"
)

// need skips a test that lacks what `make deps` installs; under CI that is a failure.
func need(t *testing.T, path string) {
	t.Helper()
	_, err := os.Stat(path)
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%v (run `make deps`)", err)
	default:
		t.Skipf("%v (run `make deps`)", err)
	}
}

// onEach runs a test on both nodes.
func onEach(t *testing.T, test func(t *testing.T, b Backend)) {
	t.Run("chain", func(t *testing.T) {
		test(t, newChain(t, Config{}))
	})
	t.Run("anvil", func(t *testing.T) {
		need(t, anvilBinary)
		a, err := StartAnvil(t.Context(), AnvilConfig{Binary: anvilBinary})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, a)
	})
}

func deploy(t *testing.T, b Backend, cfg MarketConfig) *Market {
	t.Helper()
	need(t, nodeModules)
	cfg.NodeModules = nodeModules
	m, err := Deploy(t.Context(), b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newScenario(t *testing.T, m *Market, cfg ScenarioConfig) *Scenario {
	t.Helper()
	s, err := NewScenario(m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func steps(t *testing.T, s *Scenario, n int) *Block {
	t.Helper()
	var block *Block
	for range n {
		var err error
		if block, err = s.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return block
}
