package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// holding holds one node's answers as of a block against what the contracts say as of it.
type holding struct {
	*testing.T
	*views
	stkn, usdg string
	block      string
	answers    map[string]reply
	parsed     map[string]map[string]any // by the body: most are those of the block before
	compared   map[string]int
}

// answer is an answer that there is.
func (h *holding) answer(path string) map[string]any {
	h.Helper()
	r, is := h.answers[path]
	if !is || r.status != http.StatusOK {
		h.Fatalf("block %s: %s: %d %s", h.block, path, r.status, r.body)
	}
	if h.parsed[r.body] == nil {
		h.parsed[r.body] = object(h.T, r.body)
	}
	return h.parsed[r.body]
}

// of are the answers about each wallet, or another part of a path.
func (h *holding) of(prefix, suffix string) map[string]map[string]any {
	h.Helper()
	all := map[string]map[string]any{}
	for path := range h.answers {
		id, is := strings.CutPrefix(path, prefix)
		if id, ends := strings.CutSuffix(id, suffix); is && ends && !strings.ContainsAny(id, "/?") {
			all[id] = h.answer(path)
		}
	}
	return all
}

// differs says that what the contracts say is something else.
func (h *holding) differs(what string, got, want any) {
	h.Helper()
	h.Errorf("block %s: %s: %v, the contracts say %v", h.block, what, got, want)
}

// object holds fields of an object.
func (h *holding) object(kind, what string, got any, want fields) {
	h.Helper()
	h.compared[kind]++
	if _, is := got.(map[string]any); !is {
		h.differs(what, got, want)
		return
	}
	requireFields(h.T, fmt.Sprintf("block %s: %s", h.block, what), got, want)
}

// list holds a whole list: each is listed once, and nothing else is.
func (h *holding) list(kind, what string, got any, id string, want map[string]fields) {
	h.Helper()
	items, _ := got.([]any)
	listed := map[string]bool{}
	for _, item := range items {
		o, _ := item.(map[string]any)
		key := fmt.Sprint(o[id])
		if want[key] == nil || listed[key] {
			h.differs(what, "lists "+kind+" "+key, "not that, or once")
			continue
		}
		listed[key] = true
		h.object(kind, what+": "+kind+" "+key, item, want[key])
		if kind == "drip" {
			h.curve(what+": the curve of drip "+key, o["curve"], h.curves[key])
		}
	}
	if len(listed) != len(want) {
		h.differs(what, fmt.Sprint(len(listed), " of ", kind), len(want))
	}
}

// some are those whose field is that.
func some(all map[string]fields, name, is string) map[string]fields {
	found := map[string]fields{}
	for id, f := range all {
		if f[name] == is {
			found[id] = f
		}
	}
	return found
}

// sum adds up a field.
func sum(all map[string]fields, name string, which func(fields) bool) *big.Int {
	total := new(big.Int)
	for _, f := range all {
		if which(f) {
			total.Add(total, bigOf(f[name]))
		}
	}
	return total
}

func (h *holding) curve(what string, got any, want []curvePoint) {
	h.Helper()
	points, _ := got.([]any)
	if len(points) != len(want) {
		h.differs(what, got, want)
		return
	}
	for i, p := range want {
		w := fields{"t": fmt.Sprint(p.t)}
		if p.unlocked != "" {
			w["unlocked"] = p.unlocked
		}
		h.object("point of a curve", what, points[i], w)
	}
}

// rawUnits is what may be rounded away of the smallest parts of tokens, where several amounts are added up.
const rawUnits = 50

// near holds a number that no view has, within what rounding makes of it: of so many units, and of the prices of ticks.
func (h *holding) near(what string, got any, want *big.Float, units float64) {
	h.Helper()
	h.compared["number of a position"]++
	is, ok := new(big.Float).SetPrec(512).SetString(fmt.Sprint(got))
	if !ok {
		h.differs(what, got, want)
		return
	}
	off := is.Sub(is, want)
	most := new(big.Float).Mul(want, big.NewFloat(1e-12))
	if most.Add(most, big.NewFloat(units)); off.Abs(off).Cmp(most) > 0 {
		h.differs(what, got, want.Text('f', 3))
	}
}

