package indexer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// everything is a market with something of each resource in it, as of start+250.
func everything(m *market) {
	one := new(uint256.Int).Lsh(uint256.NewInt(1), 96) // a price of 1
	pool := func(id common.Hash, c0, c1 common.Address) *contracts.PoolInitialized {
		return &contracts.PoolInitialized{PoolID: id, Currency0: c0, Currency1: c1, Fee: 3000, TickSpacing: 60, SqrtPriceX96: *one}
	}
	liquidity := func(id common.Hash, salt common.Hash) *contracts.LiquidityModified {
		return &contracts.LiquidityModified{PoolID: id, Sender: m.dep.PositionManager, TickLower: -600, TickUpper: 600, LiquidityDelta: u(1_000_000), Salt: salt}
	}
	m.block(start+1,
		pool(m.dep.PoolID, m.dep.STKN, m.dep.TKN), liquidity(m.dep.PoolID, common.Hash{31: 9}),
		pool(common.Hash{0x06}, m.dep.USDG, m.dep.TKN), liquidity(common.Hash{0x06}, common.Hash{31: 8}),
		&contracts.PositionTransferred{To: borrower, TokenID: u(8)},
		&contracts.PositionStaked{PoolID: m.dep.PoolID, TokenID: u(9), Owner: borrower, TickLower: -600, TickUpper: 600, Liquidity: u(1_000_000), Weight: u(5), TotalWeight: u(5), InRange: true, IsSeed: true, At: start + 1},
		&contracts.EmissionsNotified{PoolID: m.dep.PoolID, Epoch: 1, Amount: u(700), RatePerSecond: u(7), PeriodFinish: start + 9999},
		&contracts.EpochOpened{N: 1, StartsAt: start, EndsAt: start + week, Weekly: u(1000), DealBudget7: u(100), DealBudget21: u(80), LiquidityBudget: u(700), RolledOver: u(3)},
		&contracts.EpochRatesSet{N: 1, Rate7: u(2), Rate21: u(4), PriceUSDGPerSTKN: u(500_000_000_000_000_000), LenderShareBps: 6000},
		asset(token, contracts.LaneStock),
		listed(1), listed(2), bid(2, 1, 900, start+9999, terms1))
	m.block(start+50, funded(1),
		&contracts.EpochReserved{N: 1, Term: week, Granted: u(40), ReservedAfter: u(40)},
		&contracts.RewardReserved{DealID: u(1), N: 1, Term: week, Wanted: u(50), Granted: u(40), LenderAmount: u(24), BorrowerAmount: u(16), BudgetExhausted: true},
		&contracts.DripCreated{Account: lender, DripID: u(1), DealID: u(1), Source: contracts.DripDeal, Epoch: 1, Total: u(24), Start: start + 50, Length: 1000, Cliff: start + 150},
		&contracts.DripCreated{Account: borrower, DripID: u(2), DealID: u(1), Source: contracts.DripDeal, Epoch: 1, Total: u(16), Start: start + 50, Length: 1000, Cliff: start + 150},
		&contracts.DripCreated{Account: borrower, DripID: u(3), TokenID: u(9), Source: contracts.DripLP, Epoch: 1, Total: u(1000), Start: start + 50, Length: 400, Cliff: start + 50},
		&contracts.Credited{Account: borrower, Asset: m.dep.USDG, DealID: u(1), AmountOrTokenID: u(995)},
		&contracts.Burned{Caller: lender, USDGSpent: u(10), TKNBought: u(20), STKNBurned: u(19), At: start + 50})
	m.block(start + 250)
}

const (
	borrowerText = "0xb0b0000000000000000000000000000000000001"
	lenderText   = "0xde1d000000000000000000000000000000000002"
)

func TestRewardOfADeal(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	everything(m)
	drip := func(id, account string, total, unlocked, atCliff uint64) string {
		return fmt.Sprintf(`{"id":%[1]q,"account":%[2]q,"source":"deal","dealId":"1","tokenId":null,"granted":"%[3]d","total":"%[3]d","claimed":"0","start":%[4]d,"length":1000,"cutAt":null,
			"unlockedNow":"%[5]d","claimableNow":"%[5]d","curve":[{"t":%[4]d,"unlocked":"0"},{"t":%[6]d,"unlocked":"%[7]d"},{"t":%[8]d,"unlocked":"%[3]d"}]}`,
			id, account, total, start+50, unlocked, start+150, atCliff, start+1050)
	}
	body := string(c.Get(t, "/deals/1").Body)
	_, reward, _ := strings.Cut(strings.TrimSuffix(body, "}"), `"reward":`)
	same(t, "reward", []byte(reward), `{"total":"40","lender":"24","borrower":"16","epoch":1,"budgetExhausted":true,"drips":[`+
		drip("1", lenderText, 24, 4, 2)+","+drip("2", borrowerText, 16, 3, 1)+`]}`)
	if got := string(c.Get(t, "/deals/2").Body); !strings.HasSuffix(got, `"reward":null}`) {
		t.Errorf("a deal that was never funded: %s", got)
	}
}

