package simulation

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
)

// Names of the contracts' enums, as the services' contract has them.
var (
	kindNames     = []string{"ERC20", "AMMV4_POSITION"}
	laneNames     = []string{"STOCK", "ETH", "MEME", "POSITION"}
	stateNames    = []string{"LISTED", "FUNDED", "RECLAIMED", "CLAIMED", "CANCELLED"}
	bidStateNames = []string{"OPEN", "WITHDRAWN", "ACCEPTED"}
	sourceNames   = []string{"deal", "lp"}
)

// position is what is in a position of one of its tokens: about, for the contracts show no such view.
type position struct {
	token  string
	amount *big.Float
}

// poolView is a pool of Uniswap.
type poolView struct {
	sqrtPrice, liquidity *big.Int
	tick                 int64
	least, most          *big.Int // liquidity of positions that may be listed
	allowed              bool
}

// bigOf is the number in a field of an answer.
func bigOf(s string) *big.Int {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		panic(fmt.Sprintf("%q is no number", s))
	}
	return n
}

// decimal is a fraction as prices are told: truncated after 18 digits.
func decimal(num, den *big.Int) string {
	scaled := new(big.Int).Mul(num, big.NewInt(1e18))
	digits := fmt.Sprintf("%019s", scaled.Quo(scaled, den))
	point := len(digits) - 18
	return strings.TrimSuffix(strings.TrimRight(digits[:point]+"."+digits[point:], "0"), ".")
}

// ids are 1 and all below the next.
func ids(next any) (all []*big.Int) {
	for id := int64(1); id < next.(*big.Int).Int64(); id++ {
		all = append(all, big.NewInt(id))
	}
	return all
}

func (a *asking) vault(ctx context.Context) error {
	const vault = "DealVault"
	first := map[string]any{}
	var asks []viewCall
	for _, method := range []string{"nextDealId", "nextBidId", "GRACE"} {
		asks = append(asks, viewCall{of: vault, method: method, out: func(o map[string]any) { first[method] = o[""] }})
	}
	if err := a.calls(ctx, asks); err != nil {
		return err
	}
	grace := first["GRACE"].(*big.Int)
	asks = nil
	for _, id := range ids(first["nextDealId"]) {
		deal := fields{"id": id.String()}
		a.deals[id.String()] = deal
		asks = append(asks,
			viewCall{of: vault, method: "termsHash", args: []any{id}, out: func(o map[string]any) { deal["termsHash"] = printed(o[""]) }},
			viewCall{of: vault, method: "deals", args: []any{id}, out: func(o map[string]any) { dealOf(deal, o, grace) }})
	}
	for _, id := range ids(first["nextBidId"]) {
		asks = append(asks, viewCall{of: vault, method: "bids", args: []any{id}, out: func(o map[string]any) { a.bid(id.String(), o) }})
	}
	for pair := range a.logged.owed {
		asks = append(asks, viewCall{of: vault, method: "credits", args: []any{pair[0], pair[1]}, out: func(o map[string]any) {
			if amount := o[""].(*big.Int); amount.Sign() > 0 {
				a.credits[lower(pair[0])+" "+lower(pair[1])] = amount.String()
			}
		}})
	}
	for nft := range a.logged.nfts {
		asks = append(asks, viewCall{of: vault, method: "nftCredits", args: []any{nft.asset, bigOf(nft.id)}, out: func(o map[string]any) {
			if account := o[""].(common.Address); account != (common.Address{}) {
				a.credits[lower(account)+" "+lower(nft.asset)+" "+nft.id] = nft.id
			}
		}})
	}
	return a.calls(ctx, asks)
}

// dealOf fills in a deal. What it gets when it is funded is null before.
func dealOf(deal fields, o map[string]any, grace *big.Int) {
	for name, v := range o {
		deal[name] = printed(v)
	}
	deal["kind"], deal["state"], deal["lane"] = kindNames[o["kind"].(uint8)], stateNames[o["state"].(uint8)], laneNames[o["lane"].(uint8)]
	if deal["fundedAt"] == "0" {
		for _, name := range []string{"lender", "price", "fee", "fundedAt", "expiry", "graceEnd"} {
			deal[name] = none
		}
		return
	}
	expiry := new(big.Int).Add(o["fundedAt"].(*big.Int), big.NewInt(int64(o["term"].(uint32))))
	deal["expiry"], deal["graceEnd"] = expiry.String(), new(big.Int).Add(expiry, grace).String()
}