// deals and the rest of the vault.
func (h *holding) vault() {
	for id, deal := range h.deals {
		deal["openBidCount"] = fmt.Sprint(h.open[id])
	}
	if listed, _ := h.answer("/deals?limit=200")["items"].([]any); len(listed) != min(len(h.deals), 200) { // a page
		h.differs("deals", len(listed), len(h.deals))
	}
	for id, want := range h.deals {
		a := h.answer("/deals/" + id)
		h.object("deal", "deal "+id, a["deal"], want)
		deal, _ := a["deal"].(map[string]any)
		if best := h.best[id]; best != nil {
			h.object("best bid", "the best bid of deal "+id, deal["bestBid"], fields{"price": best.String(), "dealId": id, "state": "OPEN"})
		} else if deal["bestBid"] != nil {
			h.differs("the best bid of deal "+id, deal["bestBid"], none)
		}
		h.object("transactions", "transactions of deal "+id, deal["txs"], h.logged.txs[id])
		h.list("bid", "/deals/"+id, a["bids"], "id", some(h.bids, "dealId", id))
		drips := some(h.drips, "dealId", id)
		h.list("drip", "/deals/"+id+"/drips", h.answer("/deals/" + id + "/drips?limit=100")["drips"], "id", drips)
		if want := h.logged.rewards[id]; want != nil {
			h.object("reward", "the reward of deal "+id, a["reward"], want)
			reward, _ := a["reward"].(map[string]any)
			h.list("drip", "/deals/"+id, reward["drips"], "id", drips)
		} else if a["reward"] != nil {
			h.differs("the reward of deal "+id, a["reward"], none)
		}
	}
	owed := map[string]string{}
	for wallet, a := range h.of("/portfolio/", "") {
		balances, _ := a["balances"].([]any)
		for _, b := range balances {
			b, _ := b.(map[string]any)
			key := fmt.Sprint(b["account"], " ", b["asset"])
			if b["kind"] == "NFT" {
				key = fmt.Sprint(key, " ", b["amount"])
			}
			owed[key] = fmt.Sprint(b["amount"])
			h.compared["credit"]++
		}
		what, borrowed, lent := "/portfolio/"+wallet, some(h.deals, "borrower", wallet), some(h.deals, "lender", wallet)
		h.list("deal", what, a["asBorrower"], "id", borrowed)
		h.list("deal", what, a["asLender"], "id", lent)
		h.list("drip", what, a["drips"], "id", some(h.drips, "account", wallet))
		began := func(d fields) bool { return d["fundedAt"] != none }
		runs := func(d fields) bool { return d["state"] == "FUNDED" }
		received := sum(borrowed, "price", began)
		h.object("portfolio", what, a["summary"], fields{
			"receivedAlready": received.Sub(received, sum(borrowed, "fee", began)).String(), "stillAtStake": sum(borrowed, "cap", runs).String(),
			"paidOut": sum(lent, "price", began).String(), "awaitingExpiry": sum(lent, "cap", runs).String(),
		})
	}
	if !maps.Equal(owed, h.credits) {
		h.differs("credits", owed, h.credits)
	}
}

// tokenLayer holds the answers about rewards, epochs, the pool and burns.
func (h *holding) tokenLayer() {
	always := func(fields) bool { return true }
	var epoch fields // the newest
	byNumber := map[string]fields{}
	for _, e := range h.epochs {
		byNumber[e["n"]], epoch = e, e
	}
	h.list("epoch", "/epochs", h.answer("/epochs?limit=100")["epochs"], "n", byNumber)
	burned, week := new(big.Int), none // in all, and since the epoch began
	if epoch != nil {
		since := sumOf(h.logged.burns, "stknBurned", func(b fields) bool { return bigOf(b["at"]).Cmp(bigOf(epoch["startsAt"])) >= 0 })
		week = since.String()
	}
	for _, b := range h.logged.burns {
		burned.Add(burned, bigOf(b["stknBurned"]))
	}
	h.burns("/burns", h.answer("/burns?limit=200")["burns"], 200)
	if supply := h.layer.supply; supply != nil && new(big.Int).Add(supply, burned).Cmp(h.logged.minted) != 0 {
		h.differs("sTKN burned", burned, fmt.Sprint(h.logged.minted, " minted, ", supply, " left"))
	}
	overviews := map[string]map[string]any{"/pool": h.answer("/pool")}
	for wallet, a := range h.of("/rewards/", "") {
		what, drips := "/rewards/"+wallet, some(h.drips, "account", wallet)
		overviews[what] = a
		h.list("drip", what, a["drips"], "id", drips)
		dripping := sum(drips, "total", always)
		h.object("rewards", what, a, fields{
			"claimableNow":  sum(drips, "claimableNow", always).String(),
			"stillDripping": dripping.Sub(dripping, sum(drips, "unlockedNow", always)).String(),
		})
	}
	for what, a := range overviews {
		h.object("overview", what, a, fields{"burnedThisWeek": week})
		h.nullable("overview", what+": epoch", a["epoch"], epoch)
		h.nullable("pool", what+": pool", a["pool"], h.layer.staking)
	}
	pool := h.answer("/pool")
	h.burns("/pool", pool["burns"], 20)
	rate := cmp.Or(h.layer.rate, none)
	h.object("overview", "/pool", pool, fields{"emissionsRatePerSecond": rate})
	if epoch != nil {
		budgets, _ := pool["budgets"].(map[string]any)
		for name, of := range map[string][3]string{
			"deal7": {"dealBudget7", "reserved", "reserved7"}, "deal21": {"dealBudget21", "reserved", "reserved21"}, "liquidity": {"liquidityBudget", "released", "released"},
		} {
			left := new(big.Int).Sub(bigOf(epoch[of[0]]), bigOf(epoch[of[2]]))
			h.object("budget", "/pool: budget "+name, budgets[name], fields{"budget": epoch[of[0]], of[1]: epoch[of[2]], "available": left.String()})
		}
	}
	h.depth(pool)
}

