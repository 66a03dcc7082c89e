package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/contracts"
)

// views are what the vault's view functions say as of a block, by go-ethereum's ABI package alone.
type views struct {
	deals, bids map[string]map[string]string // by ID, by the field's name in an answer
	open        map[string]int               // bids that can be accepted, by deal
	best        map[string]*big.Int          // price of the best of them
	credits     map[string]string            // by account and asset; none: zero
}

// Names of the enums of the vault, as the services' contract has them.
var (
	stateNames    = []string{"LISTED", "FUNDED", "RECLAIMED", "CLAIMED", "CANCELLED"}
	bidStateNames = []string{"OPEN", "WITHDRAWN", "ACCEPTED"}
)

// viewer asks the vault as of each block that is recorded.
type viewer struct {
	vault abi.ABI
	owed  map[[2]common.Address]bool // account and asset of every credit so far, of all branches
	at    map[common.Hash]*views     // nil: there was no vault yet
}

// viewCall is one call of a batch.
type viewCall struct {
	method string
	args   []any
	out    func([]any)
}

func (v *viewer) calls(ctx context.Context, c *rpc.Client, vault common.Address, block common.Hash, asks []viewCall) error {
	for part := range slices.Chunk(asks, 100) {
		batch := make([]rpc.BatchElem, len(part))
		for i, a := range part {
			data, err := v.vault.Pack(a.method, a.args...)
			if err != nil {
				return err
			}
			batch[i] = rpc.BatchElem{Method: "eth_call", Result: new(hexutil.Bytes), Args: []any{
				map[string]any{"to": vault, "data": hexutil.Bytes(data)}, map[string]any{"blockHash": block},
			}}
		}
		if err := c.BatchCallContext(ctx, batch); err != nil {
			return err
		}
		for i, a := range part {
			if batch[i].Error != nil {
				return fmt.Errorf("%s%v: %w", a.method, a.args, batch[i].Error)
			}
			values, err := v.vault.Unpack(a.method, *batch[i].Result.(*hexutil.Bytes))
			if err != nil {
				return fmt.Errorf("%s%v: %w", a.method, a.args, err)
			}
			a.out(values)
		}
	}
	return nil
}

// see implements recording.also.
func (v *viewer) see(ctx context.Context, c *rpc.Client, r *recording, h *types.Header) error {
	hash, vault := h.Hash(), r.deployment.DealVault
	var code hexutil.Bytes
	if err := c.CallContext(ctx, &code, "eth_getCode", vault, map[string]any{"blockHash": hash}); err != nil || len(code) == 0 {
		v.at[hash] = nil // it is not there yet
		return err
	}
	decoder := contracts.NewDecoder(r.deployment)
	for _, l := range r.blocks[hash].logs {
		if e, ok := decoder.Decode(l.Address, l.Topics, l.Data).(*contracts.Credited); ok && e.Kind != contracts.BalanceNFT {
			v.owed[[2]common.Address{e.Account, e.Asset}] = true
		}
	}
	at := &views{deals: map[string]map[string]string{}, bids: map[string]map[string]string{}, open: map[string]int{}, best: map[string]*big.Int{}, credits: map[string]string{}}
	v.at[hash] = at
	counts := map[string]int64{}
	count := func(method string) viewCall {
		return viewCall{method: method, out: func(o []any) { counts[method] = o[0].(*big.Int).Int64() }}
	}
	if err := v.calls(ctx, c, vault, hash, []viewCall{count("nextDealId"), count("nextBidId")}); err != nil {
		return err
	}
	var asks []viewCall
	terms := map[string]string{}
	for id := int64(1); id < counts["nextDealId"]; id++ {
		asks = append(asks,
			viewCall{"termsHash", []any{big.NewInt(id)}, func(o []any) { terms[fmt.Sprint(id)] = common.Hash(o[0].([32]byte)).Hex() }},
			viewCall{"deals", []any{big.NewInt(id)}, func(o []any) { at.deals[fmt.Sprint(id)] = dealOf(o[0], terms[fmt.Sprint(id)]) }})
	}
	for id := int64(1); id < counts["nextBidId"]; id++ {
		asks = append(asks, viewCall{"bids", []any{big.NewInt(id)}, func(o []any) { at.bid(fmt.Sprint(id), o[0], terms, h.Time) }})
	}
	for pair := range v.owed {
		asks = append(asks, viewCall{"credits", []any{pair[0], pair[1]}, func(o []any) {
			if amount := o[0].(*big.Int); amount.Sign() > 0 {
				at.credits[strings.ToLower(pair[0].Hex()+" "+pair[1].Hex())] = amount.String()
			}
		}})
	}
	return v.calls(ctx, c, vault, hash, asks)
}

// dealOf is the tuple of a deal in the fields of an answer. What is empty until it is funded is left out before.
func dealOf(tuple any, terms string) map[string]string {
	type deal struct {
		Borrower        common.Address
		ListedAt        *big.Int
		Term            uint32
		Kind            uint8
		State           uint8
		Lane            uint8
		FeeBps          uint16
		Token           common.Address
		ListingExpiry   *big.Int
		FundedAt        *big.Int
		AmountOrTokenId *big.Int //nolint:revive // named as the ABI names it
		Cap             *big.Int
		MinPrice        *big.Int
		Lender          common.Address
		Price           *big.Int
		Fee             *big.Int
	}
	d := abi.ConvertType(tuple, new(deal)).(*deal)
	fields := map[string]string{
		"borrower": lower(d.Borrower), "token": lower(d.Token), "amountOrTokenId": d.AmountOrTokenId.String(), "cap": d.Cap.String(),
		"minPrice": d.MinPrice.String(), "term": fmt.Sprint(d.Term), "feeBps": fmt.Sprint(d.FeeBps), "listedAt": d.ListedAt.String(),
		"listingExpiry": d.ListingExpiry.String(), "termsHash": terms, "state": stateNames[d.State],
	}
	if d.FundedAt.Sign() > 0 {
		fields["lender"], fields["price"], fields["fee"], fields["fundedAt"] = lower(d.Lender), d.Price.String(), d.Fee.String(), d.FundedAt.String()
	}
	return fields
}

