package market

import (
	"bytes"
	"fmt"
	"maps"
	"math/big"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/assets"
	"github.com/lienstream/lienstream/processors/market/balances"
	"github.com/lienstream/lienstream/processors/market/burns"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/drips"
	"github.com/lienstream/lienstream/processors/market/epochs"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/topics"
)

var _ engine.App = (*App)(nil)

// The scripts in testdata are read as:
//
//	block     a line is a log: [emitter.]Event, then its parameters, by their names in Solidity, those that
//	          are not zero. "probe" is a Probe, "raw" a log as bytes, "at" sets the block's time. Printed: the
//	          rows that the block changes, the events that it publishes, and what it counts as unknown or
//	          broken. Every block is first applied and reverted, which must leave nothing.
//	lists     the IDs in every index of deals.
//	stats     the sums, counts and histograms of deals.
//	pools     the ticks, the allowed pools, the owners' positions and stakes, the seeds and the hours' prices.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		h := newHarness(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "block":
				return h.block(t, d.Input)
			case "lists":
				return h.lists(t)
			case "stats":
				return h.stats(t)
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
	app      *App
	store    *state.Store
	registry *prometheus.Registry
	number   uint64
	time     uint64
}

var deployment = contracts.Deployment{
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
	{"vault", "DealVault", deployment.DealVault},
	{"registry", "AssetRegistry", deployment.AssetRegistry},
	{"epochs", "EpochController", deployment.EpochController},
	{"rewards", "RewardDistributor", deployment.RewardDistributor},
	{"staking", "LiquidityStaking", deployment.LiquidityStaking},
	{"burner", "Burner", deployment.Burner},
	{"manager", "PoolManager", deployment.PoolManager},
	{"positions", "PositionManager", deployment.PositionManager},
	{"aapl", "StockToken", common.HexToAddress("0x5707c")},
	{"stranger", "StockToken", common.HexToAddress("0xbad")},
}

