package devchain

import (
	"strings"
	"testing"
)

// A call to an anvil that has died says what it wrote last: the connection says but EOF.
func TestAnvilsLastWords(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a chain")
	}
	need(t, anvilBinary)
	a, err := StartAnvil(t.Context(), AnvilConfig{Binary: anvilBinary})
	if err != nil {
		t.Fatal(err)
	}
	mine(t, a, 1)
	if err := a.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err = a.Mine(t.Context(), a.cfg.GenesisTime+100, nil)
	if err == nil || !strings.Contains(err.Error(), "anvil ended") || !strings.Contains(err.Error(), "evm_mine") {
		t.Errorf("the error does not say what anvil did last: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
