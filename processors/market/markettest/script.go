// Package markettest runs the scripts of the families of the market: lines that are logs, and what they change.
// Nothing that runs in production imports it.
package markettest

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/topics"
)

// Run runs the scripts in the folder testdata/scripts. They are read as:
//
//	block     a line is a log: [emitter.]Event, then its parameters, by their names in Solidity, those that
//	          are not zero. "probe" is a Probe, "ledger" a Ledger, "raw" a log as bytes, "at" sets the block's time. Printed: the
//	          rows that the block changes, the events that it publishes, and what it counts as unknown or
//	          broken. Every block is first applied and reverted, which must leave nothing.
//	lists     the IDs in every index of deals.
//	stats     the sums, counts and histograms of deals.
//	days      what collateral, pools and positions were before the first change of each day.
//	holders   the holders of each token, the greatest first.
//	pools     the ticks, the allowed pools, the owners' positions and stakes, the seeds and the hours' prices.
func Run(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		h := newHarness(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "block":
				return h.block(t, d.Input)
			case "lists":
				return h.lists(t)
			case "stats":
				return h.stats(t)
			case "days":
				return h.days(t)
			case "holders":
				return h.holders(t)
			case "pools":
				return h.pools(t)
			default:
				t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
				return ""
			}
		})
	})
}

type harness struct {
	app      *market.App
	store    *state.Store
	registry *prometheus.Registry
	number   uint64
	time     uint64
}

// Deployment is that of the scripts.
var Deployment = contracts.Deployment{
	ChainID: 1, DealVault: common.HexToAddress("0xdea1"), AssetRegistry: common.HexToAddress("0xa55e7"),
	PoolManager: common.HexToAddress("0x9001"), PositionManager: common.HexToAddress("0x9051"),
	EpochController: common.HexToAddress("0xe70c"), RewardDistributor: common.HexToAddress("0xd157"),
	LiquidityStaking: common.HexToAddress("0x57ac"), Burner: common.HexToAddress("0xb042"),
}

// emitters are the contracts that a script may name, the vault first: it is the default.
var emitters = []struct {
	name, abi string
	address   common.Address
}{
	{"vault", "DealVault", Deployment.DealVault},
	{"registry", "AssetRegistry", Deployment.AssetRegistry},
	{"epochs", "EpochController", Deployment.EpochController},
	{"rewards", "RewardDistributor", Deployment.RewardDistributor},
	{"staking", "LiquidityStaking", Deployment.LiquidityStaking},
	{"burner", "Burner", Deployment.Burner},
	{"manager", "PoolManager", Deployment.PoolManager},
	{"positions", "PositionManager", Deployment.PositionManager},
	{"aapl", "StockToken", common.HexToAddress("0x5707c")},
	{"meme", "TKN", common.HexToAddress("0x3e3e")},
	{"stranger", "StockToken", common.HexToAddress("0xbad")},
}

func newHarness(t *testing.T) *harness {
	h := &harness{registry: prometheus.NewRegistry(), time: 1_000}
	h.app = market.New(contracts.NewDecoder(Deployment), zap.NewNop(), h.registry)
	var err error
	h.store, err = state.Open(state.Options{Dir: "state", Tables: h.app.Tables(), FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *harness) block(t *testing.T, input string) string {
	h.number++
	h.time++
	lines := strings.Split(strings.TrimSpace(input), "\n")
	if at, ok := strings.CutPrefix(lines[0], "at "); ok {
		var err error
		if h.time, err = strconv.ParseUint(at, 10, 64); err != nil {
			t.Fatal(err)
		}
		lines = lines[1:]
	}
	at := topics.BlockRef{Number: h.number, Hash: common.Hash{byte(h.number)}, Timestamp: h.time}
	h.applyAndRevert(t, at, lines)

	o := h.store.NewOverlay()
	o.Begin(at, true)
	before := h.gather(t)
	h.apply(t, h.app, o, at, lines)
	var out strings.Builder
	if err := o.Rows(func(r state.Row) error { return printRow(&out, r) }); err != nil {
		t.Fatal(err)
	}
	o.Events(func(e state.Event, _ bool) { printEvent(&out, e) })
	if err := h.store.Commit(o, []byte("meta")); err != nil {
		t.Fatal(err)
	}
	h.printCounts(t, &out, before)
	return out.String()
}

func (h *harness) apply(t *testing.T, app *market.App, o *state.Overlay, at topics.BlockRef, lines []string) {
	for i, line := range lines {
		rec := parse(t, line)
		switch r := rec.(type) {
		case *topics.Log:
			r.Block, r.LogIndex, r.TxHash = at, uint32(i), common.BigToHash(big.NewInt(int64(h.number)))
		case *topics.Probe:
			r.Block = at
		case *topics.Ledger:
			r.Block = at
		}
		if err := app.Apply(o, rec); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// applyAndRevert checks that a block that is taken back leaves every row as it was.
func (h *harness) applyAndRevert(t *testing.T, at topics.BlockRef, lines []string) {
	o := h.store.NewOverlay()
	o.Begin(at, true)
	h.apply(t, market.New(contracts.NewDecoder(Deployment), zap.NewNop(), nil), o, at, lines)
	if err := o.Revert(at, false); err != nil {
		t.Fatal(err)
	}
	if err := o.Rows(func(r state.Row) error {
		if !r.Same {
			return fmt.Errorf("%s %x is not what it was", r.Table.Name, r.Key)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
