package contracts

import (
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
)

// exchange is a random pool of the real PoolManager beside what the ticks of its positions say it is.
type exchange struct {
	*market
	random    *rand.Rand
	key       poolKey
	id        common.Hash
	donate    common.Address
	positions []heldPosition
	extreme   bool
}

type heldPosition struct {
	tokenID      *big.Int
	lower, upper int64
	liquidity    *big.Int
}

// modify runs actions of the PositionManager, which pays from its own balance.
func (x *exchange) modify(t testing.TB, actions []byte, params ...[]byte) {
	t.Helper()
	unlock := pack(t, []string{"bytes", "bytes[]"}, actions, params)
	x.must(t, alice, x.PositionManager, "modifyLiquidities", unlock, x.now+1)
}

func pack(t testing.TB, types []string, values ...any) []byte {
	t.Helper()
	arguments := make(abi.Arguments, len(types))
	for i, name := range types {
		if name == "key" {
			arguments[i].Type = newType(t, "tuple",
				abi.ArgumentMarshaling{Name: "currency0", Type: "address"}, abi.ArgumentMarshaling{Name: "currency1", Type: "address"},
				abi.ArgumentMarshaling{Name: "fee", Type: "uint24"}, abi.ArgumentMarshaling{Name: "tickSpacing", Type: "int24"},
				abi.ArgumentMarshaling{Name: "hooks", Type: "address"})
			continue
		}
		arguments[i].Type = newType(t, name)
	}
	packed, err := arguments.Pack(fitAll(t, arguments, values)...)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func (x *exchange) mintRange(t testing.TB, lower, upper int64, liquidity *big.Int) {
	t.Helper()
	tokenID := x.number(t, x.PositionManager, "nextTokenId")
	most := new(big.Int).Lsh(big.NewInt(1), 127)
	x.modify(t, []byte{0x02, 0x0b, 0x0b}, // mint, settle twice
		pack(t, []string{"key", "int24", "int24", "uint256", "uint128", "uint128", "address", "bytes"},
			x.key, lower, upper, liquidity, most, most, alice, []byte{}),
		pack(t, []string{"address", "uint256", "bool"}, x.key.Currency0, 0, false),
		pack(t, []string{"address", "uint256", "bool"}, x.key.Currency1, 0, false))
	x.positions = append(x.positions, heldPosition{tokenID, lower, upper, liquidity})
}

// shrink takes a part of a position out, and with it the fees of all of it.
func (x *exchange) shrink(t testing.TB, p *heldPosition, part *big.Int) {
	t.Helper()
	x.modify(t, []byte{0x01, 0x11}, // decrease, take both
		pack(t, []string{"uint256", "uint256", "uint128", "uint128", "bytes"}, p.tokenID, part, 0, 0, []byte{}),
		pack(t, []string{"address", "address", "address"}, x.key.Currency0, x.key.Currency1, alice))
	p.liquidity = new(big.Int).Sub(p.liquidity, part)
}

// burn destroys a position and says what it paid.
func (x *exchange) burn(t testing.TB, p heldPosition) (paid [2]*big.Int) {
	t.Helper()
	tokens := [2]common.Address{x.key.Currency0, x.key.Currency1}
	for i, token := range tokens {
		paid[i] = x.number(t, token, "balanceOf", carol)
	}
	x.modify(t, []byte{0x03, 0x11},
		pack(t, []string{"uint256", "uint128", "uint128", "bytes"}, p.tokenID, 0, 0, []byte{}),
		pack(t, []string{"address", "address", "address"}, tokens[0], tokens[1], carol))
	for i, token := range tokens {
		paid[i].Sub(x.number(t, token, "balanceOf", carol), paid[i])
	}
	return paid
}

// pool is what ammv4 computes with: the price and the fees from StateView, the ticks from the positions.
func (x *exchange) pool(t testing.TB) *ammv4.Pool {
	t.Helper()
	slot0, _, err := x.call(t, alice, x.StateView, "getSlot0", x.id)
	if err != nil {
		t.Fatal(err)
	}
	numbers := [4]*big.Int{}
	for i := range slot0 {
		numbers[i] = slot0[i].(*big.Int)
	}
	p := &ammv4.Pool{
		SqrtPriceX96: *uint256From(numbers[0]), Tick: int32(numbers[1].Int64()),
		ProtocolFee: uint32(numbers[2].Uint64()), LPFee: uint32(numbers[3].Uint64()), TickSpacing: int32(x.key.TickSpacing.Int64()),
		Liquidity: *uint256From(x.number(t, x.StateView, "getLiquidity", x.id)),
	}
	net := map[int32]*big.Int{}
	for _, q := range x.positions {
		for tick, sign := range map[int64]int64{q.lower: 1, q.upper: -1} {
			if net[int32(tick)] == nil {
				net[int32(tick)] = new(big.Int)
			}
			net[int32(tick)].Add(net[int32(tick)], new(big.Int).Mul(q.liquidity, big.NewInt(sign)))
		}
	}
	for index, sum := range net {
		word, _ := uint256.FromBig(sum)
		tick, err := ammv4.NewTick(index, word)
		if err != nil {
			t.Fatal(err)
		}
		p.Ticks = append(p.Ticks, tick)
	}
	slices.SortFunc(p.Ticks, func(a, b ammv4.Tick) int { return int(a.Index) - int(b.Index) })
	return p
}

// amount is any number of up to so many bits, small ones as often as large ones.
func (x *exchange) amount(bits int) *big.Int {
	n := new(big.Int).SetUint64(x.random.Uint64() | 1<<63)
	shift := x.random.IntN(bits) + 1 - 64
	if shift > 0 {
		return n.Lsh(n, uint(shift))
	}
	return n.Rsh(n, uint(-shift))
}

// quoted is what V4Quoter says; a refusal is its error.
func (x *exchange) quoted(t testing.TB, zeroForOne, exactIn bool, amount *big.Int) (*big.Int, error) {
	t.Helper()
	method := "quoteExactOutputSingle"
	if exactIn {
		method = "quoteExactInputSingle"
	}
	values, _, err := x.call(t, alice, x.V4Quoter, method, struct {
		PoolKey     poolKey
		ZeroForOne  bool
		ExactAmount *big.Int
		HookData    []byte
	}{x.key, zeroForOne, amount, nil})
	if err != nil {
		return nil, err
	}
	return values[0].(*big.Int), nil
}

// newExchange opens a pool at random and puts positions around its price. An extreme one may be at the end of prices, have
// the widest spacing, and take all for its fee.
func newExchange(t testing.TB, base *market, donate common.Address, random *rand.Rand, extreme bool) *exchange {
	t.Helper()
	x := &exchange{market: base.fork(), random: random, donate: donate, extreme: extreme}
	spacing := []int64{1, 10, 60, 200}[random.IntN(4)]
	if extreme {
		spacing = []int64{1, 60, 16_383, 32_767}[random.IntN(4)]
	}
	x.key = x.market.key(x.TKN, x.stock)
	x.key.Fee, x.key.TickSpacing = big.NewInt(random.Int64N(60_000)), big.NewInt(spacing)
	if random.IntN(6) == 0 {
		x.key.Fee = new(big.Int)
	}
	tick, bits := int32(random.IntN(60_000)-30_000), 80
	if extreme {
		tick, bits = int32(random.IntN(2*ammv4.MaxTick)-ammv4.MaxTick), 50
		if random.IntN(2) == 0 { // within a word of the end
			tick = ammv4.MinTick + int32(random.IntN(300))
			if random.IntN(2) == 0 {
				tick = ammv4.MaxTick - 1 - int32(random.IntN(300))
			}
		}
		if random.IntN(4) == 0 {
			x.key.Fee = big.NewInt(1_000_000 - random.Int64N(2)*random.Int64N(1000))
		}
	}
	x.id = x.key.id(t)
	price, err := ammv4.SqrtPriceAtTick(tick)
	if err != nil {
		t.Fatal(err)
	}
	x.must(t, owner, x.PoolManager, "initialize", x.key, price.ToBig())
	if random.IntN(2) == 0 {
		x.must(t, owner, x.PoolManager, "setProtocolFee", x.key, random.IntN(1001)|random.IntN(1001)<<12)
	}
	for range 1 + random.IntN(8) {
		width := (1 + random.Int64N(300)) * (1 + random.Int64N(10))
		lower := (int64(tick)/spacing + random.Int64N(2*width) - width - width/2)
		widest := ammv4.MaxTick / spacing
		lower = min(max(lower, -widest), widest-1)
		x.mintRange(t, lower*spacing, min(lower+width, widest)*spacing, x.amount(bits))
	}
	return x
}

// newExchanges is a market whose PositionManager and people have of two tokens as much as any test takes.
func newExchanges(t testing.TB) (*market, common.Address) {
	t.Helper()
	m := newMarket(t)
	m.gas = 1_000_000_000
	artifact, err := readFoundryArtifact("node_modules/@uniswap/v4-periphery/foundry-out/PoolDonateTest.sol/PoolDonateTest.json")
	if err != nil {
		t.Fatal(err)
	}
	donate := m.deploy(t, owner, artifact, m.PoolManager)
	m.must(t, owner, m.PoolManager, "setProtocolFeeController", owner)
	plenty := new(big.Int).Lsh(big.NewInt(1), 125)
	for _, token := range []common.Address{m.TKN, m.stock} {
		for _, who := range []common.Address{m.PositionManager, alice} {
			m.must(t, owner, token, "mint", who, plenty)
		}
		m.must(t, alice, token, "approve", donate, plenty)
		m.must(t, alice, token, "approve", m.swap, plenty)
	}
	return m, donate
}

// TestAgainstUniswap holds quotes, swaps and positions of random pools against the real contracts, to the wei. `make pools`
// takes 2,000 of them.
func TestAgainstUniswap(t *testing.T) {
	pools, seed := fromEnv(t, "LIENSTREAM_POOLS", 25), uint64(fromEnv(t, "LIENSTREAM_SEED", 4663))
	if testing.Short() {
		pools = 4
	}
	m, donate := newExchanges(t)
	random := rand.New(rand.NewPCG(seed, 1))
	quotes, refusals, burnt := 0, 0, 0
	for n := range pools {
		x := newExchange(t, m, donate, random, n%4 == 3)
		for range 6 {
			p := x.pool(t)
			for range 10 {
				if x.compareQuote(t, n, p) {
					quotes++
				} else {
					refusals++
				}
			}
			x.compareSwap(t, n, p)
			if random.IntN(3) == 0 && !p.Liquidity.IsZero() {
				// Refused where the swap left no liquidity in range.
				_, _, _ = x.call(t, alice, x.donate, "donate", x.key, x.amount(40), x.amount(40), []byte{})
			}
			if random.IntN(3) == 0 {
				q := &x.positions[random.IntN(len(x.positions))]
				x.shrink(t, q, new(big.Int).Rsh(q.liquidity, uint(1+random.IntN(4))))
			}
		}
		for i := range x.positions {
			x.comparePosition(t, n, x.positions[i])
			burnt++
		}
	}
	t.Logf("%d quotes, %d refusals and %d positions of %d pools, seed %d", quotes, refusals, burnt, pools, seed)
	if quotes < pools*15 || refusals < pools {
		t.Errorf("%d quotes and %d refusals: the pools are not what they are meant to be", quotes, refusals)
	}
}

// fromEnv is a positive number of the environment, or the one given where there is none.
func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	value, set := os.LookupEnv(name)
	if !set {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		t.Fatalf("%s: %q is not a positive number", name, value)
	}
	return n
}