// bid notes a bid, and whether it can be accepted. The deals were asked for before.
func (a *asking) bid(id string, o map[string]any) {
	bid := fields{"id": id, "state": bidStateNames[o["state"].(uint8)], "tx": a.logged.bidTxs[id]}
	for _, name := range []string{"dealId", "lender", "price", "expiry", "placedAt", "termsHash"} {
		bid[name] = printed(o[name])
	}
	a.bids[id] = bid
	deal, price := bid["dealId"], o["price"].(*big.Int)
	if bid["state"] == "OPEN" && o["expiry"].(*big.Int).Uint64() > a.time && bid["termsHash"] == a.deals[deal]["termsHash"] {
		if a.open[deal]++; a.best[deal] == nil || price.Cmp(a.best[deal]) > 0 {
			a.best[deal] = price
		}
	}
}

func (a *asking) distributor(ctx context.Context) error {
	const distributor = "RewardDistributor"
	var next any
	if err := a.calls(ctx, []viewCall{{of: distributor, method: "nextDripId", out: func(o map[string]any) { next = o[""] }}}); err != nil {
		return err
	}
	var asks []viewCall
	times := map[string][]uint64{}
	for _, id := range ids(next) {
		drip := fields{"id": id.String()}
		a.drips[id.String()] = drip
		asks = append(asks,
			viewCall{of: distributor, method: "drips", args: []any{id}, out: func(o map[string]any) {
				for _, name := range []string{"account", "start", "length", "total", "claimed", "cutAt"} {
					drip[name] = printed(o[name])
				}
				start := o["start"].(*big.Int).Uint64()
				at := []uint64{start, o["cliff"].(*big.Int).Uint64(), start + o["length"].(*big.Int).Uint64()}
				if drip["cutAt"] == "0" {
					drip["cutAt"] = none
				} else {
					at = append(at, o["cutAt"].(*big.Int).Uint64())
				}
				slices.Sort(at)
				times[id.String()] = slices.Compact(at)
			}},
			viewCall{of: distributor, method: "unlocked", args: []any{id}, out: func(o map[string]any) {
				drip["unlockedNow"] = printed(o[""])
				drip["claimableNow"] = new(big.Int).Sub(o[""].(*big.Int), bigOf(drip["claimed"])).String()
			}})
	}
	if err := a.calls(ctx, asks); err != nil {
		return err
	}
	for id, made := range a.logged.drips {
		maps.Copy(a.drips[id], made)
	}
	return a.unlocks(ctx, times)
}

// curvePoint is a point of a curve; unlocked: "" where nobody was asked.
type curvePoint struct {
	t        uint64
	unlocked string
}

// unlocks asks what drips have unlocked at the corners of their curves: each is asked for once, and again when it was cut. The
// contract forgets what a drip would have been when it is cut: what it has said before is kept.
func (a *asking) unlocks(ctx context.Context, times map[string][]uint64) error {
	var asks []viewCall
	for id, drip := range a.drips {
		as := func(total, cutAt string) string {
			return fmt.Sprint(id, " ", drip["account"], " ", drip["start"], " ", drip["length"], " ", total, " ", cutAt)
		}
		key := as(drip["total"], drip["cutAt"])
		if curve, known := a.viewer.curves[key]; known {
			a.views.curves[id] = curve
			continue
		}
		curve := make([]curvePoint, len(times[id]))
		whole := a.viewer.curves[as(drip["granted"], none)]
		for i, t := range times[id] {
			curve[i].t = t
			if drip["cutAt"] != none && new(big.Int).SetUint64(t).Cmp(bigOf(drip["cutAt"])) < 0 {
				if at := slices.IndexFunc(whole, func(p curvePoint) bool { return p.t == t }); at >= 0 {
					curve[i].unlocked = whole[at].unlocked
				}
				continue
			}
			asks = append(asks, viewCall{
				of: "RewardDistributor", method: "unlocked", args: []any{bigOf(id)}, time: t,
				out: func(o map[string]any) { curve[i].unlocked = printed(o[""]) },
			})
		}
		a.viewer.curves[key], a.views.curves[id] = curve, curve
	}
	return a.calls(ctx, asks)
}