func TestACutDripSaysWhatItWasAndWhenItEnded(t *testing.T) {
	d := query.Drip{Drip: topics.Drip{Granted: *uint256.NewInt(9), Total: *uint256.NewInt(4), CutAt: 7}}
	if got := string(appendDrip(nil, &d)); !strings.Contains(got, `"granted":"9","total":"4",`) || !strings.Contains(got, `"cutAt":7,`) {
		t.Error(got)
	}
}

func TestPortfolioAndRewards(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	everything(m)
	var p struct {
		AsBorrower, AsLender, Bids, Drips []struct{ ID string }
		Balances                          []struct{ Amount, Kind string }
		Summary                           map[string]string
	}
	c.Get(t, "/portfolio/"+borrowerText).Decode(t, &p)
	got := fmt.Sprint(p.AsBorrower, p.AsLender, p.Bids, p.Drips, p.Balances, p.Summary)
	if want := `[{2} {1}] [] [] [{2} {3}] [{995 USDG}] map[awaitingExpiry:0 paidOut:0 receivedAlready:995 stillAtStake:1100]`; got != want {
		t.Errorf("borrower: %s, want %s", got, want)
	}
	c.Get(t, "/portfolio/"+lenderText).Decode(t, &p)
	got = fmt.Sprint(p.AsBorrower, p.AsLender, p.Bids, p.Drips, p.Balances, p.Summary)
	if want := `[] [{1}] [{1}] [{1}] [] map[awaitingExpiry:1100 paidOut:1000 receivedAlready:0 stillAtStake:0]`; got != want {
		t.Errorf("lender: %s, want %s", got, want)
	}
	var r struct {
		ClaimableNow, StillDripping, BurnedThisWeek string
		Epoch                                       struct{ N int }
		Pool                                        struct{ PriceSTKNinTKN string }
	}
	c.Get(t, "/rewards/"+borrowerText).Decode(t, &r)
	// Of drip 2: 16*200/1000 = 3; of drip 3: 1000*200/400 = 500.
	if got, want := fmt.Sprint(r), `{503 513 19 {1} {1}}`; got != want {
		t.Errorf("rewards: %s, want %s", got, want)
	}
	m.block(start + 449) // a second before drip 3 ends
	c.Get(t, "/rewards/"+borrowerText).Decode(t, &r)
	if r.ClaimableNow != "1003" || r.StillDripping != "13" { // 6 + 997
		t.Errorf("later: %+v", r)
	}
}

func TestPoolEpochsAndStats(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	everything(m)
	var p struct {
		Pool                                   map[string]any
		EmissionsRatePerSecond, BurnedThisWeek string
		Burns                                  []struct{ StknBurned string }
		Budgets                                map[string]map[string]string
		Floor                                  struct{ Tick int }
	}
	c.Get(t, "/pool").Decode(t, &p)
	if got, want := strings.TrimSpace(fmt.Sprintln(p.Pool["priceSTKNinTKN"], p.Pool["totalWeight"], p.EmissionsRatePerSecond, p.BurnedThisWeek, p.Burns, p.Floor, p.Budgets)),
		`1 5 7 19 [{19}] {-600} map[deal21:map[available:80 budget:80 reserved:0] deal7:map[available:60 budget:100 reserved:40] liquidity:map[available:700 budget:700 released:0]]`; got != want {
		t.Errorf("pool: %s, want %s", got, want)
	}
	var e struct {
		Epochs []struct {
			N                               int
			Rate7, PriceUSDGPerSTKN, Weekly string
			LenderShareBps                  int
		}
	}
	c.Get(t, "/epochs").Decode(t, &e)
	if got, want := fmt.Sprint(e), `{[{1 2 0.5 1000 6000}]}`; got != want {
		t.Errorf("epochs: %s, want %s", got, want)
	}
	var s struct {
		Deals struct {
			Total, Active int
			ByState       map[string]int
		}
		Fees, Volume map[string]string
		Medians      map[string]*int
		AsOf         int
	}
	c.Get(t, "/stats").Decode(t, &s)
	if got, want := fmt.Sprint(s.Deals, s.Fees, s.Volume, *s.Medians["costBps7d"], s.Medians["costBps21d"], *s.Medians["timeToFundSeconds"], s.AsOf),
		fmt.Sprintf(`{2 1 map[CANCELLED:0 CLAIMED:0 FUNDED:1 LISTED:1 RECLAIMED:0]} map[last24h:5 last7d:5 total:5] map[last24h:1000 last7d:1000 total:1000] 1000 %v 49 %d`, s.Medians["costBps21d"], start+250); got != want || s.Medians["costBps21d"] != nil {
		t.Errorf("stats: %s, want %s", got, want)
	}
	var now struct {
		TVL struct {
			USDG   string
			ByLane map[string]string
		}
	}
	c.Get(t, "/stats").Decode(t, &now)
	same(t, "history", c.Get(t, "/stats/history?days=1").Body, fmt.Sprintf(
		`{"days":[{"day":%d,"tvl":{"usdg":%q,"byLane":{"STOCK":%q,"ETH":"0","MEME":"0","POSITION":"0"}},"volume":{"usdg":"1000","fees":"5"}}],"asOf":%d}`,
		(start+250)/86_400*86_400, now.TVL.USDG, now.TVL.ByLane["STOCK"], start+250))
	for query, want := range map[string]string{
		"?days=0": "days", "?days=367": "days", "?days=07": "days", "?days=-1": "days", "?days=x": "days", "?day=3": "day", "?days=3&days=4": "days",
	} {
		r := c.Get(t, "/stats/history"+query)
		if code, message := r.Error(t); r.Status != 400 || code != "INVALID_INPUT" || !strings.Contains(message, want) {
			t.Errorf("/stats/history%s: %d %s %s", query, r.Status, code, message)
		}
	}
}

