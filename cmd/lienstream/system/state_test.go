package system

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
)

// seed is random, printed, and set again by LIENSTREAM_SEED.
func seed(t *testing.T) uint64 {
	t.Helper()
	if s := os.Getenv("LIENSTREAM_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return rand.Uint64N(1_000_000)
}

// TestStateEqualsChain plays a scenario with reorgs of depth 1 to 64 and compares all that is served with
// all that the contracts say, again and again, on every chain and on every sort of server.
func TestStateEqualsChain(t *testing.T) {
	for _, chain := range chains {
		for _, server := range servers {
			t.Run(chain+"/"+server, func(t *testing.T) {
				w := newWorld(t, chain, server, devchain.ScenarioConfig{
					Seed: seed(t), TxsPerBlock: 8, TimePerBlock: 6 * time.Hour, Reorgs: true, ReorgEvery: 10,
				})
				w.mine(t.Context(), t, 100) // a past, ingested as a backfill
				p, a := w.up(t, t.TempDir())
				stateEqualsChain(t.Context(), t, a, w.judge, time.Minute)
				for range 4 {
					w.mine(t.Context(), t, 50)
					stateEqualsChain(t.Context(), t, a, w.judge, time.Minute)
				}
				p.interrupt(t)
			})
		}
	}
}

// TestWithoutTokenLayer: a deployment without the keys of the token layer is served like any other.
func TestWithoutTokenLayer(t *testing.T) {
	w := newWorldWith(t, "devchain", "embedded", devchain.MarketConfig{NoTokenLayer: true}, devchain.ScenarioConfig{Seed: seed(t), TimePerBlock: 6 * time.Hour})
	w.mine(t.Context(), t, 60)
	_, a := w.up(t, t.TempDir())
	stateEqualsChain(t.Context(), t, a, w.judge, time.Minute)
}