func sumOf(all []fields, name string, which func(fields) bool) *big.Int {
	total := new(big.Int)
	for _, f := range all {
		if which(f) {
			total.Add(total, bigOf(f[name]))
		}
	}
	return total
}

// nullable holds an object that is null before there is one.
func (h *holding) nullable(kind, what string, got any, want fields) {
	h.Helper()
	if want != nil {
		h.object(kind, what, got, want)
	} else if got != nil {
		h.differs(what, got, none)
	}
}

// burns holds a list of the latest.
func (h *holding) burns(what string, got any, most int) {
	h.Helper()
	items, _ := got.([]any)
	if want := min(len(h.logged.burns), most); len(items) != want {
		h.differs(what, fmt.Sprint(len(items), " burns"), want)
		return
	}
	for i, item := range items {
		h.object("burn", what, item, h.logged.burns[len(h.logged.burns)-1-i])
	}
}

// depth holds what the summary of the pool says of the positions in it: how deep it is, and the floor under its price.
func (h *holding) depth(overview map[string]any) {
	summary, _ := overview["pool"].(map[string]any)
	if h.layer.staking == nil || summary == nil {
		return
	}
	at := bigOf(h.layer.staking["sqrtPriceX96"])
	stkn0 := h.layer.staking["currency0"] == h.stkn
	// A fall by 2 % of the price of sTKN is one of the pool's where it is currency 0, and else a rise.
	target := new(big.Int).Mul(at, at)
	if stkn0 {
		target.Mul(target, big.NewInt(98)).Quo(target, big.NewInt(100))
	} else {
		target.Mul(target, big.NewInt(100)).Quo(target, big.NewInt(98))
	}
	target.Sqrt(target)
	depth, floor := new(big.Float).SetPrec(512), int64(0)
	known := false
	for id, p := range h.positions {
		if p["poolId"] != h.layer.staking["poolId"] {
			continue
		}
		lower, upper, liquidity := bigOf(p["tickLower"]).Int64(), bigOf(p["tickUpper"]).Int64(), bigOf(p["liquidity"])
		now0, now1 := amountsIn(at, lower, upper, liquidity)
		then0, then1 := amountsIn(target, lower, upper, liquidity)
		if stkn0 {
			depth.Add(depth, now1.Sub(now1, then1))
		} else {
			depth.Add(depth, now0.Sub(now0, then0))
		}
		if s := h.stakes[id]; s != nil && s["isSeed"] == "true" {
			switch {
			case stkn0 && (!known || lower < floor):
				floor = lower
			case !stkn0 && (!known || upper > floor):
				floor = upper
			}
			known = true
		}
	}
	h.near("/pool: depthTKN", summary["depthTKN"], depth, rawUnits)
	var want fields
	if known {
		want = fields{"tick": fmt.Sprint(floor)}
	}
	h.nullable("floor", "/pool: floor", overview["floor"], want)
	if of, _ := overview["floor"].(map[string]any); known && of != nil {
		price := sqrtPriceAt(floor)
		if price.Mul(price, price); !stkn0 {
			price.Quo(precise(big.NewInt(1)), price)
		}
		h.near("/pool: price at the floor", of["priceSTKNinTKN"], price, 1e-18)
	}
}