func (x *exchange) compareQuote(t *testing.T, pool int, p *ammv4.Pool) bool {
	t.Helper()
	bits := 84
	if x.extreme {
		bits = 127
	}
	zeroForOne, exactIn, amount := x.random.IntN(2) == 0, x.random.IntN(2) == 0, x.amount(bits)
	want, refused := x.quoted(t, zeroForOne, exactIn, amount)
	var r ammv4.Result
	err := p.Quote(&r, zeroForOne, exactIn, uint256From(amount))
	got := &r.In
	if exactIn {
		got = &r.Out
	}
	switch {
	case refused == nil && err == nil:
		if got.ToBig().Cmp(want) != 0 {
			t.Fatalf("pool %d, zeroForOne %t, exactIn %t, amount %s: %s, V4Quoter says %s", pool, zeroForOne, exactIn, amount, got, want)
		}
		return true
	case refused == nil || err == nil:
		t.Fatalf("pool %d, zeroForOne %t, exactIn %t, amount %s: %v, V4Quoter %v", pool, zeroForOne, exactIn, amount, err, refused)
	}
	return false
}

// compareSwap moves the pool, to the end of its liquidity now and then, and compares where it is after.
func (x *exchange) compareSwap(t *testing.T, pool int, p *ammv4.Pool) {
	t.Helper()
	s := ammv4.Swap{ZeroForOne: x.random.IntN(2) == 0, ExactIn: x.random.IntN(2) == 0}
	amount := x.amount(80)
	s.Amount = *uint256From(amount)
	ticks := int32(x.random.IntN(4000) + 1)
	if s.ZeroForOne {
		ticks = -ticks
	}
	limit, err := ammv4.SqrtPriceAtTick(min(max(p.Tick+ticks, ammv4.MinTick+1), ammv4.MaxTick-1))
	if err != nil {
		t.Fatal(err)
	}
	s.Limit = *limit
	specified := amount
	if s.ExactIn {
		specified = new(big.Int).Neg(amount)
	}
	before := x.growth(t, s.ZeroForOne)
	refused := x.exchange(t, s.ZeroForOne, specified, limit)
	var r ammv4.Result
	err = p.Swap(&r, &s)
	if x.extreme && err != nil && refused != nil {
		return // at the limit already, or bought exactly where the fee takes all
	}
	if err != nil || refused != nil {
		t.Fatalf("pool %d, swap %+v: %v, the pool says %v", pool, s, err, refused)
	}
	after := x.pool(t)
	if !after.SqrtPriceX96.Eq(&r.SqrtPriceX96) || after.Tick != r.Tick || !after.Liquidity.Eq(&r.Liquidity) {
		t.Fatalf("pool %d, swap %+v: it is at %s, %d with %s, computed %s, %d with %s", pool, s,
			&after.SqrtPriceX96, after.Tick, &after.Liquidity, &r.SqrtPriceX96, r.Tick, &r.Liquidity)
	}
	if grown := new(uint256.Int).Sub(x.growth(t, s.ZeroForOne), before); !grown.Eq(&r.FeeGrowthX128) {
		t.Fatalf("pool %d, swap %+v: fees grew by %s, computed %s", pool, s, grown, &r.FeeGrowthX128)
	}
}

