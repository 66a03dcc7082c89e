package valuation

import (
	"context"
	"encoding/json"
	"math/big"
	"net/http/httptest"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestStateEqualsStateView holds the pipeline's pools against the chain's at every block, reorgs included: reading a
// state fails where price, tick or liquidity differ, and here every tick is compared too.
func TestStateEqualsStateView(t *testing.T) {
	w := newWorld(t)
	ticks, reorgs := 0, 0
	for round := range 12 {
		if round%3 == 2 {
			if err := w.scenario.Rewind(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			reorgs++
		}
		w.play(1)
		s := w.state()
		if s.at != w.at {
			t.Fatalf("as of block %d (%s), the chain is at %d (%s)", s.at.Number, s.at.Hash, w.at.Number, w.at.Hash)
		}
		for _, p := range s.pools {
			for i := range p.Ticks {
				values, err := w.call("StateView", w.dep.StateView, "getTickLiquidity", [32]byte(p.ID), big.NewInt(int64(p.Ticks[i].Index)))
				if err != nil {
					t.Fatal(err)
				}
				net, _ := uint256.FromBig(values[1].(*big.Int))
				if values[0].(*big.Int).Sign() == 0 || !net.Eq(&p.Ticks[i].Net) {
					t.Errorf("block %d, pool %s, tick %d: %s, StateView says %s", s.at.Number, p.ID, p.Ticks[i].Index, &p.Ticks[i].Net, net)
				}
				ticks++
			}
		}
	}
	t.Logf("%d ticks, %d reorgs", ticks, reorgs)
}

// TestWhatIsTheSameIsJudgedOnce: of pools that a block did not touch is said what was said before, and of all what
// would be said anew, after reorgs too.
func TestWhatIsTheSameIsJudgedOnce(t *testing.T) {
	w := newWorld(t)
	same, other := 0, 0
	before := w.state()
	for round := range 12 {
		if round%4 == 3 {
			if err := w.scenario.Rewind(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
		}
		w.play(1)
		s := w.state()
		for _, p := range s.pools {
			if p.stood == before.byID(p.ID).stood {
				same++
			} else {
				other++
			}
			anew := *p
			anew.stood = nil
			anew.judge(s.at.Timestamp, 1800, nil)
			for i, pair := range [][2]*pool{{p.stood, anew.stood}, {p.fair.low, anew.fair.low}, {p.fair.high, anew.fair.high}, {p.settled.low, anew.settled.low}, {p.settled.high, anew.settled.high}} {
				if !reflect.DeepEqual(pair[0].amm, pair[1].amm) || pair[0].depth != pair[1].depth && i != 0 {
					t.Errorf("block %d, pool %s, %d: it differs", s.at.Number, p.ID, i)
				}
			}
			if p.depth != anew.depth || p.reference != anew.reference {
				t.Errorf("block %d, pool %s: depth %v of %v, anew %v of %v", s.at.Number, p.ID, p.depth, p.reference, anew.depth, anew.reference)
			}
		}
		before = s
	}
	if same == 0 || other == 0 {
		t.Errorf("%d pools stayed the same, %d did not", same, other)
	}
}

// TestPositionsOfDeals: what a position is said to hold and to have earned is what the PositionManager's own state
// says.
func TestPositionsOfDeals(t *testing.T) {
	w := newWorld(t)
	w.play(30)
	compared := 0
	for id := range 200 {
		answer, err := w.service.reader.DealWithReward(t.Context(), uint256.NewInt(uint64(id)))
		if err != nil || answer.Value.Deal.Kind != contracts.KindPosition {
			continue
		}
		status, body := w.ask("/deals/" + answer.Value.Deal.ID.Dec() + "/valuation")
		if status == 503 {
			continue // a pool that the actors pushed too far
		}
		var b dealBody
		w.get("/deals/"+answer.Value.Deal.ID.Dec()+"/valuation", &b)
		if status != 200 || b.Position == nil {
			t.Fatalf("deal %d: %d %s", id, status, body)
		}
		p := w.state().byID(common.HexToHash(b.Position.PoolID))
		tokenID, _ := new(big.Int).SetString(b.Position.TokenID, 10)
		lower, upper := big.NewInt(int64(b.Position.TickLower)), big.NewInt(int64(b.Position.TickUpper))
		info, err := w.call("StateView", w.dep.StateView, "getPositionInfo0", [32]byte(p.ID), w.dep.PositionManager, lower, upper, common.BigToHash(tokenID))
		if err != nil {
			t.Fatal(err)
		}
		inside, err := w.call("StateView", w.dep.StateView, "getFeeGrowthInside", [32]byte(p.ID), lower, upper)
		if err != nil {
			t.Fatal(err)
		}
		if info[0].(*big.Int).String() != b.Position.Liquidity {
			t.Errorf("deal %d: liquidity %s, the chain says %s", id, b.Position.Liquidity, info[0])
		}
		for i, fees := range []string{b.Position.Fees0, b.Position.Fees1} {
			grown := new(big.Int).Sub(inside[i].(*big.Int), info[1+i].(*big.Int))
			grown.And(grown, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)))
			if want := grown.Rsh(grown.Mul(grown, info[0].(*big.Int)), 128).String(); fees != want {
				t.Errorf("deal %d: fees%d %s, the chain says %s", id, i, fees, want)
			}
		}
		compared++
	}
	if compared < 3 {
		t.Errorf("only %d positions", compared)
	}
}

// TestOpenRaw: a deal says how much of its token all open deals hold.
func TestOpenRaw(t *testing.T) {
	w := newWorld(t)
	open, deals := map[common.Address]*big.Int{}, map[string]common.Address{}
	for id := range uint64(200) {
		answer, err := w.service.reader.DealWithReward(t.Context(), uint256.NewInt(id))
		d := &answer.Value.Deal
		if err != nil || d.Kind != contracts.KindERC20 {
			continue
		}
		if deals[d.ID.Dec()] = d.Token; open[d.Token] == nil {
			open[d.Token] = new(big.Int)
		}
		if d.State == contracts.DealListedState || d.State == contracts.DealFundedState {
			open[d.Token].Add(open[d.Token], d.AmountOrTokenID.ToBig())
		}
	}
	compared := 0
	for id, token := range deals {
		if status, raw := w.ask("/deals/" + id + "/valuation"); status == 200 {
			compared++
			if got := fieldsOf(t, raw)["openRaw"]; got == nil || got.Cmp(open[token]) != 0 {
				t.Errorf("deal %s: %s of %s in open deals, want %s", id, got, token, open[token])
			}
		}
	}
	if compared < 10 {
		t.Errorf("only %d deals", compared)
	}
}

// TestOneReadForAll: whatever number of requests asks for a block, the chain is read once, and once warm not at all.
func TestOneReadForAll(t *testing.T) {
	w := newWorld(t)
	before := testutil.ToFloat64(w.service.metrics.states.WithLabelValues("ok"))
	for range 3 {
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				recorder := httptest.NewRecorder()
				w.service.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), "GET", "/assets/"+w.dep.TKN.Hex()+"/value", nil))
				if recorder.Code != 200 {
					t.Errorf("%d %s", recorder.Code, recorder.Body)
				}
			})
		}
		all.Wait()
	}
	if reads := testutil.ToFloat64(w.service.metrics.states.WithLabelValues("ok")) - before; reads != 1 {
		t.Errorf("%v reads of one block", reads)
	}
	w.play(1)
	w.state()
	if reads := testutil.ToFloat64(w.service.metrics.states.WithLabelValues("ok")) - before; reads != 2 {
		t.Errorf("%v reads of two blocks", reads)
	}
}