func (a *asking) controller(ctx context.Context) error {
	const controller = "EpochController"
	var current uint32
	if err := a.calls(ctx, []viewCall{{of: controller, method: "current", out: func(o map[string]any) { current = o[""].(uint32) }}}); err != nil {
		return err
	}
	var asks []viewCall
	for n := uint32(1); n <= current; n++ {
		asks = append(asks, viewCall{of: controller, method: "epochs", args: []any{n}, out: func(o map[string]any) {
			epoch := only(o, "startsAt", "endsAt", "weekly", "rolledOver", "dealBudget7", "dealBudget21", "liquidityBudget", "reserved7", "reserved21", "released", "rate7", "rate21", "lenderShareBps")
			epoch["n"] = fmt.Sprint(n)
			if price := o["priceUSDGPerSTKN"].(*big.Int); price.Sign() > 0 {
				epoch["priceUSDGPerSTKN"] = decimal(price, big.NewInt(1e18))
			} else { // no rates are set
				for _, name := range []string{"rate7", "rate21", "lenderShareBps", "priceUSDGPerSTKN"} {
					epoch[name] = none
				}
			}
			a.epochs = append(a.epochs, epoch)
		}})
	}
	return a.calls(ctx, asks)
}

func (a *asking) registry(ctx context.Context) error {
	const registry, token = "AssetRegistry", "StockToken"
	var tokens []common.Address
	if err := a.calls(ctx, []viewCall{{of: registry, method: "tokens", args: []any{new(big.Int), big.NewInt(1000)}, out: func(o map[string]any) {
		tokens = o["page"].([]common.Address)
	}}}); err != nil {
		return err
	}
	var asks []viewCall
	said := map[common.Address]map[string]any{}
	for _, at := range tokens {
		asset := fields{"token": lower(at), "decimals": "0"}
		a.assets[lower(at)] = asset
		asks = append(asks, viewCall{of: registry, method: "asset", args: []any{at}, out: func(o map[string]any) {
			for _, name := range []string{"allowed", "minAmount", "maxDealRaw", "maxOpenRaw", "openRaw"} {
				asset[name] = printed(o[name])
			}
			asset["lane"] = laneNames[o["lane"].(uint8)]
		}})
		said[at] = map[string]any{}
		for _, method := range []string{"uiMultiplier", "newUIMultiplier", "effectiveAt", "paused", "oraclePaused"} {
			asks = append(asks, viewCall{of: token, token: at, method: method, may: true, out: func(o map[string]any) { said[at][method] = o[""] }})
		}
		if a.fixed[at] == nil {
			fixed := fields{}
			a.fixed[at] = fixed
			for _, method := range []string{"symbol", "name", "decimals"} {
				asks = append(asks, viewCall{of: token, token: at, method: method, may: true, out: func(o map[string]any) { fixed[method] = printed(o[""]) }})
			}
		}
	}
	err := a.calls(ctx, asks)
	for _, at := range tokens {
		a.asset(at, said[at])
	}
	return err
}

// asset says what a token itself says. Whoever says nothing of something has null.
func (a *asking) asset(at common.Address, said map[string]any) {
	asset := a.assets[lower(at)]
	maps.Copy(asset, a.fixed[at])
	for _, name := range []string{"uiMultiplier", "pendingMultiplier", "effectiveAt", "paused"} {
		asset[name] = none
	}
	if now, is := said["uiMultiplier"].(*big.Int); is {
		asset["uiMultiplier"] = now.String()
		if next := said["newUIMultiplier"].(*big.Int); said["effectiveAt"].(*big.Int).Uint64() > a.time && next.Cmp(now) != 0 {
			asset["pendingMultiplier"] = next.String()
		}
		asset["effectiveAt"] = printed(said["effectiveAt"])
	}
	paused, is := said["paused"].(bool)
	halted, too := said["oraclePaused"].(bool)
	if is || too {
		asset["paused"] = fmt.Sprint(paused || halted)
	}
}