// exchange swaps on the chain; what is specified is negative where it comes in.
func (x *exchange) exchange(t testing.TB, zeroForOne bool, specified *big.Int, limit *uint256.Int) error {
	t.Helper()
	_, _, err := x.call(t, alice, x.swap, "swap", x.key, struct {
		ZeroForOne                         bool
		AmountSpecified, SqrtPriceLimitX96 *big.Int
	}{zeroForOne, specified, limit.ToBig()}, struct{ TakeClaims, SettleUsingBurn bool }{}, []byte{})
	return err
}

func (x *exchange) growth(t testing.TB, of0 bool) *uint256.Int {
	t.Helper()
	pair := x.pair(t, "getFeeGrowthGlobals", x.id)
	if of0 {
		return &pair[0]
	}
	return &pair[1]
}

func (x *exchange) pair(t testing.TB, method string, args ...any) (g ammv4.FeeGrowth) {
	t.Helper()
	values, _, err := x.call(t, alice, x.StateView, method, args...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range g {
		g[i] = *uint256From(values[len(values)-2+i].(*big.Int))
	}
	return g
}

// comparePosition burns a position on a copy of the chain: it pays its amounts and its fees.
func (x *exchange) comparePosition(t *testing.T, pool int, q heldPosition) {
	t.Helper()
	p := x.pool(t)
	lower, upper := int32(q.lower), int32(q.upper)
	global := x.pair(t, "getFeeGrowthGlobals", x.id)
	below, above := x.pair(t, "getTickFeeGrowthOutside", x.id, lower), x.pair(t, "getTickFeeGrowthOutside", x.id, upper)
	inside := ammv4.FeeGrowthInside(p.Tick, lower, upper, &global, &below, &above)
	if chain := x.pair(t, "getFeeGrowthInside", x.id, lower, upper); chain != inside {
		t.Fatalf("pool %d, position %s: growth inside %v, StateView says %v", pool, q.tokenID, inside, chain)
	}
	salt := common.BigToHash(q.tokenID)
	last := x.pair(t, "getPositionInfo0", x.id, x.PositionManager, lower, upper, salt)
	liquidity := uint256From(q.liquidity)
	owed := ammv4.FeesOwed(&inside, &last, liquidity)
	of0, of1, err := ammv4.Amounts(&p.SqrtPriceX96, p.Tick, lower, upper, liquidity)
	if err != nil {
		t.Fatal(err)
	}
	fork := *x
	fork.market = x.fork()
	paid := fork.burn(t, q)
	for i, amount := range []*uint256.Int{of0, of1} {
		if sum := new(uint256.Int).Add(amount, &owed[i]); sum.ToBig().Cmp(paid[i]) != 0 {
			t.Fatalf("pool %d, position %s: currency%d %s and fees %s, burnt it pays %s", pool, q.tokenID, i, amount, &owed[i], paid[i])
		}
	}
}

// TestZapAgainstUniswap carries out zaps: the swap, then the mint. They leave next to nothing.
func TestZapAgainstUniswap(t *testing.T) {
	m, donate := newExchanges(t)
	random := rand.New(rand.NewPCG(4663, 2))
	done := 0
	for n := range 40 {
		x := newExchange(t, m, donate, random, false)
		p := x.pool(t)
		if p.Liquidity.IsZero() {
			continue
		}
		spacing := int32(x.key.TickSpacing.Int64())
		of0, amount := random.IntN(2) == 0, new(uint256.Int).Lsh(uint256.NewInt(1), uint(30+random.IntN(40)))
		lower := (p.Tick/spacing - 1 - random.Int32N(200)) * spacing
		upper := lower + (2+random.Int32N(400))*spacing
		var z ammv4.Zapped
		if err := p.Zap(&z, of0, amount, lower, upper); err != nil || z.Liquidity.IsZero() {
			t.Fatalf("pool %d: zap of %s: %v", n, amount, err)
		}
		x.carryOut(t, n, &z, of0, amount, lower, upper)
		done++
	}
	if done < 10 {
		t.Errorf("only %d zaps", done)
	}
}

func (x *exchange) carryOut(t *testing.T, n int, z *ammv4.Zapped, of0 bool, amount *uint256.Int, lower, upper int32) {
	t.Helper()
	tokens := [2]common.Address{x.key.Currency0, x.key.Currency1}
	var have [2]uint256.Int
	kept, bought, limit := 1, 0, new(uint256.Int).SubUint64(ammv4.MaxSqrtPrice, 1)
	if of0 {
		kept, bought, limit = 0, 1, new(uint256.Int).AddUint64(ammv4.MinSqrtPrice, 1)
	}
	have[kept].Sub(amount, &z.Sold)
	have[bought] = z.Swap.Out
	if !z.Sold.IsZero() {
		if err := x.exchange(t, of0, new(big.Int).Neg(z.Sold.ToBig()), limit); err != nil {
			t.Fatalf("pool %d: %v", n, err)
		}
	}
	var before, left [2]*big.Int
	for i, token := range tokens {
		before[i] = x.number(t, token, "balanceOf", x.PositionManager)
	}
	x.mintRange(t, int64(lower), int64(upper), z.Liquidity.ToBig())
	for i, token := range tokens {
		spent := before[i].Sub(before[i], x.number(t, token, "balanceOf", x.PositionManager))
		left[i] = new(big.Int).Sub(have[i].ToBig(), spent)
		if spent.Cmp(z.Used[i].ToBig()) != 0 || left[i].Sign() < 0 {
			t.Fatalf("pool %d: currency%d took %s, computed %s of %s", n, i, spent, &z.Used[i], &have[i])
		}
	}
	if z.Swap.Out.IsZero() {
		return // the range takes only what is kept, or a unit of the other costs more than is wanted of it
	}
	// What is left of both, in the currency that was given. A unit or two of the other are not to be avoided.
	spare := max(left[bought].Int64()-2, 0)
	worth := new(big.Int).Mul(big.NewInt(spare), z.Sold.ToBig())
	worth.Quo(worth, z.Swap.Out.ToBig())
	unit := new(big.Int).Quo(z.Sold.ToBig(), z.Swap.Out.ToBig())
	worth.Add(worth, left[kept])
	most := new(big.Int).Add(new(big.Int).Quo(amount.ToBig(), big.NewInt(1_000_000)), unit.Mul(unit, big.NewInt(3)))
	if worth.Cmp(most.Add(most, big.NewInt(8))) > 0 {
		t.Errorf("pool %d: %s of %s are left over, a unit of the other costs %s", n, worth, amount, unit)
	}
}