// TestChainAway: without a node there is no number, and the caller is told when to come back; with it there is again.
func TestChainAway(t *testing.T) {
	w := newWorld(t)
	if err := w.node.Close(); err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	w.service.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), "GET", "/quote/entry?eth=1000000000", nil))
	if recorder.Code != 503 || recorder.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v %s", recorder.Code, recorder.Header(), recorder.Body)
	}
}

// TestFeesAreReadAhead: a request for the same position in a later block waits for no read of the chain, and is told
// what one would have read.
func TestFeesAreReadAhead(t *testing.T) {
	w := newWorld(t)
	waits := func() float64 { return testutil.ToFloat64(w.service.metrics.fees) }
	var pledged []string
	for id := range 200 {
		answer, err := w.service.reader.DealWithReward(t.Context(), uint256.NewInt(uint64(id)))
		target := "/deals/" + strconv.Itoa(id) + "/valuation"
		if err == nil && answer.Value.Deal.Kind == contracts.KindPosition {
			if status, _ := w.ask(target); status == 200 {
				pledged = append(pledged, target)
			}
		}
	}
	first := waits()
	if first == 0 || len(pledged) < 3 {
		t.Fatalf("%v reads of %d positions", first, len(pledged))
	}
	for range 3 {
		w.play(1)
		st := w.state()
		for _, target := range pledged {
			status, raw := w.ask(target)
			if status != 200 {
				continue // a pool that the actors pushed too far, or another state of the deal
			}
			var b dealBody
			if err := json.Unmarshal(raw, &b); err != nil {
				t.Fatal(err)
			}
			tokenID, err := uint256.FromDecimal(b.Position.TokenID)
			if err != nil {
				t.Fatal(err)
			}
			p, a := st.byID(common.HexToHash(b.Position.PoolID)), askedPosition{tokenID: *tokenID}
			a.pool, a.lower, a.upper = p.ID, b.Position.TickLower, b.Position.TickUpper
			if now := waits(); now != first {
				t.Fatalf("%s waited for the chain", target)
			}
			words, err := w.service.chain.readFees(t.Context(), st, &a)
			if err != nil {
				t.Fatal(err)
			}
			first = waits()
			liquidity, err := uint256.FromDecimal(b.Position.Liquidity)
			if err != nil {
				t.Fatal(err)
			}
			if want := owed(p, words, liquidity, a.lower, a.upper); b.Position.Fees0 != want[0].Dec() || b.Position.Fees1 != want[1].Dec() {
				t.Errorf("%s: fees %s and %s, the chain says %s and %s", target, b.Position.Fees0, b.Position.Fees1, want[0].Dec(), want[1].Dec())
			}
		}
	}
}

