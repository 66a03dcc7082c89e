package simulation

import (
	"fmt"
	"math/big"
	"slices"
)

const (
	hourOfTime = uint64(60 * 60)
	dayOfTime  = 24 * hourOfTime
	weekOfTime = 7 * dayOfTime
)

// stats holds the sums over all deals, and their history.
func (h *holding) stats() {
	stats := h.answer("/stats")
	nested := func(name string) map[string]any {
		o, _ := stats[name].(map[string]any)
		return o
	}
	states := fields{}
	for _, state := range stateNames {
		states[state] = fmt.Sprint(len(some(h.deals, "state", state)))
	}
	counts := nested("deals")
	h.object("sums", "/stats: deals", counts, fields{"total": fmt.Sprint(len(h.deals)), "active": states["FUNDED"]})
	h.object("sums", "/stats: deals by state", counts["byState"], states)
	for name, field := range map[string]string{"fees": "fee", "volume": "price"} {
		h.object("sums", "/stats: "+name, nested(name), fields{
			"total": h.funded(field, 0, h.time+1), "last24h": h.funded(field, since(h.time, dayOfTime), h.time+1), "last7d": h.funded(field, since(h.time, weekOfTime), h.time+1),
		})
	}
	h.medians(nested("medians"))
	released := none
	if len(h.epochs) > 0 {
		released = h.epochs[len(h.epochs)-1]["released"]
	}
	rate := h.layer.rate
	if rate == "" {
		rate = none
	}
	h.object("sums", "/stats: emissions", nested("emissions"), fields{"ratePerSecond": rate, "releasedThisEpoch": released})
	h.object("sums", "/stats", stats, fields{"asOf": fmt.Sprint(h.time)})
	h.hours(stats)
	h.locked("/stats", nested("tvl"), h.views)
	assets, _ := nested("tvl")["byAsset"].([]any)
	locked := h.collateral()
	for _, asset := range assets {
		a, _ := asset.(map[string]any)
		if of := locked[[2]string{fmt.Sprint(a["token"]), fmt.Sprint(a["lane"])}]; of != nil && a["lane"] != laneNames[3] {
			h.object("locked", fmt.Sprint("/stats: locked of ", a["token"]), a, fields{"raw": of.Text('f', 0)})
		} else if of != nil {
			h.near(fmt.Sprint("/stats: locked in positions of ", a["token"]), a["raw"], of, rawUnits)
		} else {
			h.differs("/stats: locked", asset, none)
		}
	}
	unpriced := []any{}
	for _, asset := range assets {
		a, _ := asset.(map[string]any)
		num, den := h.price(fmt.Sprint(a["token"]), h.usdg)
		if num == nil {
			unpriced = append(unpriced, a["token"])
			h.object("locked", "/stats: a token without a price", a, fields{"usdg": none})
			continue
		}
		worth := num.Mul(num, bigOf(fmt.Sprint(a["raw"])))
		h.object("locked", fmt.Sprint("/stats: locked of ", a["token"]), a, fields{"usdg": worth.Quo(worth, den).String()})
	}
	if said := nested("tvl")["unpriced"]; fmt.Sprint(said) != fmt.Sprint(slices.Compact(unpriced)) {
		h.differs("/stats: unpriced", said, unpriced)
	}
	if len(assets) != len(locked) {
		h.differs("/stats: assets that are locked", len(assets), len(locked))
	}
	days, _ := h.answer("/stats/history")["days"].([]any)
	for _, day := range days {
		d, _ := day.(map[string]any)
		start := bigOf(fmt.Sprint(d["day"])).Uint64()
		what := fmt.Sprint("/stats/history: day ", start)
		h.compared["day"]++
		h.object("day", what, d["volume"], fields{"usdg": h.funded("price", start, start+dayOfTime), "fees": h.funded("fee", start, start+dayOfTime)})
		of, _ := d["tvl"].(map[string]any)
		if last := h.until(start + dayOfTime - 1); last != nil {
			h.locked(what, of, last)
		}
	}
	if last := h.time / dayOfTime * dayOfTime; len(days) == 0 || fmt.Sprint(days[len(days)-1].(map[string]any)["day"]) != fmt.Sprint(last) {
		h.differs("/stats/history: last day", days, last)
	}
}

// since is the second after the last one that is not of a window.
func since(now, window uint64) uint64 {
	if now < window {
		return 0
	}
	return now - window + 1
}

// funded adds up a field of the deals that were funded in a time.
func (v *views) funded(name string, from, before uint64) string {
	return sum(v.deals, name, func(d fields) bool {
		if d["fundedAt"] == none {
			return false
		}
		at := bigOf(d["fundedAt"]).Uint64()
		return from <= at && at < before
	}).String()
}

// until is the state at the end of a second: that of the last block before. Nil: there was none.
func (v *views) until(second uint64) *views {
	for v != nil && v.time > second {
		v = v.before
	}
	return v
}

// medians are the middle number, or the mean of the two in the middle.
func (h *holding) medians(got map[string]any) {
	all := map[string][]*big.Int{"costBps7d": nil, "costBps21d": nil, "timeToFundSeconds": nil}
	for _, d := range h.deals {
		if d["fundedAt"] == none {
			continue
		}
		price := bigOf(d["price"])
		cost := new(big.Int).Sub(bigOf(d["cap"]), price)
		cost.Mul(cost, big.NewInt(10_000)).Quo(cost, price)
		name := "costBps21d"
		if d["term"] == fmt.Sprint(weekOfTime) {
			name = "costBps7d"
		}
		all[name] = append(all[name], cost)
		all["timeToFundSeconds"] = append(all["timeToFundSeconds"], new(big.Int).Sub(bigOf(d["fundedAt"]), bigOf(d["listedAt"])))
	}
	want := fields{}
	for name, of := range all {
		want[name] = none
		if n := len(of); n > 0 {
			slices.SortFunc(of, (*big.Int).Cmp)
			middle := new(big.Int).Add(of[(n-1)/2], of[n/2])
			want[name] = middle.Rsh(middle, 1).String()
		}
	}
	h.object("sums", "/stats: medians", got, want)
}

