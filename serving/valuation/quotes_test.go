package valuation

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

type quoteParams struct {
	PoolKey     poolKey
	ZeroForOne  bool
	ExactAmount *big.Int
	HookData    []byte
}

// quoterSays asks V4Quoter hop by hop, at the block of the pipeline.
func (w *world) quoterSays(r routeBody, exactIn bool, amount *big.Int) *big.Int {
	w.t.Helper()
	s := w.state()
	method, hops := "quoteExactInputSingle", r.Hops
	if !exactIn {
		method, hops = "quoteExactOutputSingle", slices.Clone(r.Hops)
		slices.Reverse(hops)
	}
	for _, h := range hops {
		p := s.byID(common.HexToHash(h.PoolID))
		values, err := w.call("V4Quoter", w.dep.V4Quoter, method, quoteParams{keyOf(p), common.HexToAddress(h.TokenIn) == p.Currency0, amount, nil})
		if err != nil {
			w.t.Fatal(err)
		}
		amount = values[0].(*big.Int)
	}
	return amount
}

// TestQuotesEqualV4Quoter: to the wei, by one pool and by two, exact in and exact out, block after block.
func TestQuotesEqualV4Quoter(t *testing.T) {
	w := newWorld(t)
	random := rand.New(rand.NewPCG(1, 1))
	tokens := []string{"ETH", w.dep.TKN.Hex(), w.dep.STKN.Hex()}
	for _, p := range w.state().pools {
		if other, ok := p.other(w.dep.USDG); ok {
			tokens = append(tokens, other.Hex())
		}
	}
	compared, narrow := 0, 0
	for range 6 {
		for _, to := range tokens {
			usdg := strconv.FormatInt(random.Int64N(1<<uint(10+random.IntN(34)))+1, 10)
			var out payoutBody
			w.get("/quote/payout?usdg="+usdg+"&to="+to, &out)
			in, _ := new(big.Int).SetString(usdg, 10)
			if want := w.quoterSays(out.Route, true, in).String(); out.AmountOut != want {
				t.Errorf("%s raw USDG in %s: %s, V4Quoter %s", usdg, to, out.AmountOut, want)
			}
			compared++
		}
		eth := strconv.FormatInt(random.Int64N(1<<62)+1, 10)
		var entry entryBody
		w.get("/quote/entry?eth="+eth, &entry)
		in, _ := new(big.Int).SetString(eth, 10)
		if want := w.quoterSays(entry.Route, true, in).String(); entry.USDGOut != want {
			t.Errorf("%s wei: %s, V4Quoter %s", eth, entry.USDGOut, want)
		}
		for _, pay := range []string{"ETH", w.dep.USDG.Hex()} {
			own := w.state().byID(w.dep.PoolID)
			middle := own.Tick / own.TickSpacing * own.TickSpacing
			half := []int32{887_220 - max(middle, -middle), 12_000, 1200}[random.IntN(3)]
			path := fmt.Sprintf("/quote/reinvest?route=match&tickLower=%d&tickUpper=%d&payAsset=%s&amount=%s", middle-half, middle+half, pay, eth)
			status, body := w.ask(path)
			if status == 503 { // what a narrow range takes may be too far from what it takes at the reference
				continue
			}
			var match matchBody
			if err := json.Unmarshal(body, &match); err != nil || status != 200 || match.Route == nil {
				t.Fatalf("%s answered %d: %s, %v", path, status, body, err)
			}
			if half < 100_000 {
				narrow++
			}
			needed, _ := new(big.Int).SetString(match.TKNNeeded, 10)
			if want := w.quoterSays(*match.Route, false, needed).String(); match.PayAmount != want {
				t.Errorf("%s of TKN for %s: %s, V4Quoter %s", match.TKNNeeded, pay, match.PayAmount, want)
			}
			compared++
		}
		w.play(2)
	}
	if narrow < 2 {
		t.Errorf("only %d narrow ranges were matched", narrow)
	}
	t.Logf("%d quotes, %d for narrow ranges", compared+6, narrow)
}

// TestQuotesWithAProtocolFee: no event that the pipeline follows tells of a protocol fee. What is set in a block is in the
// quotes of that block, in each direction its own.
func TestQuotesWithAProtocolFee(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	w.mine(1800)
	manager := w.uniswap["PoolManager"].ABI
	w.mine(1, by.call(w.dep.PoolManager, manager, "setProtocolFeeController", by.address))
	random := rand.New(rand.NewPCG(2, 2))
	compared := 0
	for range 4 {
		for _, p := range w.state().pools {
			token, ok := p.other(w.dep.USDG)
			if !ok {
				continue
			}
			w.mine(1, by.call(w.dep.PoolManager, manager, "setProtocolFee", keyOf(p), big.NewInt(random.Int64N(1001)|random.Int64N(1001)<<12)))
			to := token.Hex()
			if token == (common.Address{}) {
				to = "ETH"
			}
			in := big.NewInt(random.Int64N(1<<uint(10+random.IntN(30))) + 1)
			var out payoutBody
			w.get("/quote/payout?usdg="+in.String()+"&to="+to, &out)
			if want := w.quoterSays(out.Route, true, in).String(); out.AmountOut != want {
				t.Errorf("%s raw USDG in %s: %s, V4Quoter %s", in, to, out.AmountOut, want)
			}
			eth := big.NewInt(random.Int64N(1<<60) + 1)
			var entry entryBody
			w.get("/quote/entry?eth="+eth.String(), &entry)
			if want := w.quoterSays(entry.Route, true, eth).String(); entry.USDGOut != want {
				t.Errorf("%s wei: %s, V4Quoter %s", eth, entry.USDGOut, want)
			}
			compared++
		}
	}
	if compared < 8 {
		t.Errorf("only %d pools had a fee", compared)
	}
}