// TestNoAnswerOfARevertedBlock: though an earlier block's state may be used for a while, none is of a block that a
// reorg took away, whatever the new chain's height.
func TestNoAnswerOfARevertedBlock(t *testing.T) {
	w := newWorld(t)
	w.mine(1800)
	w.service.cfg.MaxLag = time.Hour
	of := func() (uint64, common.Hash) {
		recorder := httptest.NewRecorder()
		w.service.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), "GET", "/assets/"+w.dep.USDG.Hex()+"/value", nil))
		if recorder.Code != 200 {
			t.Fatalf("%d %s", recorder.Code, recorder.Body)
		}
		number, err := strconv.ParseUint(recorder.Header().Get("X-Indexed-Block"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return number, common.HexToHash(recorder.Header().Get("X-Indexed-Block-Hash"))
	}
	for _, longer := range []int{0, 1, 3} { // the new chain is as high as the old one, or higher
		stale := w.at.Number
		of()
		w.mine(1)
		if number, _ := of(); number != stale {
			t.Fatalf("answers of block %d, that of %d may be used for an hour", number, stale)
		}
		if err := w.node.Rewind(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		for i := range 2 + longer {
			if _, err := w.node.Mine(t.Context(), w.at.Timestamp+uint64(10+i), nil); err != nil {
				t.Fatal(err)
			}
		}
		w.sync()
		if number, hash := of(); w.blocks[number].Hash != hash {
			t.Errorf("%d blocks longer: an answer of block %d, which a reorg took away", longer, number)
		}
	}
}

// TestMetrics: how old the state is, why prices are refused, and that answers of one block wait for no more reads of
// the chain: the first for one request, and no other for any.
func TestMetrics(t *testing.T) {
	a := newAttacked(t)
	w := a.by.w
	m := w.service.metrics
	target := "/assets/" + w.dep.TKN.Hex() + "/value"
	if status, body := w.ask(target); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	waits, states := testutil.ToFloat64(m.fees), testutil.ToFloat64(m.states.WithLabelValues("ok"))
	for range 5 {
		w.ask(target)
	}
	if testutil.ToFloat64(m.fees) != waits || testutil.ToFloat64(m.states.WithLabelValues("ok")) != states {
		t.Error("answers of one block wait for more than one read of the chain")
	}
	for pay := range 3 { // each is computed
		if status, body := w.ask("/quote/payout?to=ETH&usdg=" + strconv.Itoa(1_000_000+pay)); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	if got := requestsOf(t, m, "/quote/payout"); got[0] != 3 || got[1] != 0 {
		t.Errorf("%g answers wait for %g requests to nodes", got[0], got[1])
	}
	a.mine(1)
	w.ask(target)
	if got := requestsOf(t, m, "/assets/{token}/value"); got[0] < 2 || got[1] < 1 {
		t.Errorf("%g answers of two blocks wait for %g requests to nodes", got[0], got[1])
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.service.states.run(ctx) }()
	polltest.Until(t, "the state has an age", func() bool { return testutil.ToFloat64(m.stateAge) > 0 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	push, _ := a.push(w.dep.PoolID, 2624)
	a.mine(1, push())
	refused := testutil.ToFloat64(m.refusals.WithLabelValues(reasonDeviation))
	if status, body := w.ask("/assets/" + w.dep.STKN.Hex() + "/value"); status != 503 {
		t.Errorf("%d %s", status, body)
	}
	if got := testutil.ToFloat64(m.refusals.WithLabelValues(reasonDeviation)); got != refused+1 {
		t.Errorf("%g refusals for a deviation, and then %g", refused, got)
	}
}

// requestsOf are how many answers of a route were computed, and how many requests to nodes they waited for.
func requestsOf(t *testing.T, m *metrics, route string) (of [2]float64) {
	t.Helper()
	var read dto.Metric
	if err := m.requests.WithLabelValues(route).(prometheus.Histogram).Write(&read); err != nil {
		t.Fatal(err)
	}
	return [2]float64{float64(read.GetHistogram().GetSampleCount()), read.GetHistogram().GetSampleSum()}
}