// hours holds the hourly lists of a week: what was funded, and the price of sTKN.
func (h *holding) hours(stats map[string]any) {
	volumes, _ := stats["volumeHistory"].([]any)
	start := h.time / hourOfTime
	if start -= min(start, weekOfTime/hourOfTime); len(volumes) != int(h.time/hourOfTime-start)+1 {
		h.differs("/stats: hours", len(volumes), h.time/hourOfTime-start+1)
	}
	for i, hour := range volumes {
		from := (start + uint64(i)) * hourOfTime
		h.object("hour", "/stats: volume of an hour", hour, fields{
			"t": fmt.Sprint(from), "volume": h.funded("price", from, from+hourOfTime), "fees": h.funded("fee", from, from+hourOfTime),
		})
	}
	points, _ := stats["priceHistory"].([]any)
	for _, point := range points {
		p, _ := point.(map[string]any)
		t := bigOf(fmt.Sprint(p["t"])).Uint64()
		if t < h.time {
			t-- // it is the end of the hour before
		}
		v := h.until(t)
		if v == nil || v.layer.staking == nil {
			h.differs(fmt.Sprint("/stats: price at ", p["t"]), p, none)
			continue
		}
		want := fields{"priceSTKNinTKN": v.layer.staking["priceSTKNinTKN"], "priceUSDGPerSTKN": none}
		if num, den := v.price(h.stkn, h.usdg); num != nil { // whole sTKN have 18 digits, whole USDG 6
			want["priceUSDGPerSTKN"] = decimal(num.Mul(num, big.NewInt(1e12)), den)
		}
		h.object("price", fmt.Sprint("/stats: price at ", p["t"]), p, want)
	}
	if h.layer.staking != nil && len(points) == 0 {
		h.differs("/stats: prices", "none", h.layer.staking["priceSTKNinTKN"])
	}
}

// price is what a raw unit is worth in raw USDG, as a fraction: in the one pool with both, or through the pool of TKN that is not
// open to deals. Each pair of tokens has one pool in this scenario.
func (v *views) price(token, usdg string) (num, den *big.Int) {
	if token == usdg {
		return big.NewInt(1), big.NewInt(1)
	}
	of := func(token, in string) (num, den *big.Int) {
		for id, key := range v.logged.pools {
			p, is := v.pools[id]
			if !is || p.sqrtPrice.Sign() == 0 || p.liquidity.Sign() == 0 || !p.allowed && id.Hex() != v.layer.staking["poolId"] {
				continue
			}
			square := new(big.Int).Mul(p.sqrtPrice, p.sqrtPrice)
			switch one := new(big.Int).Lsh(big.NewInt(1), 192); {
			case key["currency0"] == token && key["currency1"] == in:
				return square, one
			case key["currency1"] == token && key["currency0"] == in:
				return one, square
			}
		}
		return nil, nil
	}
	if num, den = of(token, usdg); num != nil || v.layer.staking == nil {
		return num, den
	}
	hop := v.layer.staking["currency0"]
	if hop == token {
		hop = v.layer.staking["currency1"]
	}
	num, den = of(token, hop)
	through, by := of(hop, usdg)
	if num == nil || through == nil {
		return nil, nil
	}
	return num.Mul(num, through), den.Mul(den, by)
}

// collateral is that of the deals that are listed or funded, by token and lane; what is in positions is about right.
func (v *views) collateral() map[[2]string]*big.Float {
	all := map[[2]string]*big.Float{}
	add := func(token, lane string, amount *big.Float) {
		if amount.Sign() == 0 {
			return
		}
		key := [2]string{token, lane}
		if all[key] == nil {
			all[key] = new(big.Float).SetPrec(512)
		}
		all[key].Add(all[key], amount)
	}
	for _, d := range v.deals {
		switch {
		case d["state"] != "LISTED" && d["state"] != "FUNDED":
		case d["kind"] == kindNames[0]:
			add(d["token"], d["lane"], precise(bigOf(d["amountOrTokenId"])))
		default:
			for _, p := range v.inPositions[d["amountOrTokenId"]] {
				add(p.token, d["lane"], p.amountOr())
			}
		}
	}
	return all
}

// locked holds a sum of values, and its parts: each asset is rounded down once.
func (h *holding) locked(what string, got map[string]any, v *views) {
	h.compared["locked"]++
	sum, byLane := new(big.Float).SetPrec(512), map[string]*big.Float{}
	for _, lane := range laneNames {
		byLane[lane] = new(big.Float).SetPrec(512)
	}
	for key, amount := range v.collateral() {
		num, den := v.price(key[0], h.usdg)
		if num == nil {
			continue
		}
		worth := new(big.Float).Mul(amount, precise(num))
		whole, _ := worth.Quo(worth, precise(den)).Int(nil)
		sum.Add(sum, precise(whole))
		byLane[key[1]].Add(byLane[key[1]], precise(whole))
	}
	h.near(what+": locked", got["usdg"], sum, rawUnits)
	lanes, _ := got["byLane"].(map[string]any)
	for lane, want := range byLane {
		h.near(what+": locked in lane "+lane, lanes[lane], want, rawUnits)
	}
}