func newHarness(t *testing.T) *harness {
	h := &harness{registry: prometheus.NewRegistry(), time: 1_000}
	h.app = New(contracts.NewDecoder(deployment), h.registry, zap.NewNop())
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

func (h *harness) apply(t *testing.T, app *App, o *state.Overlay, at topics.BlockRef, lines []string) {
	for i, line := range lines {
		rec := parse(t, line)
		switch r := rec.(type) {
		case *topics.Log:
			r.Block, r.LogIndex, r.TxHash = at, uint32(i), common.BigToHash(big.NewInt(int64(h.number)))
		case *topics.Probe:
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
	h.apply(t, New(contracts.NewDecoder(deployment), nil, zap.NewNop()), o, at, lines)
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

func (h *harness) lists(t *testing.T) string {
	snap := h.store.Snapshot()
	defer snap.Release()
	view := snap.View(topics.BlockRef{})
	defer view.Close()
	var out strings.Builder
	listAs := func(name string, index byte, prefix []byte, text func([]byte) string) {
		fmt.Fprintf(&out, "%s:", name)
		err := view.ScanIndex(index, prefix, nil, func(entry, _ []byte) bool {
			fmt.Fprintf(&out, " %s", text(entry))
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		out.WriteByte('\n')
	}
	list := func(name string, index byte, prefix []byte) {
		listAs(name, index, prefix, func(entry []byte) string { return deals.ID(entry).Dec() })
	}
	for sort, name := range []string{"newest", "expiry", "cap", "cost"} {
		list(name, deals.IndexListing+byte(sort), nil)
	}
	for s, name := range []string{"listed", "funded", "reclaimed", "claimed", "cancelled"} {
		list(name, deals.IndexState, deals.StatePrefix(contracts.DealState(s)))
	}
	for _, wallet := range []string{"0xb0", "0x1e"} {
		list("wallet "+wallet, deals.IndexWallet, deals.WalletPrefix(common.HexToAddress(wallet)))
	}
	for _, lender := range []string{"0xb0", "0x1e"} {
		bids := func(entry []byte) string {
			return fmt.Sprintf("%s/%s", deals.ID(entry).Dec(), deals.ID(entry[20:52]).Dec())
		}
		listAs("bids of "+lender, deals.IndexLenderBid, deals.LenderPrefix(common.HexToAddress(lender)), bids)
	}
	list("funded on 0x5707c", deals.IndexFundedAsset, deals.AssetPrefix(common.HexToAddress("0x5707c")))
	list("open positions", deals.IndexOpenPosition, nil)
	out.WriteString("open bids:" + openBids(t, view) + "\n")
	return out.String()
}

// openBids are the bids that are summed up, of deals from the newest on.
func openBids(t *testing.T, v state.View) string {
	t.Helper()
	type terms struct {
		deal string
		hash common.Hash
	}
	var order []terms
	err := v.Scan(deals.Bids, nil, nil, func(key, row []byte) bool {
		var b topics.Bid
		decoded(t, b, b.UnmarshalBinary(row))
		if at := (terms{string(key[:32]), b.TermsHash}); !slices.Contains(order, at) {
			order = append(order, at)
		}
		return true
	})
	var out string
	for _, at := range order {
		ids, err := deals.OpenBids(v, []byte(at.deal), at.hash)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(ids, func(a, b uint256.Int) int { return a.Cmp(&b) })
		for _, id := range ids {
			out += fmt.Sprintf(" %s/%s", deals.ID([]byte(at.deal)).Dec(), id.Dec())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// parse makes the record that a line of a script means.
func parse(t *testing.T, line string) topics.Raw {
	fields := strings.Fields(line)
	values := map[string]string{}
	for _, f := range fields[1:] {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			t.Fatalf("%s: %q is no name=value", line, f)
		}
		values[name] = value
	}
	switch fields[0] {
	case "probe":
		return parseProbe(values)
	case "raw":
		return &topics.Log{
			Address: common.HexToAddress(values["address"]), Topics: []common.Hash{crypto.Keccak256Hash([]byte(values["signature"]))},
			Data: common.FromHex(values["data"]),
		}
	}
	emitter, name, ok := strings.Cut(fields[0], ".")
	if !ok {
		emitter, name = emitters[0].name, fields[0]
	}
	for _, e := range emitters {
		if e.name != emitter {
			continue
		}
		contract := abiOf(e.abi)
		event, ok := contract.Events[name]
		if !ok {
			t.Fatalf("%s: %s has no event %q", line, e.abi, name)
		}
		log := &topics.Log{Address: e.address, Topics: []common.Hash{event.ID}}
		var data []any
		for _, in := range event.Inputs {
			value := parseValue(t, in.Type, values[in.Name])
			delete(values, in.Name)
			if !in.Indexed {
				data = append(data, value)
				continue
			}
			packed, err := abi.Arguments{{Type: in.Type}}.Pack(value)
			if err != nil {
				t.Fatal(err)
			}
			log.Topics = append(log.Topics, common.Hash(packed))
		}
		if len(values) > 0 {
			t.Fatalf("%s: no such parameters: %v", line, values)
		}
		var err error
		if log.Data, err = event.Inputs.NonIndexed().Pack(data...); err != nil {
			t.Fatal(err)
		}
		return log
	}
	t.Fatalf("%s: no emitter %q", line, emitter)
	return nil
}

func parseValue(t *testing.T, typ abi.Type, text string) any {
	switch typ.T {
	case abi.BoolTy:
		return text == "true"
	case abi.StringTy:
		return text
	}
	number := new(big.Int)
	if text != "" {
		if _, ok := number.SetString(text, 0); !ok {
			t.Fatalf("%q is no number", text)
		}
	}
	switch typ.T {
	case abi.AddressTy:
		return common.BigToAddress(number)
	case abi.FixedBytesTy:
		return common.BigToHash(number)
	default:
		v := reflect.New(typ.GetType()).Elem()
		if v.CanUint() {
			v.SetUint(number.Uint64())
			return v.Interface()
		}
		if v.CanInt() {
			v.SetInt(number.Int64())
			return v.Interface()
		}
		return number
	}
}

func parseProbe(values map[string]string) *topics.Probe {
	p := &topics.Probe{Token: common.HexToAddress(values["token"])}
	number := func(name string) *uint256.Int {
		if values[name] == "" {
			return nil
		}
		return uint256.MustFromDecimal(values[name])
	}
	p.UIMultiplier, p.NewUIMultiplier = number("uiMultiplier"), number("newUIMultiplier")
	if n := number("effectiveAt"); n != nil {
		at := n.Uint64()
		p.EffectiveAt = &at
	}
	if values["paused"] != "" {
		paused := values["paused"] == "true"
		p.Paused = &paused
	}
	return p
}

func printRow(out *strings.Builder, r state.Row) error {
	if r.Table.Entity == nil {
		return nil // a share of a sum: see "stats" and "pools"
	}
	key := string(r.Table.Entity.Key(r.Key))
	if r.Value == nil {
		fmt.Fprintf(out, "%s %s: gone\n", r.Table.Entity.Name, short(key))
		return nil
	}
	if r.Same {
		return nil
	}
	row := map[*state.Table]interface{ UnmarshalBinary([]byte) error }{
		deals.Deals: &topics.Deal{}, deals.Bids: &topics.Bid{}, deals.Rewards: &topics.Reward{},
		balances.Balances: &topics.Balance{}, assets.Assets: &topics.Asset{},
		drips.Drips: &topics.Drip{}, epochs.Epochs: &topics.Epoch{}, burns.Burns: &topics.Burn{}, prices.Seconds: &topics.Observation{},
		liquidity.Pools: &topics.Pool{}, liquidity.Positions: &topics.Position{}, liquidity.PositionLiquidities: &topics.PositionLiquidity{},
		liquidity.Stakings: &topics.Staking{}, liquidity.Stakes: &topics.Stake{},
	}[r.Table]
	if err := row.UnmarshalBinary(r.Value); err != nil {
		return err
	}
	if _, err := r.Table.Entity.Encode(nil, r.Value, topics.BlockRef{}); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s:%s\n", r.Table.Entity.Name, short(key), printFields(reflect.ValueOf(row).Elem()))
	return nil
}

// printFields prints what is not zero, and the states whatever they are.
func printFields(v reflect.Value) string {
	var b strings.Builder
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() && f.Kind() != reflect.Uint8 || v.Type().Field(i).Name == "ID" {
			continue
		}
		fmt.Fprintf(&b, " %s=%s", v.Type().Field(i).Name, printValue(f))
	}
	return b.String()
}

func printValue(f reflect.Value) string {
	if f.Kind() == reflect.Pointer {
		f = f.Elem()
	}
	switch v := f.Interface().(type) {
	case topics.Funding, topics.EpochRates, topics.PoolLimits:
		return "{" + strings.TrimSpace(printFields(f)) + "}"
	case uint256.Int:
		return v.Dec()
	case common.Address:
		return short(v.Hex())
	case common.Hash:
		return short(v.Hex())
	case contracts.DealState:
		return [...]string{"LISTED", "FUNDED", "RECLAIMED", "CLAIMED", "CANCELLED"}[v]
	case contracts.BidState:
		return [...]string{"OPEN", "WITHDRAWN", "ACCEPTED"}[v]
	case contracts.BalanceKind:
		return [...]string{"USDG", "ERC20", "NFT"}[v]
	case contracts.DripSource:
		return [...]string{"DEAL", "LP"}[v]
	case contracts.Lane:
		return [...]string{"STOCK", "ETH", "MEME", "POSITION"}[v]
	default:
		return fmt.Sprint(v)
	}
}

// short drops the leading zeros of the hex numbers in a text.
func short(text string) string {
	parts := strings.Split(text, ":")
	for i, p := range parts {
		if rest, ok := strings.CutPrefix(p, "0x"); ok {
			parts[i] = "0x" + strings.ToLower(strings.TrimLeft(rest, "0"))
		}
	}
	return strings.Join(parts, ":")
}

func printEvent(out *strings.Builder, e state.Event) {
	_, index, _ := strings.Cut(string(e.Key), ":")
	name := "?"
	for _, known := range eventNames() {
		// The name stands in the value as Avro has it: behind its length, doubled for the sign.
		if bytes.Contains(e.Value, append([]byte{byte(2 * len(known))}, known...)) {
			name = known
		}
	}
	fmt.Fprintf(out, "evt.%s %s %s\n", e.Family, index, name)
}

func eventNames() []string {
	names := []string{"TokenPaused", "TokenUnpaused"} // Paused(address) is the name of many
	for _, emitter := range emitters {
		contract := abiOf(emitter.abi)
		names = slices.AppendSeq(names, maps.Keys(contract.Events))
	}
	return names
}

// printCounts prints what the metrics have counted since.
func (h *harness) printCounts(t *testing.T, out *strings.Builder, before map[string]float64) {
	now := h.gather(t)
	for _, line := range slices.Sorted(maps.Keys(now)) {
		if n := now[line] - before[line]; n > 0 {
			fmt.Fprintf(out, "%s +%v\n", line, n)
		}
	}
}

func (h *harness) gather(t *testing.T) map[string]float64 {
	families, err := h.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "lienstream_processors_")
		if !ok || name == "events_total" || name == "probes_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			line := strings.TrimSuffix(name, "_total")
			for _, l := range m.GetLabel() {
				line += " " + strconv.Quote(l.GetValue())
			}
			counts[line] = m.GetCounter().GetValue()
		}
	}
	return counts
}

// Numbers of tables are in every key on disk: the page of them is what the families say.
// LIENSTREAM_REWRITE=1 writes it.
func TestPageOfTables(t *testing.T) {
	const page = "../../docs/tables.md"
	var lines []string
	seen := map[byte]string{}
	for _, f := range Families(deployment).Families() {
		for _, table := range f.Tables {
			if other, ok := seen[table.ID]; ok {
				t.Errorf("%s and %s are both table %d", table.Name, other, table.ID)
			}
			seen[table.ID] = table.Name
			topic := "none"
			if table.Entity != nil {
				topic = "`ent." + table.Entity.Name + "`"
			}
			lines = append(lines, fmt.Sprintf("| %3d | %s | %s | %s |\n", table.ID, table.Name, f.Name, topic))
		}
	}
	slices.Sort(lines)
	now := "# Tables of the market\n\nA table's number is in every key on disk and in the changelog: take a new one, never one that was used.\n" +
		"A test writes this page from the families.\n\n| number | table | family | published to |\n|---|---|---|---|\n" + strings.Join(lines, "")
	if os.Getenv("LIENSTREAM_REWRITE") != "" {
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), now); diff != "" {
		t.Errorf("%s is not what the families say (-page +families):\n%s", page, diff)
	}
}

// An event that changes rows is published: who follows the events comes to the same rows.
func TestWhatFamiliesApplyIsPublished(t *testing.T) {
	for _, f := range Families(deployment).Families() {
		for _, event := range f.Events {
			if topics.FamilyOf(event) == "" {
				t.Errorf("%s applies %s, which no evt topic has", f.Name, event.Name())
			}
		}
	}
}

func TestTheEnginesRecordsAreNoneOfTheApplications(t *testing.T) {
	app := New(contracts.NewDecoder(deployment), nil, zap.NewNop())
	for _, rec := range []topics.Raw{&topics.BlockEnd{}, &topics.BlockRevert{}} {
		if err := app.Apply(nil, rec); err == nil {
			t.Errorf("%T applied", rec)
		}
	}
}
