package agent

import (
	"encoding/json"
	"errors"
	"math/big"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/google/go-cmp/cmp"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

func seed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64N(1_000_000)
	if s := os.Getenv("LIENSTREAM_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", n)
	return n
}

func newAnvil(t *testing.T, seed uint64) devchain.Backend {
	t.Helper()
	a, err := devchain.StartAnvil(t.Context(), devchain.AnvilConfig{
		Binary: "../../contracts/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil", Seed: seed,
	})
	if err != nil {
		if os.Getenv("CI") == "" && errors.Is(err, os.ErrNotExist) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// TestPreparedDoesWhatItSaid: over random states, each prepared transaction, signed and sent, transfers exactly what
// its simulation said and spends no more than it said. What was refused and is sent all the same reverts, or breaks what
// the caller asked for. Where the world moves in between, it does the same or reverts.
func TestPreparedDoesWhatItSaid(t *testing.T) {
	const each = 100 // of a state
	n := 2000
	if testing.Short() {
		n = 200
	}
	for name, start := range map[string]func(t *testing.T, seed uint64) devchain.Backend{
		"devchain": func(t *testing.T, seed uint64) devchain.Backend { return newNode(t, seed) },
		"anvil":    newAnvil,
	} {
		t.Run(name, func(t *testing.T) {
			s := seed(t)
			rng := rand.New(rand.NewPCG(s, 7))
			w := newWorld(t, start(t, s), s, 25)
			tally := map[string]int{}
			for range n / each {
				w.steps(1 + rng.IntN(4))
				base := w.head()
				for range each {
					tally[w.try(rng)]++
					if depth := w.head().Number - base.Number; depth > 0 {
						if err := w.node.Rewind(t.Context(), depth); err != nil {
							t.Fatal(err)
						}
						w.head()
					}
					if t.Failed() {
						t.FailNow()
					}
				}
			}
			t.Logf("%d preparations: %v", n, tally)
			for _, want := range []string{"done", "moved: done", "moved: reverted", "TERMS_CHANGED", "NOT_FUNDABLE", "SPEND_LIMIT", "SIMULATION_FAILED"} {
				if tally[want] == 0 && !testing.Short() { // of fewer, chance may leave one out
					t.Errorf("never %s", want)
				}
			}
		})
	}
}

// try prepares something random and holds the chain to the answer. It says what came of it.
func (w *world) try(rng *rand.Rand) string {
	w.t.Helper()
	b, d, bid := w.random(rng)
	res := w.post(b)
	if res.Status != http.StatusOK {
		return w.sendRefused(b, d, bid, res)
	}
	var p Prepared
	res.Decode(w.t, &p)
	moved := ""
	if rng.IntN(3) == 0 && d != nil {
		moved = w.move(rng, d, bid)
	}
	receipt := w.sent(p)
	what := "done"
	if moved != "" {
		what = "moved: done"
	}
	if receipt.Status != types.ReceiptStatusSuccessful {
		if moved == "" {
			w.t.Errorf("%v was prepared and reverts", b)
		}
		return "moved: reverted"
	}
	if moved == "updateTerms" && slices.Contains([]string{"fund", "placeBid"}, b["action"].(string)) {
		w.t.Errorf("%v: on terms that are not those of its termsHash", b)
	}
	if moved == "setFee" && b["action"] == "list" {
		w.t.Errorf("%v: at another fee than was prepared", b)
	}
	if moved == "withdrawBid" && (b["action"] == "acceptBid" || b["action"] == "withdrawBid") {
		w.t.Errorf("%v: the bid is gone, and the chain does it", b)
	}
	said, did := p.Simulation.Transfers, decodeTransfers(receipt.Logs)
	if diff := cmp.Diff(said, did); diff != "" {
		w.t.Errorf("%v: transfers (-said +done):\n%s", b, diff)
	}
	out := map[string]*big.Int{}
	for _, tr := range decodeTransfers(receipt.Logs) {
		if tr.From == p.Transaction.From {
			if out[*tr.Token] == nil {
				out[*tr.Token] = new(big.Int)
			}
			out[*tr.Token].Add(out[*tr.Token], amount(tr))
		}
	}
	for token, amount := range out {
		if p.Spend == nil || token != p.Spend.Token || decimal(amount) != p.Spend.Amount {
			w.t.Errorf("%v spends %s of %s, said was %+v", b, amount, token, p.Spend)
		}
	}
	return what
}

func amount(t Transfer) *big.Int {
	n, _ := new(big.Int).SetString(t.AmountOrTokenID, 10)
	return n
}

// random is a request about something that there is, mostly, with the deal and the bid that it names.
func (w *world) random(rng *rand.Rand) (body, *Deal, *Bid) {
	w.t.Helper()
	m, head := w.agent.contracts, w.head()
	next := w.read(w.dep.DealVault, "DealVault", "nextDealId")[0].(*big.Int).Int64()
	bids := w.read(w.dep.DealVault, "DealVault", "nextBidId")[0].(*big.Int).Int64()
	id, bidID := big.NewInt(1+rng.Int64N(next)), big.NewInt(1+rng.Int64N(bids))
	var (
		d   *Deal
		bid *Bid
	)
	r := &reads{at: head.Hash}
	m.bid(r, bidID, func(found *Bid) { bid = found })
	if err := r.run(w.t.Context(), w.chain); err != nil {
		w.t.Fatal(err)
	}
	action := actionNames()[rng.IntN(len(actionNames()))]
	if bid != nil && (action == "acceptBid" || action == "withdrawBid") && rng.IntN(10) > 0 {
		id = bid.DealID
	}
	r = &reads{at: head.Hash}
	m.deal(r, id, func(found *Deal) { d = found })
	if err := r.run(w.t.Context(), w.chain); err != nil {
		w.t.Fatal(err)
	}
	wallet := w.actors[rng.IntN(len(w.actors))]
	rightly := func(who common.Address) {
		if rng.IntN(5) > 0 && w.keys[who] != nil {
			wallet = who
		}
	}
	terms := common.Hash{1}
	price, limit := big.NewInt(1+rng.Int64N(1_000_000)), big.NewInt(0)
	if d != nil {
		if rng.IntN(12) > 0 {
			terms = d.TermsHash
		}
		switch action {
		case "cancel", "reclaim", "acceptBid":
			rightly(d.Borrower)
		case "claim":
			rightly(d.Lender)
		}
		limit = new(big.Int).Set(d.Cap)
		if action == "fund" {
			limit = new(big.Int).Set(d.MinPrice)
		}
		price = new(big.Int).Sub(d.Cap, big.NewInt(rng.Int64N(1000)))
		if rng.IntN(8) == 0 {
			limit.Quo(limit, big.NewInt(2))
		}
	}
	if bid != nil && action == "withdrawBid" {
		rightly(bid.Lender)
	}
	stocks := get[page[Asset]](w, "/v1/assets").Items
	stock := stocks[rng.IntN(len(stocks))]
	b := body{"action": action, "chainId": 4663, "wallet": wallet.Hex()}
	for _, name := range w.agent.actions[action].fields {
		switch name {
		case "dealId":
			b[name] = decimal(id)
		case "bidId":
			b[name] = decimal(bidID)
		case "termsHash":
			b[name] = terms.Hex()
		case "token":
			b[name] = stock.Token
			if action == "withdrawCredit" && rng.IntN(2) == 0 {
				b[name] = w.dep.USDG.Hex()
			}
		case "amount":
			b[name] = stock.MinAmount
		case "cap":
			b[name] = "2000000"
		case "minPrice":
			b[name] = decimal(big.NewInt(1 + rng.Int64N(2_000_100)))
			if action == "acceptBid" && bid != nil && rng.IntN(4) > 0 {
				b[name] = decimal(bid.Price)
			}
		case "term":
			b[name] = []int{604_800, 1_814_400, 1}[rng.IntN(3)]
		case "listingExpiry":
			b[name] = []uint64{0, head.Timestamp + 1000, head.Timestamp - 1}[rng.IntN(3)]
		case "expiry":
			b[name] = head.Timestamp + 1000
		case "price":
			b[name] = decimal(price)
		case "maxPrice", "spendLimit":
			b[name] = decimal(limit)
		}
	}
	// What the vault may take decides whether there is anything to see: mostly it may.
	if rng.IntN(5) > 0 {
		switch action {
		case "fund", "reclaim", "placeBid":
			w.call(wallet, w.dep.USDG, "USDG", "approve", w.dep.DealVault, big.NewInt(1e18))
		case "list":
			w.call(wallet, common.HexToAddress(stock.Token), "USDG", "approve", w.dep.DealVault, new(big.Int).Lsh(big.NewInt(1), 200))
		}
	}
	return b, d, bid
}

// move lets somebody else act between the preparation and the sending.
func (w *world) move(rng *rand.Rand, d *Deal, bid *Bid) string {
	w.t.Helper()
	vault := w.dep.DealVault
	listed := d.State == contracts.DealListedState && w.keys[d.Borrower] != nil
	switch n := rng.IntN(8); {
	case n == 0 && !w.read(vault, "DealVault", "paused")[0].(bool): // the scenario's owner pauses too
		w.call(w.admin, vault, "DealVault", "pause")
		return "pause"
	case n == 1 && !w.read(w.dep.USDG, "USDG", "paused")[0].(bool):
		w.call(w.admin, w.dep.USDG, "USDG", "pause")
		return "pause of the dollar"
	case n == 2 && listed:
		w.call(d.Borrower, vault, "DealVault", "updateTerms", d.ID, new(big.Int).Add(d.Cap, big.NewInt(1)), d.MinPrice, d.Term, new(big.Int))
		return "updateTerms"
	case n == 3 && listed:
		w.call(d.Borrower, vault, "DealVault", "cancel", d.ID, d.TermsHash)
		return "cancel"
	case n == 4 && listed && d.MinPrice.Cmp(d.Cap) < 0:
		w.call(d.Borrower, vault, "DealVault", "updateTerms", d.ID, d.Cap, new(big.Int).Add(d.MinPrice, big.NewInt(1)), d.Term, new(big.Int))
		return "updateTerms"
	case n == 7:
		fee := w.read(vault, "DealVault", "feeBps")[0].(uint16)
		w.call(w.admin, vault, "DealVault", "setFee", fee+1-2*(fee&1), w.admin)
		return "setFee"
	case n >= 5 && bid != nil && bid.State == contracts.BidOpen && w.keys[bid.Lender] != nil:
		w.call(bid.Lender, vault, "DealVault", "withdrawBid", bid.ID, bid.TermsHash, bid.Price)
		return "withdrawBid"
	}
	return ""
}

// sendRefused sends what was refused all the same.
func (w *world) sendRefused(b body, d *Deal, bid *Bid, res *apitest.Response) string {
	w.t.Helper()
	code, message := res.Error(w.t)
	raw, err := json.Marshal(b)
	if err != nil {
		w.t.Fatal(err)
	}
	in, err := parseInput(raw, w.agent.actions)
	if err != nil {
		w.t.Fatalf("%v was refused by %s %s, and is no input: %v", b, code, message, err)
	}
	p := &preparation{in: in, market: w.agent.contracts, action: w.agent.actions[in.Action], deal: d, bid: bid, credit: big.NewInt(1)}
	p.feeBps = w.read(w.dep.DealVault, "DealVault", "feeBps")[0].(uint16)
	if p.deal == nil {
		p.deal = &Deal{ID: in.DealID, Cap: new(big.Int), MinPrice: new(big.Int)}
	}
	if p.bid == nil {
		p.bid = &Bid{Price: new(big.Int)}
	}
	pl := p.action.plan(p)
	data, err := pl.pack()
	if err != nil {
		w.t.Fatal(err)
	}
	receipt := w.mine(w.sign(in.Wallet, pl.to, data, 3_000_000))
	if receipt.Status != types.ReceiptStatusSuccessful {
		return code
	}
	switch {
	case code == "SPEND_LIMIT" && in.Action == "acceptBid":
		if bid.Price.Cmp(in.MinPrice) >= 0 {
			w.t.Errorf("%v was refused by %s: %s", b, code, message)
		}
	case code == "SPEND_LIMIT":
		amount, _ := new(big.Int).SetString(pl.spend.Amount, 10)
		if amount.Cmp(in.Limit) <= 0 {
			w.t.Errorf("%v was refused by %s: %s", b, code, message)
		}
	case (code == "NOT_FUNDABLE" || code == "DEAL_NOT_FOUND") && in.BidID != nil && bid != nil && (bid.DealID.Cmp(in.DealID) != 0): // of another deal
	default:
		w.t.Errorf("%v was refused by %s (%s), and the chain does it", b, code, message)
	}
	return code
}
