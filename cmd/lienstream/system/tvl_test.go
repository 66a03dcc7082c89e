package system

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// v4Pool is a pool of Uniswap v4 that says what a token is worth.
type v4Pool struct {
	currency  [2]common.Address
	sqrt      *big.Int // price, a root in units of 2^-96
	liquidity *big.Int
}

// worth is what a raw unit of one of the pool's currencies is in the other.
func (p *v4Pool) worth(token common.Address) *big.Rat {
	price := new(big.Rat).SetFrac(new(big.Int).Mul(p.sqrt, p.sqrt), new(big.Int).Lsh(big.NewInt(1), 192))
	if token == p.currency[1] {
		price.Inv(price)
	}
	return price
}

// reserve is how much of a currency the liquidity stands for.
func (p *v4Pool) reserve(of common.Address) *big.Rat {
	root := new(big.Rat).SetFrac(p.sqrt, new(big.Int).Lsh(big.NewInt(1), 96))
	if of == p.currency[0] {
		root.Inv(root)
	}
	return root.Mul(root, new(big.Rat).SetInt(p.liquidity))
}

// holds is a reserve in whole units.
func (p *v4Pool) holds(i int) *big.Rat { return new(big.Rat).SetInt(floor(p.reserve(p.currency[i]))) }

func (p *v4Pool) other(token common.Address) (common.Address, bool) {
	switch token {
	case p.currency[0]:
		return p.currency[1], true
	case p.currency[1]:
		return p.currency[0], true
	}
	return common.Address{}, false
}

// positionInfo is what the judge asks Uniswap's PositionManager about a position.
const positionInfo = `[{"type":"function","name":"getPoolAndPositionInfo","inputs":[{"type":"uint256"}],"outputs":[
 {"type":"tuple","name":"key","components":[{"name":"currency0","type":"address"},{"name":"currency1","type":"address"},
  {"name":"fee","type":"uint24"},{"name":"tickSpacing","type":"int24"},{"name":"hooks","type":"address"}]},
 {"type":"uint256","name":"info"}]}]`

