package system

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
)

// tokenLayer is what the contracts of the token layer and Uniswap v4 say as of a block.
type tokenLayer struct {
	Drips   map[string]object   // by ID, without the curve
	Rewards map[string]object   // by deal, without the drips
	Epochs  map[string]object   // by number
	Stakes  map[string]object   // by token ID: what the staking contract keeps of a position
	Wallets map[string]object   // by wallet: token ID to liquidity of the v4 positions that it holds
	Burns   []object            // newest first
	Pool    object              // of sTKN and TKN
	ofDeal  map[string][]string // drips by deal
}

func contractABI(t *testing.T, name string) abi.ABI {
	t.Helper()
	a, err := contracts.ABI(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// views are the functions of Uniswap v4 that the judge calls.
const views = `[
 {"type":"function","name":"getSlot0","inputs":[{"type":"bytes32"}],"outputs":[{"type":"uint160"},{"type":"int24"},{"type":"uint24"},{"type":"uint24"}]},
 {"type":"function","name":"getLiquidity","inputs":[{"type":"bytes32"}],"outputs":[{"type":"uint128"}]},
 {"type":"function","name":"nextTokenId","inputs":[],"outputs":[{"type":"uint256"}]},
 {"type":"function","name":"ownerOf","inputs":[{"type":"uint256"}],"outputs":[{"type":"address"}]},
 {"type":"function","name":"getPositionLiquidity","inputs":[{"type":"uint256"}],"outputs":[{"type":"uint128"}]}]`

// tuple is a struct that a contract returned, by the names of its fields.
func tuple(v any) (object, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return decodeObject(raw)
}

func (j *judge) tokenLayer(t *testing.T, block common.Hash) *tokenLayer {
	t.Helper()
	ctx := t.Context()
	l := &tokenLayer{
		Drips: map[string]object{}, Rewards: map[string]object{}, Epochs: map[string]object{}, Stakes: map[string]object{},
		Wallets: map[string]object{}, ofDeal: map[string][]string{}, Pool: object{},
	}
	logs := j.tokenLogs(t, block)
	for name, read := range map[string]func(context.Context, *testing.T, common.Hash, []types.Log, *tokenLayer) error{
		"epochs": j.readEpochs, "rewards": j.readRewards, "drips": j.readDrips, "stakes": j.readStakes, "burns": j.readBurns, "v4": j.readV4,
	} {
		if err := read(ctx, t, block, logs, l); err != nil {
			t.Fatalf("%s at %s: %v", name, block, err)
		}
	}
	return l
}

// each calls f for every log of a contract's event, with all of its fields.
func each(a abi.ABI, emitter common.Address, name string, logs []types.Log, f func(l *types.Log, v map[string]any) error) error {
	event := a.Events[name]
	var indexed abi.Arguments
	for _, in := range event.Inputs {
		if in.Indexed {
			indexed = append(indexed, in)
		}
	}
	for i := range logs {
		l := &logs[i]
		if l.Address != emitter || l.Topics[0] != event.ID {
			continue
		}
		v := map[string]any{}
		if err := event.Inputs.UnpackIntoMap(v, l.Data); err != nil {
			return err
		}
		if err := abi.ParseTopicsIntoMap(v, indexed, l.Topics[1:]); err != nil {
			return err
		}
		if err := f(l, v); err != nil {
			return err
		}
	}
	return nil
}

func (j *judge) readEpochs(ctx context.Context, t *testing.T, block common.Hash, logs []types.Log, l *tokenLayer) error {
	t.Helper()
	a := contractABI(t, "EpochController")
	err := each(a, j.dep.EpochController, "EpochOpened", logs, func(_ *types.Log, v map[string]any) error {
		n := v["n"].(uint32)
		return j.calls(ctx, block, j.dep.EpochController, a, []call{{method: "epochs", args: []any{n}, out: func(out []any) {
			e, err := tuple(out[0])
			if err != nil {
				t.Fatal(err)
			}
			o := object{"n": json.Number(fmt.Sprint(n)), "startsAt": e["startsAt"], "endsAt": e["endsAt"]}
			for _, field := range []string{"weekly", "dealBudget7", "dealBudget21", "reserved7", "reserved21", "liquidityBudget", "released", "rolledOver"} {
				o[field] = text(e[field])
			}
			o["rate7"], o["rate21"], o["priceUSDGPerSTKN"], o["lenderShareBps"] = nil, nil, nil, nil
			if text(e["priceUSDGPerSTKN"]) != "0" {
				o["rate7"], o["rate21"], o["lenderShareBps"] = text(e["rate7"]), text(e["rate21"]), e["lenderShareBps"]
				o["priceUSDGPerSTKN"] = decimal18(text(e["priceUSDGPerSTKN"]))
			}
			l.Epochs[fmt.Sprint(n)] = o
		}}})
	})
	if err != nil {
		return err
	}
	return err
}

// readRewards reads what deals were granted.
func (j *judge) readRewards(_ context.Context, t *testing.T, _ common.Hash, logs []types.Log, l *tokenLayer) error {
	t.Helper()
	return each(contractABI(t, "EpochController"), j.dep.EpochController, "RewardReserved", logs, func(_ *types.Log, v map[string]any) error {
		l.Rewards[dec(v["dealId"])] = object{
			"total": dec(v["granted"]), "lender": dec(v["lenderAmount"]), "borrower": dec(v["borrowerAmount"]),
			"epoch": json.Number(fmt.Sprint(v["n"])), "budgetExhausted": v["budgetExhausted"],
		}
		return nil
	})
}

// rewards are what deals were granted as of a block, and the drips that carry it.
func (j *judge) rewards(ctx context.Context, t *testing.T, block common.Hash) (rewards, drips map[string]object) {
	t.Helper()
	l := &tokenLayer{Drips: map[string]object{}, Rewards: map[string]object{}, ofDeal: map[string][]string{}}
	if j.dep.EpochController == (common.Address{}) {
		return l.Rewards, l.Drips
	}
	logs := j.tokenLogs(t, block)
	for name, read := range map[string]func(context.Context, *testing.T, common.Hash, []types.Log, *tokenLayer) error{"rewards": j.readRewards, "drips": j.readDrips} {
		if err := read(ctx, t, block, logs, l); err != nil {
			t.Fatalf("%s at %s: %v", name, block, err)
		}
	}
	return l.Rewards, l.Drips
}

// tokenLogs are those of the token layer up to a block.
func (j *judge) tokenLogs(t *testing.T, block common.Hash) []types.Log {
	t.Helper()
	header, err := j.eth.HeaderByHash(t.Context(), block)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := j.eth.FilterLogs(t.Context(), ethereum.FilterQuery{
		FromBlock: new(big.Int).SetUint64(j.dep.StartBlock), ToBlock: header.Number,
		Addresses: []common.Address{j.dep.EpochController, j.dep.RewardDistributor, j.dep.LiquidityStaking, j.dep.Burner},
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(logs, func(l types.Log) bool { return j.ignored[l.TxHash] })
}

func (j *judge) readDrips(ctx context.Context, t *testing.T, block common.Hash, logs []types.Log, l *tokenLayer) error {
	t.Helper()
	a := contractABI(t, "RewardDistributor")
	return each(a, j.dep.RewardDistributor, "DripCreated", logs, func(_ *types.Log, v map[string]any) error {
		id := dec(v["dripId"])
		o := object{"id": id, "account": lower(v["account"].(common.Address)), "source": "deal", "dealId": dec(v["dealId"]), "tokenId": nil, "granted": dec(v["total"]), "cutAt": nil}
		if v["source"].(uint8) == 1 {
			o["source"], o["dealId"], o["tokenId"] = "lp", nil, dec(v["tokenId"])
		} else {
			l.ofDeal[dec(v["dealId"])] = append(l.ofDeal[dec(v["dealId"])], id)
		}
		l.Drips[id] = o
		var total, claimed *big.Int
		return j.calls(ctx, block, j.dep.RewardDistributor, a, []call{
			{method: "drips", args: []any{v["dripId"]}, out: func(out []any) {
				d, err := tuple(out[0])
				if err != nil {
					t.Fatal(err)
				}
				o["start"], o["length"], o["total"], o["claimed"] = d["start"], d["length"], text(d["total"]), text(d["claimed"])
				if text(d["cutAt"]) != "0" {
					o["cutAt"] = d["cutAt"]
				}
				total, _ = new(big.Int).SetString(text(d["total"]), 10)
				claimed, _ = new(big.Int).SetString(text(d["claimed"]), 10)
			}},
			{method: "unlocked", args: []any{v["dripId"]}, out: func(out []any) {
				unlocked := out[0].(*big.Int)
				if unlocked.Cmp(total) > 0 || claimed.Cmp(unlocked) > 0 {
					t.Fatalf("drip %s: claimed %s, unlocked %s, total %s", id, claimed, unlocked, total)
				}
				o["unlockedNow"], o["claimableNow"] = unlocked.String(), new(big.Int).Sub(unlocked, claimed).String()
			}},
		})
	})
}

func (j *judge) readStakes(ctx context.Context, t *testing.T, block common.Hash, logs []types.Log, l *tokenLayer) error {
	t.Helper()
	a := contractABI(t, "LiquidityStaking")
	if err := j.calls(ctx, block, j.dep.LiquidityStaking, a, []call{{method: "totalWeight", out: func(v []any) { l.Pool["totalWeight"] = dec(v[0]) }}}); err != nil {
		return err
	}
	return each(a, j.dep.LiquidityStaking, "PositionStaked", logs, func(_ *types.Log, v map[string]any) error {
		id := dec(v["tokenId"])
		return j.calls(ctx, block, j.dep.LiquidityStaking, a, []call{{method: "stakes", args: []any{v["tokenId"]}, out: func(out []any) {
			s, err := tuple(out[0])
			if err != nil {
				t.Fatal(err)
			}
			owner := common.HexToAddress(text(s["owner"]))
			if owner == (common.Address{}) {
				return // unstaked
			}
			l.Stakes[id] = object{
				"tokenId": id, "owner": lower(owner), "tickLower": s["tickLower"], "tickUpper": s["tickUpper"],
				"liquidity": text(s["liquidity"]), "weight": text(s["weight"]), "isSeed": s["isSeed"],
			}
		}}})
	})
}

func (j *judge) readBurns(_ context.Context, t *testing.T, _ common.Hash, logs []types.Log, l *tokenLayer) error {
	t.Helper()
	err := each(contractABI(t, "Burner"), j.dep.Burner, "Burned", logs, func(log *types.Log, v map[string]any) error {
		l.Burns = append(l.Burns, object{
			"at": number(v["at"].(*big.Int)), "usdgSpent": dec(v["usdgSpent"]), "tknBought": dec(v["tknBought"]),
			"stknBurned": dec(v["stknBurned"]), "caller": lower(v["caller"].(common.Address)), "tx": log.TxHash.Hex(),
		})
		return nil
	})
	slices.Reverse(l.Burns)
	return err
}

func (j *judge) readV4(ctx context.Context, t *testing.T, block common.Hash, _ []types.Log, l *tokenLayer) error {
	t.Helper()
	a := parseABI(t, views)
	if err := j.calls(ctx, block, j.dep.StateView, a, []call{
		{method: "getSlot0", args: []any{j.dep.PoolID}, out: func(v []any) {
			l.Pool["sqrtPriceX96"], l.Pool["tick"] = dec(v[0]), number(v[1].(*big.Int))
		}},
		{method: "getLiquidity", args: []any{j.dep.PoolID}, out: func(v []any) { l.Pool["liquidity"] = dec(v[0]) }},
	}); err != nil {
		return err
	}
	var next *big.Int
	if err := j.calls(ctx, block, j.dep.PositionManager, a, []call{{method: "nextTokenId", out: func(v []any) { next = v[0].(*big.Int) }}}); err != nil {
		return err
	}
	for id := int64(1); id < next.Int64(); id++ {
		var owner common.Address
		err := j.calls(ctx, block, j.dep.PositionManager, a, []call{{method: "ownerOf", args: []any{big.NewInt(id)}, out: func(v []any) { owner = v[0].(common.Address) }}})
		if err != nil {
			continue // burned: the call reverts
		}
		if err := j.calls(ctx, block, j.dep.PositionManager, a, []call{{method: "getPositionLiquidity", args: []any{big.NewInt(id)}, out: func(v []any) {
			wallet := lower(owner)
			if l.Wallets[wallet] == nil {
				l.Wallets[wallet] = object{}
			}
			l.Wallets[wallet][fmt.Sprint(id)] = dec(v[0])
		}}}); err != nil {
			return err
		}
	}
	return nil
}

// TestWholeIndexerEqualsChain compares every other resource of the indexer with the contracts, after
// reorgs, on both sorts of servers.
func TestWholeIndexerEqualsChain(t *testing.T) {
	for _, server := range servers {
		t.Run(server, func(t *testing.T) {
			w := newWorld(t, "devchain", server, devchain.ScenarioConfig{
				Seed: seed(t), TxsPerBlock: 8, TimePerBlock: 6 * time.Hour, Reorgs: true, ReorgEvery: 15,
			})
			w.mine(t.Context(), t, 120)
			p, a := w.up(t, t.TempDir())
			for range 3 {
				w.mine(t.Context(), t, 40)
				wholeIndexerEqualsChain(t, w, a)
			}
			p.interrupt(t)
		})
	}
}

func wholeIndexerEqualsChain(t *testing.T, w *world, a *api) {
	t.Helper()
	block := settle(t, a, w.judge, time.Minute)
	m, err := w.judge.at(t.Context(), hash(block))
	if err != nil {
		t.Fatal(err)
	}
	l := w.judge.tokenLayer(t, hash(block))
	for what, n := range map[string]int{
		"drips": len(l.Drips), "rewards": len(l.Rewards), "epochs": len(l.Epochs), "stakes": len(l.Stakes), "burns": len(l.Burns), "wallets": len(l.Wallets),
	} {
		if n == 0 {
			t.Fatalf("the scenario made no %s: there is nothing to compare", what)
		}
	}
	get := func(path string) object {
		t.Helper()
		res, err := a.get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if res.Status != 200 || res.Block != block {
			t.Fatalf("GET %s: %d as of %s: %v", path, res.Status, res.Block, res.Body)
		}
		return res.Body
	}
	for id, want := range l.Rewards {
		got, _ := get("/deals/" + id)["reward"].(object)
		drips := dripsByID(t, got["drips"])
		delete(got, "drips")
		equal(t, "the reward of deal "+id, got, want)
		equal(t, "the drips of deal "+id, drips, pick(l.Drips, func(o object) bool { return o["dealId"] == id }))
	}
	epochs, err := a.list(t.Context(), "/epochs?limit=200", "epochs", block)
	if err != nil {
		t.Fatal(err)
	}
	equalNumbered(t, "/epochs", epochs, "n", l.Epochs)

	pool := get("/pool")
	for field, want := range l.Pool {
		equal(t, "/pool "+field, pool["pool"].(object)[field], want)
	}
	burns := make([]any, 0, 20)
	for _, b := range l.Burns[:min(20, len(l.Burns))] {
		burns = append(burns, b)
	}
	equal(t, "/pool burns", pool["burns"], any(burns))

	for _, wallet := range m.Accounts {
		equalPortfolio(t, get("/portfolio/"+wallet), wallet, m, l)
		positions, err := a.list(t.Context(), "/positions/"+wallet+"?limit=200", "positions", block)
		if err != nil {
			t.Fatal(err)
		}
		kept := map[string]object{}
		for _, p := range positions {
			kept[p["tokenId"].(string)] = only(p, "tokenId", "owner", "tickLower", "tickUpper", "liquidity", "weight", "isSeed")
		}
		equal(t, "/positions/"+wallet, kept, pick(l.Stakes, func(o object) bool { return o["owner"] == wallet }))
		held, err := a.list(t.Context(), "/wallet/"+wallet+"/positions?limit=200", "positions", block)
		if err != nil {
			t.Fatal(err)
		}
		liquidity := object{}
		for _, p := range held {
			liquidity[p["tokenId"].(string)] = p["liquidity"]
		}
		want := l.Wallets[wallet]
		if want == nil {
			want = object{}
		}
		equal(t, "/wallet/"+wallet+"/positions", liquidity, want)
	}
	stats := get("/stats")
	equalStats(t, w, stats, block)
	equalTVL(t, w.judge, stats["tvl"].(object), m, block)
	equalHistory(t, get("/stats/history?days=366"), stats)
}

func equalPortfolio(t *testing.T, got object, wallet string, m *market, l *tokenLayer) {
	t.Helper()
	equal(t, "asBorrower of "+wallet, byKey(t, objects(got["asBorrower"]), "id"), pick(m.Deals, func(d object) bool { return d["borrower"] == wallet }))
	equal(t, "asLender of "+wallet, byKey(t, objects(got["asLender"]), "id"), pick(m.Deals, func(d object) bool { return d["lender"] == wallet }))
	bids := map[string]object{}
	for _, ofDeal := range m.Bids {
		for _, b := range ofDeal {
			if b["lender"] == wallet {
				bids[b["id"].(string)] = b
			}
		}
	}
	equal(t, "bids of "+wallet, byKey(t, objects(got["bids"]), "id"), bids)
	equal(t, "drips of "+wallet, dripsByID(t, got["drips"]), pick(l.Drips, func(o object) bool { return o["account"] == wallet }))

	sums := map[string]*big.Int{"receivedAlready": {}, "stillAtStake": {}, "paidOut": {}, "awaitingExpiry": {}}
	add := func(name string, sign int64, amount any) {
		n, _ := new(big.Int).SetString(amount.(string), 10)
		sums[name].Add(sums[name], n.Mul(n, big.NewInt(sign)))
	}
	for _, d := range m.Deals {
		if d["price"] == nil {
			continue
		}
		if d["borrower"] == wallet {
			add("receivedAlready", 1, d["price"])
			add("receivedAlready", -1, d["fee"])
			if d["state"] == "FUNDED" {
				add("stillAtStake", 1, d["cap"])
			}
		}
		if d["lender"] == wallet {
			add("paidOut", 1, d["price"])
			if d["state"] == "FUNDED" {
				add("awaitingExpiry", 1, d["cap"])
			}
		}
	}
	summary := object{}
	for name, sum := range sums {
		summary[name] = sum.String()
	}
	equal(t, "summary of "+wallet, got["summary"], any(summary))
}

// equalStats recomputes the figures of /stats from eth_getLogs alone.
func equalStats(t *testing.T, w *world, got object, block string) {
	t.Helper()
	header, err := w.judge.eth.HeaderByHash(t.Context(), hash(block))
	if err != nil {
		t.Fatal(err)
	}
	logs, err := w.judge.logs(t.Context(), header.Number)
	if err != nil {
		t.Fatal(err)
	}
	type deal struct {
		token       common.Address
		amount, cap *big.Int
		term        uint32
		listed      uint64
		state       string
		position    bool
	}
	deals := map[string]*deal{}
	sums := map[string]*big.Int{"fees total": {}, "fees last24h": {}, "fees last7d": {}, "volume total": {}, "volume last24h": {}, "volume last7d": {}}
	costs := map[uint32][]int64{}
	var waits []int64
	vault := w.market.Deployment.DealVault
	on := func(event string, f func(d *deal, v map[string]any)) {
		if err := each(w.judge.vault, vault, event, logs, func(_ *types.Log, v map[string]any) error {
			id := dec(v["dealId"])
			if deals[id] == nil {
				deals[id] = &deal{}
			}
			f(deals[id], v)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	on("DealListed", func(d *deal, v map[string]any) {
		d.token, d.amount, d.cap = v["token"].(common.Address), v["amountOrTokenId"].(*big.Int), v["cap"].(*big.Int)
		d.term, d.listed, d.state, d.position = v["term"].(uint32), v["listedAt"].(*big.Int).Uint64(), "LISTED", v["kind"].(uint8) == 1
	})
	// Terms change only while a deal is listed, so the last ones are those that it was funded at.
	on("DealTermsUpdated", func(d *deal, v map[string]any) { d.cap, d.term = v["cap"].(*big.Int), v["term"].(uint32) })
	on("DealFunded", func(d *deal, v map[string]any) {
		d.state = "FUNDED"
		price, at := v["price"].(*big.Int), v["fundedAt"].(*big.Int).Uint64()
		for window, seconds := range map[string]uint64{"total": header.Time, "last24h": 86400, "last7d": 7 * 86400} {
			if at+seconds > header.Time {
				sums["fees "+window].Add(sums["fees "+window], v["fee"].(*big.Int))
				sums["volume "+window].Add(sums["volume "+window], price)
			}
		}
		cost := new(big.Int).Sub(d.cap, price)
		costs[d.term] = append(costs[d.term], cost.Div(cost.Mul(cost, big.NewInt(10_000)), price).Int64())
		waits = append(waits, int64(at-d.listed))
	})
	for event, state := range map[string]string{"DealReclaimed": "RECLAIMED", "DealClaimed": "CLAIMED", "DealCancelled": "CANCELLED"} {
		on(event, func(d *deal, _ map[string]any) { d.state = state })
	}
	byState := map[string]int{"LISTED": 0, "FUNDED": 0, "RECLAIMED": 0, "CLAIMED": 0, "CANCELLED": 0}
	locked := map[string]*big.Int{}
	for _, d := range deals {
		byState[d.state]++
		if (d.state == "LISTED" || d.state == "FUNDED") && !d.position {
			token := lower(d.token)
			if locked[token] == nil {
				locked[token] = new(big.Int)
			}
			locked[token].Add(locked[token], d.amount)
		}
	}
	want := object{"total": json.Number(fmt.Sprint(len(deals))), "active": json.Number(fmt.Sprint(byState["FUNDED"]))}
	states := object{}
	for state, n := range byState {
		states[state] = json.Number(fmt.Sprint(n))
	}
	want["byState"] = states
	equal(t, "/stats deals", got["deals"], any(want))
	for _, group := range []string{"fees", "volume"} {
		for _, window := range []string{"total", "last24h", "last7d"} {
			equal(t, "/stats "+group+" "+window, got[group].(object)[window], any(sums[group+" "+window].String()))
		}
	}
	medians := object{"costBps7d": middle(costs[7*86400]), "costBps21d": middle(costs[21*86400]), "timeToFundSeconds": middle(waits)}
	equal(t, "/stats medians", got["medians"], any(medians))
	raw := map[string]string{}
	for _, asset := range objects(got["tvl"].(object)["byAsset"]) {
		if asset["lane"] != "POSITION" {
			raw[asset["token"].(string)] = asset["raw"].(string)
		}
	}
	for token, amount := range locked {
		equal(t, "/stats tvl of "+token, raw[token], amount.String())
	}
}

// middle is the median; of an even count, the mean of the two in the middle, rounded down.
func middle(values []int64) any {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	n := len(values)
	return json.Number(fmt.Sprint((values[(n-1)/2] + values[n/2]) / 2))
}

func dripsByID(t *testing.T, list any) map[string]object {
	t.Helper()
	drips := byKey(t, objects(list), "id")
	for id, d := range drips {
		curve := objects(d["curve"])
		if last := curve[len(curve)-1]["unlocked"]; last != d["total"] {
			t.Fatalf("drip %s: the curve ends at %v, the total is %v", id, last, d["total"])
		}
		delete(d, "curve")
	}
	return drips
}

func equalNumbered(t *testing.T, what string, items []object, key string, want map[string]object) {
	t.Helper()
	got := map[string]object{}
	for _, item := range items {
		got[text(item[key])] = item
	}
	equal(t, what, got, want)
}

func pick(all map[string]object, wanted func(object) bool) map[string]object {
	some := maps.Clone(all)
	maps.DeleteFunc(some, func(_ string, o object) bool { return !wanted(o) })
	return some
}

func only(o object, fields ...string) object {
	some := object{}
	for _, f := range fields {
		some[f] = o[f]
	}
	return some
}