// TestHistoryAfterAReorg: days that were over are read again where their blocks were taken back, and a day that begins leaves
// the one before as it was.
func TestHistoryAfterAReorg(t *testing.T) {
	const day, noon = 86_400, start/86_400*86_400 + 43_200
	m := newMarket(t)
	c := m.serve()
	locked := func(want ...string) {
		t.Helper()
		var h struct {
			Days []struct{ TVL struct{ USDG string } }
		}
		c.Get(t, "/stats/history?days=3").Decode(t, &h)
		var got []string
		for _, d := range h.Days {
			got = append(got, d.TVL.USDG)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v was locked, want %v", got, want)
		}
	}
	of := func(amount uint64) func(*contracts.DealListed) {
		return func(e *contracts.DealListed) { e.Token, e.AmountOrTokenID = m.dep.USDG, u(amount) }
	}
	m.block(noon, listed(1, of(5)))
	m.block(noon+day, listed(2, of(30)))
	locked("0", "5", "35")
	m.block(noon+2*day, listed(3, of(100)))
	locked("5", "35", "135")
	m.land(2, noon+day, listed(2, of(7))) // the last two days were others
	locked("0", "5", "12")
	m.block(noon + 2*day)
	locked("5", "12", "12")
	m.land(1, noon+3*day, &contracts.DealCancelled{DealID: u(1), Borrower: borrower, At: noon + 3*day})
	locked("12", "12", "7")
}

func TestPositionsAndDealsOfAnAsset(t *testing.T) {
	m := newMarket(t)
	c := m.serve()
	everything(m)
	body := string(c.Get(t, "/positions/"+borrowerText).Body)
	if !strings.Contains(body, `"tokenId":"9",`) || !strings.Contains(body, `"inRange":true,`) || !strings.Contains(body, `"isSeed":true}`) {
		t.Errorf("staked: %s", body)
	}
	body = string(c.Get(t, "/wallet/"+borrowerText+"/positions").Body)
	if !strings.Contains(body, `"tokenId":"8",`) || !strings.Contains(body, `"allowed":false,"reason":"ASSET_NOT_ALLOWED"`) {
		t.Errorf("held: %s", body)
	}
	if got := ids(t, c.Get(t, "/assets/"+strings.ToLower(token.Hex())+"/deals")); got != "1" {
		t.Errorf("deals on the asset: %s", got)
	}
	r := c.Get(t, "/assets/"+lenderText+"/deals")
	if code, _ := r.Error(t); r.Status != 404 || code != "ASSET_NOT_FOUND" || r.Header.Get("x-indexed-block") != "4" {
		t.Errorf("of a token that is no asset: %d %s", r.Status, code)
	}
}

// TestWithoutTheTokenLayer: what belongs to it is null or empty, and everything is answered.
func TestWithoutTheTokenLayer(t *testing.T) {
	m := newMarketOn(t, contracts.Deployment{USDG: deployed.USDG})
	c := m.serve()
	m.block(start+1, asset(token, contracts.LaneStock), listed(1), funded(1))
	for path := range operations(t) {
		if path == "/assets/{token}/deals" || strings.Contains(path, "openapi") {
			continue
		}
		if r := c.Get(t, concrete(path)); r.Status != 200 {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
	}
	same(t, "pool", c.Get(t, "/pool").Body,
		`{"pool":null,"epoch":null,"burnedThisWeek":null,"burns":[],"emissionsRatePerSecond":null,"budgets":null,"floor":null}`)
	same(t, "rewards", c.Get(t, "/rewards/"+lenderText).Body,
		`{"drips":[],"claimableNow":"0","stillDripping":"0","epoch":null,"pool":null,"burnedThisWeek":null}`)
	same(t, "epochs", c.Get(t, "/epochs").Body, `{"epochs":[],"nextCursor":null}`)
	same(t, "positions", c.Get(t, "/positions/"+lenderText).Body, `{"positions":[],"nextCursor":null}`)
	if got := string(c.Get(t, "/stats").Body); !strings.Contains(got, `"emissions":{"ratePerSecond":null,"releasedThisEpoch":null},"priceHistory":[]`) {
		t.Errorf("stats: %s", got)
	}
}