// bid notes a bid, and whether it can be accepted.
func (v *views) bid(id string, tuple any, terms map[string]string, now uint64) {
	type bid struct {
		DealId    *big.Int //nolint:revive // named as the ABI names it
		Lender    common.Address
		Expiry    *big.Int
		PlacedAt  *big.Int
		State     uint8
		Price     *big.Int
		TermsHash common.Hash
	}
	b := abi.ConvertType(tuple, new(bid)).(*bid)
	deal := b.DealId.String()
	v.bids[id] = map[string]string{
		"dealId": deal, "lender": lower(b.Lender), "price": b.Price.String(), "expiry": b.Expiry.String(),
		"placedAt": b.PlacedAt.String(), "state": bidStateNames[b.State], "termsHash": b.TermsHash.Hex(),
	}
	if b.State == 0 && b.Expiry.Uint64() > now && b.TermsHash.Hex() == terms[deal] {
		if v.open[deal]++; v.best[deal] == nil || b.Price.Cmp(v.best[deal]) > 0 {
			v.best[deal] = b.Price
		}
	}
}

// object decodes an answer without loss.
func object(t *testing.T, body string) map[string]any {
	t.Helper()
	var o map[string]any
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return o
}

// requireFields compares the fields of want alone.
func requireFields(t *testing.T, what string, got any, want map[string]string) {
	t.Helper()
	o, _ := got.(map[string]any)
	for name, w := range want {
		if g := fmt.Sprint(o[name]); g != w {
			t.Errorf("%s: %s is %s, the contract says %s", what, name, g, w)
		}
	}
}

// The oracle is one node of ours. So its deals, bids and balances are held, at each block of each branch, against what the
// contracts themselves say as of that block.
func TestOracleSaysWhatTheContractsSay(t *testing.T) {
	_, o := judge(t)
	vault, err := contracts.ABI("DealVault")
	if err != nil {
		t.Fatal(err)
	}
	v := &viewer{vault: vault, owed: map[[2]common.Address]bool{}, at: map[common.Hash]*views{}}
	again, err := recordWorld(v.see)
	if err == nil {
		err = again.states.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	deals, bids, credits := 0, 0, 0
	for hash, answers := range o.answers {
		at, again := v.at[common.HexToHash(hash)]
		if !again {
			t.Fatalf("block %s was not recorded again: the scenario is not the same twice", hash)
		}
		if at == nil {
			continue
		}
		if t.Failed() {
			return // one block's differences are enough
		}
		block := answers["/stats"].number
		listed, _ := object(t, answers["/deals?limit=200"].body)["items"].([]any)
		if len(listed) != min(len(at.deals), 200) { // a page
			t.Errorf("block %s: %d deals, the contract has %d", block, len(listed), len(at.deals))
		}
		for id, want := range at.deals {
			r, known := answers["/deals/"+id]
			if !known || r.status != http.StatusOK {
				t.Fatalf("block %s: /deals/%s: %d", block, id, r.status)
			}
			answer := object(t, r.body)
			deal, _ := answer["deal"].(map[string]any)
			requireFields(t, fmt.Sprintf("block %s: deal %s", block, id), deal, want)
			requireFields(t, fmt.Sprintf("block %s: deal %s", block, id), deal, map[string]string{"openBidCount": fmt.Sprint(at.open[id])})
			if best := at.best[id]; best != nil {
				requireFields(t, fmt.Sprintf("block %s: the best bid of deal %s", block, id), deal["bestBid"], map[string]string{"price": best.String()})
			}
			deals++
			all, _ := answer["bids"].([]any)
			for _, b := range all {
				bid, _ := b.(map[string]any)
				requireFields(t, fmt.Sprintf("block %s: bid %v", block, bid["id"]), bid, at.bids[fmt.Sprint(bid["id"])])
				bids++
			}
		}
		owed := map[string]string{}
		for path, r := range answers {
			if !strings.HasPrefix(path, "/portfolio/") || r.status != http.StatusOK {
				continue
			}
			balances, _ := object(t, r.body)["balances"].([]any)
			for _, b := range balances {
				if b, _ := b.(map[string]any); b["kind"] != "NFT" {
					owed[fmt.Sprint(b["account"], " ", b["asset"])] = fmt.Sprint(b["amount"])
					credits++
				}
			}
		}
		for pair, want := range at.credits {
			if owed[pair] != want {
				t.Errorf("block %s: the vault owes %s %s, answers say %q", block, pair, want, owed[pair])
			}
		}
		if len(owed) != len(at.credits) {
			t.Errorf("block %s: %d credits, the contract has %d", block, len(owed), len(at.credits))
		}
	}
	if deals == 0 || bids == 0 || credits == 0 {
		t.Fatalf("%d deals, %d bids and %d credits compared", deals, bids, credits)
	}
	t.Logf("%d blocks: %d deals, %d bids and %d credits are the contracts'", len(o.answers), deals, bids, credits)
}