// positionsAndAssets holds the answers about positions and tokens.
func (h *holding) positionsAndAssets() {
	h.list("asset", "/assets", h.answer("/assets?limit=200")["assets"], "token", h.assets)
	staked, held := 0, 0
	for wallet, a := range h.of("/positions/", "") {
		want := some(h.stakes, "owner", wallet)
		staked += len(want)
		h.list("stake", "/positions/"+wallet, a["positions"], "tokenId", want)
		items, _ := a["positions"].([]any)
		for _, item := range items {
			s, _ := item.(map[string]any)
			h.near(fmt.Sprint("/positions/", wallet, ": value of ", s["tokenId"]), s["valueTKN"], h.inTKN(fmt.Sprint(s["tokenId"])), rawUnits)
		}
	}
	for wallet, a := range h.of("/wallet/", "/positions") {
		all := map[string]fields{}
		for id, p := range h.positions {
			if h.holders[id] == wallet {
				all[id] = p
			}
		}
		held += len(all)
		h.list("position", "/wallet/"+wallet, a["positions"], "tokenId", all)
		items, _ := a["positions"].([]any)
		for _, item := range items {
			p, _ := item.(map[string]any)
			for i, name := range []string{"amount0", "amount1"} {
				h.near(fmt.Sprint("/wallet/", wallet, ": ", name, " of ", p["tokenId"]), p[name], h.inPositions[fmt.Sprint(p["tokenId"])][i].amountOr(), rawUnits)
			}
		}
	}
	if staked != len(h.stakes) || held != len(h.positions) {
		h.differs("stakes and positions of all wallets", fmt.Sprint(staked, " and ", held), fmt.Sprint(len(h.stakes), " and ", len(h.positions)))
	}
}

func (p position) amountOr() *big.Float {
	if p.amount == nil {
		return new(big.Float)
	}
	return p.amount
}

// inTKN is what a staked position is worth.
func (h *holding) inTKN(id string) *big.Float {
	worth := new(big.Float).SetPrec(512)
	at := precise(bigOf(h.layer.staking["sqrtPriceX96"]))
	price := at.Quo(at, precise(new(big.Int).Lsh(big.NewInt(1), 96)))
	price.Mul(price, price)
	if h.layer.staking["currency0"] != h.stkn {
		price = new(big.Float).Quo(precise(big.NewInt(1)), price)
	}
	for _, p := range h.inPositions[id] {
		amount := new(big.Float).Set(p.amountOr())
		if p.token == h.stkn {
			amount.Mul(amount, price)
		}
		worth.Add(worth, amount)
	}
	return worth
}

// The oracle is one node of ours. So what it answers is held, at each block of each branch, against what the contracts
// themselves say as of that block; where none of their views says it, against their logs.
func TestOracleSaysWhatTheContractsSay(t *testing.T) {
	rec, o := judge(t)
	v, err := newViewer()
	if err != nil {
		t.Fatal(err)
	}
	again, err := recordWorld(v.see)
	if err == nil {
		err = again.states.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	compared, parsed := map[string]int{}, map[string]map[string]any{}
	for hash, answers := range o.answers {
		at, again := v.at[common.HexToHash(hash)]
		if !again {
			t.Fatalf("block %s was not recorded again: the scenario is not the same twice", hash)
		}
		h := &holding{
			T: t, views: at, stkn: lower(rec.deployment.STKN), usdg: lower(rec.deployment.USDG),
			block: answers["/stats"].number, answers: answers, parsed: parsed, compared: compared,
		}
		h.vault()
		h.tokenLayer()
		h.positionsAndAssets()
		h.stats()
		if t.Failed() {
			return // one block's differences are enough
		}
	}
	for _, kind := range []string{
		"deal", "transactions", "bid", "best bid", "credit", "portfolio", "reward", "drip", "point of a curve", "rewards", "epoch", "overview", "pool", "budget", "floor", "burn",
		"asset", "stake", "position", "sums", "hour", "day", "locked", "price", "number of a position",
	} {
		if compared[kind] == 0 {
			t.Errorf("no %s was compared", kind)
		}
	}
	text := make([]string, 0, len(compared))
	for _, kind := range slices.Sorted(maps.Keys(compared)) {
		text = append(text, fmt.Sprint(compared[kind], " ", kind))
	}
	t.Logf("%d blocks, the contracts' word: %s", len(o.answers), strings.Join(text, ", "))
}
