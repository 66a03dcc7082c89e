package system

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lienstream/lienstream/topics/polltest"
)

// settle waits until the services answer as of the chain's head, from Redis too.
func settle(t *testing.T, a *api, j *judge, within time.Duration) string {
	t.Helper()
	head, err := j.eth.HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/deals?limit=1", "/listings?limit=1", "/pool"} {
		polltest.Within(t, within, func() error {
			res, err := a.get(t.Context(), path)
			if err != nil {
				return err
			}
			if res.Block != lowerHash(head.Hash()) {
				return fmt.Errorf("%s is as of block %s %s, the head is %d %s (%d %v)",
					path, res.Number, res.Block, head.Number, head.Hash(), res.Status, res.Body["error"])
			}
			return nil
		})
	}
	return lowerHash(head.Hash())
}

// stateEqualsChain compares everything that the services answer with what the contracts say, field by
// field, at the chain's head, which must not move meanwhile.
func stateEqualsChain(ctx context.Context, t *testing.T, a *api, j *judge, within time.Duration) {
	t.Helper()
	block := settle(t, a, j, within)
	want, err := j.at(ctx, hash(block))
	if err != nil {
		t.Fatal(err)
	}

	deals, err := a.list(ctx, "/deals?limit=200", "items", block)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "/deals", byKey(t, deals, "id"), want.Deals)

	listed := map[string]object{}
	for id, d := range want.Deals {
		if d["state"] == "LISTED" && !expired(t, d, j, block) {
			listed[id] = d
		}
	}
	for _, sort := range []string{"newest", "expiry", "cap", "cost"} {
		listings, err := a.list(ctx, "/listings?limit=200&sort="+sort, "items", block)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "/listings?sort="+sort, byKey(t, listings, "id"), listed)
	}

	rewards, drips := j.rewards(ctx, t, hash(block))
	for id, d := range want.Deals {
		res, err := a.get(ctx, "/deals/"+id)
		if err != nil {
			t.Fatal(err)
		}
		if res.Status != http.StatusOK || res.Block != block {
			t.Fatalf("GET /deals/%s: %d as of %s: %v", id, res.Status, res.Block, res.Body)
		}
		bids := make([]any, 0, len(want.Bids[id]))
		for _, b := range want.Bids[id] {
			bids = append(bids, b)
		}
		reward, _ := res.Body["reward"].(object)
		if delete(res.Body, "reward"); reward != nil {
			equal(t, "the drips of deal "+id, dripsByID(t, reward["drips"]), pick(drips, func(o object) bool { return o["dealId"] == id }))
			delete(reward, "drips")
		}
		equal(t, "the reward of deal "+id, reward, rewards[id])
		equal(t, "/deals/"+id, res.Body, object{"deal": d, "bids": bids})
	}

	assets, err := a.list(ctx, "/assets?limit=200", "assets", block)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "/assets", byKey(t, assets, "token"), want.Assets)

	got := map[string]string{}
	for _, account := range want.Accounts {
		res, err := a.get(ctx, "/portfolio/"+account)
		if err != nil {
			t.Fatal(err)
		}
		if res.Status != http.StatusOK || res.Block != block {
			t.Fatalf("GET /portfolio/%s: %d as of %s: %v", account, res.Status, res.Block, res.Body)
		}
		for _, b := range objects(res.Body["balances"]) {
			got[balanceKey(b)] = b["amount"].(string)
		}
	}
	equal(t, "balances", got, want.Balances)
}

// balanceKey is the key of market.Balances: each NFT has a balance of its own.
func balanceKey(b object) string {
	key := fmt.Sprint(b["account"], " ", b["asset"], " ", b["kind"])
	if b["kind"] == "NFT" {
		key += fmt.Sprint(" ", b["amount"])
	}
	return key
}

func expired(t *testing.T, deal object, j *judge, block string) bool {
	t.Helper()
	header, err := j.eth.HeaderByHash(t.Context(), hash(block))
	if err != nil {
		t.Fatal(err)
	}
	expiry := integer(t, deal["listingExpiry"])
	return expiry != 0 && expiry < header.Time
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s differs from the chain (-chain +service):\n%s", what, tail(diff, 4000))
	}
}

func byKey(t *testing.T, items []object, key string) map[string]object {
	t.Helper()
	m := make(map[string]object, len(items))
	for _, item := range items {
		k := item[key].(string)
		if m[k] != nil {
			t.Fatalf("%s %s is listed twice", key, k)
		}
		m[k] = item
	}
	return m
}
