package agent

import (
	"context"
	"encoding/json"
	"math/big"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// asked is a valuation service that counts who asks it.
type asked struct {
	Valuation

	times atomic.Int64
}

func (v *asked) Deal(ctx context.Context, id *big.Int) (json.RawMessage, error) {
	v.times.Add(1)
	return v.Valuation.Deal(ctx, id)
}

// TestStocksAlone: assets, listings and valuations are of stocks alone, although the market has other lanes. A deal, a
// portfolio and a transaction are of any lane.
func TestStocksAlone(t *testing.T) {
	w := newWorld(t, newNode(t, 11), 11, 60)
	every := query.AssetsQuery{Limit: maxLimit}
	all, err := w.agent.index.Assets(t.Context(), every)
	if err != nil {
		t.Fatal(err)
	}
	lanes, stocks := map[contracts.Lane]int{}, 0
	for i := range all.Value.Items {
		asset := &all.Value.Items[i]
		if lanes[asset.Lane]++; asset.Lane == contracts.LaneStock && asset.Allowed {
			stocks++
		}
	}
	if len(lanes) < 3 || stocks == 0 {
		t.Fatalf("the registry has the lanes %v", lanes)
	}
	shown := get[page[Asset]](w, "/v1/assets?limit=100").Items
	for _, a := range shown {
		if a.Lane != "STOCK" || !a.Allowed {
			t.Errorf("an asset of the lane %s, allowed %t", a.Lane, a.Allowed)
		}
	}
	if len(shown) != stocks {
		t.Errorf("%d of %d stocks", len(shown), stocks)
	}

	open, err := w.agent.index.Listings(t.Context(), query.ListingsQuery{Limit: maxLimit})
	if err != nil {
		t.Fatal(err)
	}
	other, stocks := map[contracts.Lane]*query.DealWithBids{}, 0
	for i := range open.Value.Items {
		d := &open.Value.Items[i]
		if d.Deal.Lane == contracts.LaneStock {
			stocks++
		} else {
			other[d.Deal.Lane] = d
		}
	}
	if len(other) < 2 || stocks == 0 {
		t.Fatalf("%d listings of stocks, and %d other lanes", stocks, len(other))
	}
	listings := get[page[IndexedDeal]](w, "/v1/listings?limit=100").Items
	for _, d := range listings {
		if d.Lane != "STOCK" {
			t.Errorf("a listing of the lane %s", d.Lane)
		}
	}
	if len(listings) != stocks {
		t.Errorf("%d of %d listings of stocks", len(listings), stocks)
	}

	service := &asked{Valuation: worth{body: `{}`}}
	w.Client = apitest.NewClient(t, w.service(func(_ *Config, p *Parts) { p.Valuation = service }), description)
	for lane, d := range other {
		id, name := d.Deal.ID.Dec(), contracts.LaneNames[lane]
		if empty := get[page[IndexedDeal]](w, "/v1/listings?asset="+lower(d.Deal.Token)); len(empty.Items) != 0 {
			t.Errorf("%d listings of a token of the lane %s", len(empty.Items), name)
		}
		if found := get[DirectDeal](w, "/v1/deals/"+id); found.Lane != name {
			t.Errorf("deal %s is of the lane %s, want %s", id, found.Lane, name)
		}
		w.isError("NOT_FOUND", w.Get(t, "/v1/deals/"+id+"/valuation"))
		mine := get[Portfolio](w, "/v1/portfolio/"+lower(d.Deal.Borrower)).AsBorrower
		has := false
		for i := range mine {
			has = has || mine[i].ID == id
		}
		if !has {
			t.Errorf("the borrower's portfolio lacks deal %s of the lane %s", id, name)
		}
		cancel := body{"action": "cancel", "chainId": 4663, "wallet": lower(d.Deal.Borrower), "dealId": id, "termsHash": d.Deal.TermsHash.Hex()}
		if res := w.post(cancel); res.Status != http.StatusOK {
			t.Errorf("the cancellation of deal %s of the lane %s: %s", id, name, res.Body)
		}
	}
	if n := service.times.Load(); n != 0 {
		t.Errorf("the valuation service was asked %d times about what is no stock", n)
	}
}
