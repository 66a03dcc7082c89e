package system

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/devchain"
)

const lawPolls = 3000

// TestLaws polls answers that span partitions while blocks land. Whatever the block, they keep the laws:
//
//  1. every deal is in one state: the states of /stats add up to its total, and FUNDED is what is active;
//  2. claimed ≤ unlocked ≤ total for every drip, and what is claimable is the rest of what is unlocked;
//  3. the summary of a portfolio is the sum over its own deals;
//  4. an account has no credit that no deal gave it: USDG ≤ proceeds + repayments + refunds of bids. Credits
//     and deals are in different partitions, so a torn answer breaks it.
func TestLaws(t *testing.T) {
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{
		Seed: seed(t), TxsPerBlock: 30, TimePerBlock: 6 * time.Hour, Reorgs: true, ReorgEvery: 10, MaxReorgDepth: 5,
	})
	w.mine(t.Context(), t, 20)
	_, a := w.up(t, t.TempDir())
	block := settle(t, a, w.judge, time.Minute)
	m, err := w.judge.at(t.Context(), hash(block))
	if err != nil {
		t.Fatal(err)
	}
	collector := "" // of fees, which no deal of its own explains
	for _, wallet := range m.Accounts {
		if len(pick(m.Deals, func(d object) bool { return d["borrower"] == wallet || d["lender"] == wallet })) == 0 {
			collector = wallet
		}
	}

	g, ctx := errgroup.WithContext(t.Context())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var polls atomic.Int64
	due := make(chan struct{}, 1)
	g.Go(func() error {
		for {
			select {
			case <-due:
			case <-ctx.Done():
				return nil
			}
			if _, err := w.scenario.Step(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	})
	for worker := range 4 {
		random := rand.New(rand.NewPCG(2, uint64(worker)))
		g.Go(func() error {
			defer stop()
			for ctx.Err() == nil && polls.Load() < lawPolls {
				path := "/stats"
				if random.IntN(4) > 0 {
					path = "/portfolio/" + m.Accounts[random.IntN(len(m.Accounts))]
				}
				res, err := a.get(ctx, path)
				if ctx.Err() != nil || err == nil && res.Status == http.StatusServiceUnavailable {
					continue
				}
				if err == nil {
					err = lawful(res.Body, path == "/portfolio/"+collector)
				}
				if err != nil {
					return fmt.Errorf("%s as of block %s: %w", path, res.Number, err)
				}
				if polls.Add(1)%40 == 0 {
					select {
					case due <- struct{}{}:
					default: // the chain is slower than the polls
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if polls.Load() < lawPolls {
		t.Fatalf("%d polls", polls.Load())
	}
}

func lawful(body object, collector bool) error {
	if body["tvl"] != nil {
		deals := body["deals"].(object)
		sum := new(big.Int)
		for _, n := range deals["byState"].(object) {
			sum.Add(sum, amount(n))
		}
		if sum.Cmp(amount(deals["total"])) != 0 || text(deals["active"]) != text(deals["byState"].(object)["FUNDED"]) {
			return fmt.Errorf("states do not add up: %v", deals)
		}
		return nil
	}
	for _, d := range objects(body["drips"]) {
		unlocked, claimed := amount(d["unlockedNow"]), amount(d["claimed"])
		rest := new(big.Int).Sub(unlocked, claimed)
		if rest.Sign() < 0 || unlocked.Cmp(amount(d["total"])) > 0 || rest.Cmp(amount(d["claimableNow"])) != 0 {
			return fmt.Errorf("drip %v", d)
		}
	}
	received, paid, credited := new(big.Int), new(big.Int), new(big.Int)
	for _, d := range objects(body["asBorrower"]) {
		if d["price"] != nil {
			received.Add(received, new(big.Int).Sub(amount(d["price"]), amount(d["fee"])))
		}
	}
	credited.Add(credited, received)
	for _, d := range objects(body["asLender"]) {
		paid.Add(paid, amount(d["price"]))
		if d["state"] == "RECLAIMED" {
			credited.Add(credited, amount(d["cap"]))
		}
	}
	for _, b := range objects(body["bids"]) {
		if b["state"] == "WITHDRAWN" {
			credited.Add(credited, amount(b["price"]))
		}
	}
	summary := body["summary"].(object)
	if text(summary["receivedAlready"]) != received.String() || text(summary["paidOut"]) != paid.String() {
		return fmt.Errorf("summary %v, the deals say %s and %s", summary, received, paid)
	}
	for _, b := range objects(body["balances"]) {
		if b["kind"] == "USDG" && !collector && amount(b["amount"]).Cmp(credited) > 0 {
			return fmt.Errorf("a credit of %v, of which the deals explain %s", b["amount"], credited)
		}
	}
	return nil
}

func amount(v any) *big.Int {
	n, ok := new(big.Int).SetString(text(v), 10)
	if !ok {
		panic(fmt.Sprintf("%v is no amount", v))
	}
	return n
}