// v4Pools are the pools that the registry allows, and that of sTKN, by their currencies.
func (j *judge) v4Pools(t *testing.T, block common.Hash) (pools []*v4Pool) {
	t.Helper()
	header, err := j.eth.HeaderByHash(t.Context(), block)
	if err != nil {
		t.Fatal(err)
	}
	manager := parseABI(t, `[{"type":"event","name":"Initialize","inputs":[{"name":"id","type":"bytes32","indexed":true},
	 {"name":"currency0","type":"address","indexed":true},{"name":"currency1","type":"address","indexed":true},
	 {"name":"fee","type":"uint24"},{"name":"tickSpacing","type":"int24"},{"name":"hooks","type":"address"},
	 {"name":"sqrtPriceX96","type":"uint160"},{"name":"tick","type":"int24"}]}]`)
	logs, err := j.eth.FilterLogs(t.Context(), ethereum.FilterQuery{
		FromBlock: new(big.Int).SetUint64(j.dep.StartBlock), ToBlock: header.Number,
		Addresses: []common.Address{j.dep.PoolManager, j.dep.AssetRegistry},
	})
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[common.Hash]bool{}
	if err := each(j.registry, j.dep.AssetRegistry, "PoolSet", logs, func(l *types.Log, v map[string]any) error {
		allowed[l.Topics[1]] = v["allowed"].(bool)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	allowed[j.dep.PoolID] = true
	v := parseABI(t, views)
	if err := each(manager, j.dep.PoolManager, "Initialize", logs, func(l *types.Log, e map[string]any) error {
		p := &v4Pool{currency: [2]common.Address{common.BytesToAddress(l.Topics[2][:]), common.BytesToAddress(l.Topics[3][:])}}
		const dynamic = 0x800000
		if e["hooks"].(common.Address) != (common.Address{}) && l.Topics[1] != j.dep.PoolID || e["fee"].(*big.Int).Int64() == dynamic || !allowed[l.Topics[1]] {
			return nil
		}
		pools = append(pools, p)
		return j.calls(t.Context(), block, j.dep.StateView, v, []call{
			{method: "getSlot0", args: []any{l.Topics[1]}, out: func(v []any) { p.sqrt = v[0].(*big.Int) }},
			{method: "getLiquidity", args: []any{l.Topics[1]}, out: func(v []any) { p.liquidity = v[0].(*big.Int) }},
		})
	}); err != nil {
		t.Fatal(err)
	}
	least := big.NewRat(100, 1) // of which a move of the price by 2 % takes out one unit
	return slices.DeleteFunc(pools, func(p *v4Pool) bool {
		return p.liquidity.Sign() == 0 || p.holds(0).Cmp(least) < 0 || p.holds(1).Cmp(least) < 0
	})
}

// dollars is what a raw unit of a token is in raw USDG: by its deepest pool with USDG, or by its deepest with a token that has
// one, whichever holds most of the other's worth. Nil: it has none, or another pool holds more than four times as much of the
// token, of this one or of one on the way.
func (j *judge) dollars(pools []*v4Pool, token common.Address) *big.Rat {
	if token == j.dep.USDG {
		return big.NewRat(1, 1)
	}
	type offer struct{ price, worth, tokens *big.Rat }
	chosen := func(all []offer) *big.Rat {
		best := slices.MaxFunc(all, func(a, b offer) int { return a.worth.Cmp(b.worth) })
		most := slices.MaxFunc(all, func(a, b offer) int { return a.tokens.Cmp(b.tokens) })
		if most.tokens.Cmp(new(big.Rat).Mul(best.tokens, big.NewRat(4, 1))) > 0 {
			return nil
		}
		return best.price
	}
	direct := func(token common.Address) (price *big.Rat, has bool) {
		var all []offer
		for _, p := range pools {
			if other, ok := p.other(token); ok && other == j.dep.USDG {
				all = append(all, offer{p.worth(token), p.reserve(other), p.reserve(token)})
			}
		}
		if len(all) == 0 {
			return nil, false
		}
		return chosen(all), true
	}
	if price, has := direct(token); has {
		return price
	}
	var all []offer
	for _, p := range pools {
		hop, ok := p.other(token)
		if !ok {
			continue
		}
		through, has := direct(hop)
		if has && through == nil {
			return nil
		}
		if has {
			all = append(all, offer{new(big.Rat).Mul(p.worth(token), through), new(big.Rat).Mul(p.reserve(hop), through), p.reserve(token)})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return chosen(all)
}

// floor is the integer part of a fraction.
func floor(r *big.Rat) *big.Int { return new(big.Int).Quo(r.Num(), r.Denom()) }

// equalTVL recomputes what is locked, and what it is worth, from the contracts alone. Amounts in positions
// are computed in floating point: to a millionth.
func equalTVL(t *testing.T, j *judge, tvl object, m *market, block string) {
	t.Helper()
	pools := j.v4Pools(t, hash(block))
	type line struct {
		token common.Address
		lane  string
	}
	locked := map[line]*big.Int{}
	add := func(l line, n *big.Int) {
		if locked[l] == nil {
			locked[l] = new(big.Int)
		}
		locked[l].Add(locked[l], n)
	}
	for _, d := range m.Deals {
		if d["state"] != "LISTED" && d["state"] != "FUNDED" {
			continue
		}
		if d["kind"] == "ERC20" {
			add(line{common.HexToAddress(d["token"].(string)), d["lane"].(string)}, amount(d["amountOrTokenId"]))
			continue
		}
		for token, n := range j.inPosition(t, hash(block), amount(d["amountOrTokenId"])) {
			add(line{token, "POSITION"}, n)
		}
	}
	maps.DeleteFunc(locked, func(_ line, n *big.Int) bool { return n.Sign() == 0 })
	sum, lanes, unpriced := new(big.Int), map[string]*big.Int{}, map[string]bool{}
	for _, got := range objects(tvl["byAsset"]) {
		l := line{common.HexToAddress(got["token"].(string)), got["lane"].(string)}
		near(t, "raw of "+text(got["token"]), amount(got["raw"]), locked[l], l.lane == "POSITION")
		delete(locked, l)
		price := j.dollars(pools, l.token)
		if price == nil {
			unpriced[text(got["token"])] = true
			equal(t, "usdg of "+text(got["token"]), got["usdg"], nil)
			continue
		}
		// Of the amount in the answer, which was compared already.
		worth := floor(price.Mul(price, new(big.Rat).SetInt(amount(got["raw"]))))
		near(t, "usdg of "+text(got["token"]), amount(got["usdg"]), worth, false)
		sum.Add(sum, worth)
		if lanes[l.lane] == nil {
			lanes[l.lane] = new(big.Int)
		}
		lanes[l.lane].Add(lanes[l.lane], worth)
	}
	for l, n := range locked {
		t.Fatalf("/stats tvl lacks %s of %s in lane %s", n, l.token, l.lane)
	}
	equal(t, "/stats tvl usdg", text(tvl["usdg"]), sum.String())
	if sum.Sign() == 0 {
		t.Fatal("nothing is worth anything: there is nothing to compare")
	}
	for lane, n := range tvl["byLane"].(object) {
		want := "0"
		if lanes[lane] != nil {
			want = lanes[lane].String()
		}
		equal(t, "/stats tvl in lane "+lane, text(n), want)
	}
	named := map[string]bool{}
	for _, token := range tvl["unpriced"].([]any) {
		named[token.(string)] = true
	}
	equal(t, "/stats tvl unpriced", named, unpriced)
}

// equalHistory compares the days with the statistics, which were compared with the chain: the last day has what is locked now,
// and all days together have what was ever funded, for the chain is younger than a year.
func equalHistory(t *testing.T, history, stats object) {
	t.Helper()
	days := objects(history["days"])
	tvl, last := stats["tvl"].(object), days[len(days)-1]["tvl"].(object)
	equal(t, "/stats/history last usdg", last["usdg"], tvl["usdg"])
	equal(t, "/stats/history last byLane", last["byLane"], tvl["byLane"])
	volume, fees := new(big.Int), new(big.Int)
	for _, d := range days {
		volume.Add(volume, amount(d["volume"].(object)["usdg"]))
		fees.Add(fees, amount(d["volume"].(object)["fees"]))
	}
	equal(t, "/stats/history volume", volume.String(), text(stats["volume"].(object)["total"]))
	equal(t, "/stats/history fees", fees.String(), text(stats["fees"].(object)["total"]))
}

func near(t *testing.T, what string, got, want *big.Int, about bool) {
	t.Helper()
	if want == nil {
		want = new(big.Int)
	}
	off := new(big.Int).Sub(got, want)
	if !about && off.Sign() != 0 || off.Abs(off).Mul(off, big.NewInt(1_000_000)).Cmp(new(big.Int).Add(want, big.NewInt(10_000_000))) > 0 {
		t.Fatalf("%s is %s, the chain says %s", what, got, want)
	}
}

// inPosition is how much of its two tokens is in a position.
func (j *judge) inPosition(t *testing.T, block common.Hash, id *big.Int) map[common.Address]*big.Int {
	t.Helper()
	a, info := parseABI(t, views), parseABI(t, positionInfo)
	var (
		liquidity, packed, sqrt *big.Int
		key                     object
	)
	err := j.calls(t.Context(), block, j.dep.PositionManager, info, []call{{method: "getPoolAndPositionInfo", args: []any{id}, out: func(v []any) {
		var err error
		if key, err = tuple(v[0]); err != nil {
			t.Fatal(err)
		}
		packed = v[1].(*big.Int)
	}}})
	if err == nil {
		err = j.calls(t.Context(), block, j.dep.PositionManager, a, []call{{method: "getPositionLiquidity", args: []any{id}, out: func(v []any) { liquidity = v[0].(*big.Int) }}})
	}
	if err != nil {
		t.Fatal(err)
	}
	// 200 bits of the pool's ID, upper tick, lower tick, 8 bits of a flag.
	err = j.calls(t.Context(), block, j.dep.StateView, a, []call{{method: "getSlot0", args: []any{poolID(t, key)}, out: func(v []any) { sqrt = v[0].(*big.Int) }}})
	if err != nil {
		t.Fatal(err)
	}
	tick := func(shift uint) float64 {
		n := int32(new(big.Int).Rsh(packed, shift).Uint64()&0xffffff) << 8 >> 8
		return math.Pow(1.0001, float64(n)/2)
	}
	root, _ := new(big.Rat).SetFrac(sqrt, new(big.Int).Lsh(big.NewInt(1), 96)).Float64()
	lower, upper := tick(8), tick(32)
	at := min(max(root, lower), upper)
	amounts := map[common.Address]*big.Int{}
	for currency, share := range map[string]float64{"currency0": 1/at - 1/upper, "currency1": at - lower} {
		n := new(big.Float).Mul(new(big.Float).SetInt(liquidity), big.NewFloat(share))
		whole, _ := n.Int(nil)
		amounts[common.HexToAddress(text(key[currency]))] = whole
	}
	return amounts
}

// poolID is the hash of a pool's key, word by word.
func poolID(t *testing.T, key object) common.Hash {
	t.Helper()
	var words []byte
	for _, field := range []string{"currency0", "currency1", "fee", "tickSpacing", "hooks"} {
		n, ok := new(big.Int).SetString(text(key[field]), 0)
		if !ok {
			t.Fatalf("%s of a pool's key: %v", field, key[field])
		}
		words = append(words, common.LeftPadBytes(n.Bytes(), 32)...)
	}
	return crypto.Keccak256Hash(words)
}
