package agent

import (
	"bytes"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/google/go-cmp/cmp"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// Accounts of a first block that hold code.
var (
	endless = common.HexToAddress("0xe000000000000000000000000000000000000001") // never ends
	verbose = common.HexToAddress("0xe000000000000000000000000000000000000002") // answers 4.7 MB
	broken  = common.HexToAddress("0xe000000000000000000000000000000000000003") // an invalid opcode
	taker   = common.HexToAddress("0xe000000000000000000000000000000000000004") // a token of whose transfers nothing arrives
	mute    = common.HexToAddress("0xe000000000000000000000000000000000000006") // a token that reverts when asked who has how much
	lavish  = common.HexToAddress("0xe000000000000000000000000000000000000007") // a token that moves ether and an NFT when it is transferred
	wallet  = common.HexToAddress("0xe000000000000000000000000000000000000005") // calls the account that its input begins with
)

func withCode() types.GenesisAlloc {
	alloc := types.GenesisAlloc{}
	event := transferTopic.Hex()[2:]
	for at, code := range map[common.Address]string{
		endless: "5b5f56",
		verbose: "624800005ff3",
		broken:  "fe",
		// It answers 1 to whoever gives an argument: a balance, an allowance, a transfer that went well. Its name is empty.
		taker: "36600414600f5760015f5260205ff35b60205f5260605ff3",
		mute:  "5f3560e01c6370a082311460265736600414601d5760015f5260205ff35b60205f5260605ff35b5f5ffd",
		// Its name is empty. balanceOf and allowance: 1000 more than were transferred. transferFrom: it counts, logs Transfer(from, to, amount) and
		// Transfer(0xaa, 0xbb, 7) of an NFT, and sends 1 wei to 0xcc.
		lavish: "36600414609557" + "5f3560e01c6323b872dd146021575f546103e8015f5260205ff3" +
			"5b604435805f54015f555f52602435600435" + "7f" + event + "60205fa3" +
			"600760bb60aa7f" + event + "5f5fa4" + "5f5f5f5f600160cc5af150" + "60015f5260205ff3" + "5b60205f5260605ff3",
		// call(address(input[0:20]), input[20:]), and a revert where that reverts.
		wallet: "601436038060145f375f5f915f5f5f3560601c5af115601a57005b5f5ffd",
	} {
		alloc[at] = types.Account{Balance: big.NewInt(1e18), Code: common.FromHex(code)}
	}
	return alloc
}

// TestHostileContracts: a token may be any contract. Whatever it does is its own failure, and not the node's.
func TestHostileContracts(t *testing.T) {
	w, _, fund := listedOn(t, newNodeWith(t, 5, withCode()))
	for _, token := range []common.Address{endless, verbose, broken, common.BytesToAddress([]byte{8}), w.dep.PoolManager} {
		base := body{"chainId": 4663, "wallet": fund["wallet"], "token": token.Hex()}
		w.refused("NOTHING_TO_WITHDRAW", base.with("action", "withdrawCredit"))
		w.refused("INVALID_INPUT", base.with("action", "approveCollateral", "amount", "1"))
		w.refused("INVALID_INPUT", base.with("action", "list", "amount", "1", "cap", "2", "minPrice", "1", "term", 604_800, "listingExpiry", 0))
	}
	w.prepared(fund)

	// Ones that the registry takes for a stock: one keeps what is transferred, one does not say who has how much of it.
	one := big.NewInt(1)
	for token, want := range map[common.Address]string{taker: "FeeOnTransfer", mute: "does not say what the wallet has"} {
		w.call(w.admin, w.dep.AssetRegistry, "AssetRegistry", "setAsset", token, struct {
			Allowed                           bool
			Kind, Lane                        uint8
			MinAmount, MaxDealRaw, MaxOpenRaw *big.Int
		}{true, uint8(contracts.KindERC20), uint8(contracts.LaneStock), one, one, one})
		message := w.refused("SIMULATION_FAILED", body{
			"action": "list", "chainId": 4663, "wallet": fund["wallet"], "token": token.Hex(), "amount": "1", "cap": "2", "minPrice": "1",
			"term": 604_800, "listingExpiry": 0,
		})
		if !strings.Contains(message, want) {
			t.Errorf("%s: %s, want %s", token, message, want)
		}
	}
}

// TestTransfersOfEveryKind: no action moves ether or an NFT, but what a collateral does when it is transferred is shown
// too, and happens.
func TestTransfersOfEveryKind(t *testing.T) {
	w, _, fund := listedOn(t, newNodeWith(t, 5, withCode()))
	one := big.NewInt(1)
	w.call(w.admin, w.dep.AssetRegistry, "AssetRegistry", "setAsset", lavish, struct {
		Allowed                           bool
		Kind, Lane                        uint8
		MinAmount, MaxDealRaw, MaxOpenRaw *big.Int
	}{true, uint8(contracts.KindERC20), uint8(contracts.LaneStock), one, one, one})
	p := w.prepared(body{
		"action": "list", "chainId": 4663, "wallet": fund["wallet"], "token": lavish.Hex(), "amount": "1", "cap": "2", "minPrice": "1",
		"term": 604_800, "listingExpiry": 0,
	})
	token, low := lower(lavish), func(n int64) string { return lower(common.BigToAddress(big.NewInt(n))) }
	want := []Transfer{
		{Kind: "ERC20", Token: &token, From: p.Transaction.From, To: lower(w.dep.DealVault), AmountOrTokenID: "1"},
		{Kind: "ERC721", Token: &token, From: low(0xaa), To: low(0xbb), AmountOrTokenID: "7"},
		{Kind: "NATIVE", From: token, To: low(0xcc), AmountOrTokenID: "1"},
	}
	if diff := cmp.Diff(want, p.Simulation.Transfers); diff != "" {
		t.Errorf("transfers (-want +said):\n%s", diff)
	}
	receipt := w.sent(p)
	if diff := cmp.Diff(want[:2], decodeTransfers(receipt.Logs)); diff != "" || receipt.Status != types.ReceiptStatusSuccessful {
		t.Errorf("transfers (-said +done), status %d:\n%s", receipt.Status, diff)
	}
	if held, err := w.node.Client().BalanceAt(t.Context(), common.HexToAddress(low(0xcc)), nil); err != nil || held.Cmp(one) != 0 {
		t.Errorf("the ether has not moved: %v, %v", held, err)
	}
}

// TestContractWallet: a wallet that is a contract is a caller as any other.
func TestContractWallet(t *testing.T) {
	w, _, fund := listedOn(t, newNodeWith(t, 5, withCode()))
	owner := w.actors[2]
	w.call(w.actors[1], w.dep.USDG, "USDG", "transfer", wallet, big.NewInt(1_000_000))
	for _, b := range []body{
		{"action": "approveUsdg", "chainId": 4663, "amount": "1000000"},
		fund,
	} {
		p := w.prepared(b.with("wallet", wallet.Hex()))
		input := append(common.HexToAddress(p.Transaction.To).Bytes(), hexutil.MustDecode(p.Transaction.Data)...)
		receipt := w.mine(w.sign(owner, wallet, input, 3_000_000))
		if receipt.Status != types.ReceiptStatusSuccessful {
			t.Fatalf("%s was prepared and reverts", p.Action)
		}
		if diff := cmp.Diff(p.Simulation.Transfers, decodeTransfers(receipt.Logs)); diff != "" {
			t.Errorf("%s: transfers (-said +done):\n%s", p.Action, diff)
		}
		w.head()
	}
	if d := get[DirectDeal](w, "/v1/deals/1"); d.State != "FUNDED" || *d.Lender != lower(wallet) {
		t.Errorf("the deal is %s", d.State)
	}
	// Anybody may repay a deal. Who is not its borrower should know who gets the collateral.
	w.call(w.actors[1], w.dep.USDG, "USDG", "transfer", owner, big.NewInt(1_100_000))
	w.sent(w.prepared(body{"action": "approveUsdg", "chainId": 4663, "wallet": owner.Hex(), "amount": "1100000"}))
	w.head()
	reclaim := body{"action": "reclaim", "chainId": 4663, "wallet": owner.Hex(), "dealId": "1", "termsHash": fund["termsHash"], "spendLimit": "1100000"}
	if all := w.prepared(reclaim).Warnings; len(all) != 1 || all[0].Code != "NOT_BORROWER" || !strings.Contains(all[0].Message, lower(w.actors[0])) {
		t.Errorf("who repays the deal of another is told %+v", all)
	}
}

// TestEdgesOfNumbers: every number at the edges of what its field may hold is answered by a code, or by a transaction
// that does what it says.
func TestEdgesOfNumbers(t *testing.T) {
	w, deal, _ := listed(t)
	power := func(bits uint, less int64) *big.Int {
		n := new(big.Int).Lsh(big.NewInt(1), bits)
		return n.Sub(n, big.NewInt(less))
	}
	edges := []*big.Int{
		new(big.Int), big.NewInt(1), power(32, 1), power(40, 1), power(40, 0), power(63, 1), power(64, 1), power(64, 0),
		power(128, 1), power(128, 0), power(255, 0), power(256, 1), power(256, 0),
	}
	stock := get[page[Asset]](w, "/v1/assets").Items[0].Token
	codes := map[string]int{}
	for _, action := range actionNames() {
		b := body{"action": action, "chainId": 4663, "wallet": w.actors[1].Hex()}
		for _, name := range w.agent.actions[action].fields {
			b[name] = map[string]any{
				"dealId": "1", "bidId": "1", "termsHash": deal.TermsHash, "token": stock, "amount": "1", "cap": "2", "minPrice": "1", "price": "1",
				"maxPrice": "5000000", "spendLimit": "5000000", "term": 604_800, "listingExpiry": 0, "expiry": deal.ListedAt + 1000,
			}[name]
		}
		for name, was := range b {
			for _, n := range edges {
				var value any = n.String()
				switch was.(type) {
				case int, uint64:
					value = n
				default:
					if name == "action" || name == "wallet" || name == "token" || name == "termsHash" {
						continue
					}
				}
				res := w.post(b.with(name, value))
				if res.Status != http.StatusOK {
					code, _ := res.Error(t)
					codes[code]++
					continue
				}
				codes["OK"]++
				var p Prepared
				res.Decode(t, &p)
				if r := w.sent(p); r.Status != types.ReceiptStatusSuccessful {
					t.Errorf("%s with %s %s was prepared and reverts", action, name, n)
				}
				if err := w.node.Rewind(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				w.head()
			}
		}
	}
	t.Log(codes)
	for _, want := range []string{"OK", "INVALID_INPUT", "CHAIN_MISMATCH", "DEAL_NOT_FOUND", "INSUFFICIENT_BALANCE", "SPEND_LIMIT", "SIMULATION_FAILED"} {
		if codes[want] == 0 {
			t.Errorf("no %s", want)
		}
	}
	if codes["INTERNAL"] > 0 {
		t.Errorf("%d errors of our own", codes["INTERNAL"])
	}
	limitless := w.prepared(body{"action": "approveUsdg", "chainId": 4663, "wallet": endless.Hex(), "amount": power(256, 1).String()})
	if len(limitless.Warnings) == 0 || limitless.Warnings[0].Code != "UNLIMITED_ALLOWANCE" {
		t.Errorf("an approval without limit is prepared with %+v", limitless.Warnings)
	}
}

// TestALieOfOneOfTwo: what one node says of a bid another simulates, and they do not agree.
func TestALieOfOneOfTwo(t *testing.T) {
	w, deal, fund := listed(t)
	bid := body{
		"action": "placeBid", "chainId": 4663, "wallet": fund["wallet"], "dealId": "1", "termsHash": deal.TermsHash, "price": "900001",
		"expiry": deal.ListedAt + 1000, "spendLimit": "900001",
	}
	if r := w.sent(w.prepared(bid)); r.Status != types.ReceiptStatusSuccessful {
		t.Fatal("the bid reverted")
	}
	w.sync()
	word := func(n int64) string { return fmt.Sprintf("%064x", n) }
	liar, honest := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, _ rpctest.Message, resp *rpctest.Message) bool {
		resp.Result = bytes.ReplaceAll(resp.Result, []byte(word(900_001)), []byte(word(1_000_001)))
		return false
	})
	accept := body{
		"action": "acceptBid", "chainId": 4663, "wallet": w.actors[0].Hex(), "dealId": "1", "bidId": "1", "termsHash": deal.TermsHash, "minPrice": "1000000",
	}
	w.refused("SPEND_LIMIT", accept)
	w.prepared(accept.with("minPrice", "900001"))
	for _, urls := range [][]string{{liar.URL, honest.URL}, {honest.URL, liar.URL}} {
		client := w.client(urls...)
		if _, err := client.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		v := &world{t: t, Client: apitest.NewClient(t, w.service(func(_ *Config, p *Parts) { p.Chain = client }), description)}
		b := accept
		if urls[0] == honest.URL {
			b = accept.with("minPrice", "900001")
		}
		v.refused("UPSTREAM_UNAVAILABLE", b)
	}
}

// TestANodeThatWillNotAnswer: a call that the node refuses says nothing of the contracts, nor of what a wallet has.
func TestANodeThatWillNotAnswer(t *testing.T) {
	w, deal, fund := listed(t)
	moody := rpctest.NewLiar(t, w.node.HTTP(), 0)
	client := w.client(moody.URL)
	if _, err := client.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Client = apitest.NewClient(t, w.service(func(_ *Config, p *Parts) { p.Chain = client }), description)
	for _, to := range []common.Address{w.dep.DealVault, w.dep.USDG, w.dep.AssetRegistry} {
		moody.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_call" && bytes.Contains(bytes.ToLower(req.Params[0]), []byte(lower(to))) {
				resp.Result, resp.Error = nil, []byte(`{"code":-32000,"message":"the backend is not ready"}`)
			}
			return false
		})
		w.refused("UPSTREAM_UNAVAILABLE", fund)
	}
	// What it refuses to say of a stock is not that the wallet has nothing.
	stock := common.HexToAddress(deal.Token)
	moody.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_call" && bytes.Contains(bytes.ToLower(req.Params[0]), []byte(lower(stock))) {
			resp.Result, resp.Error = nil, []byte(`{"code":-32000,"message":"the backend is not ready"}`)
		}
		return false
	})
	w.refused("UPSTREAM_UNAVAILABLE", body{
		"action": "list", "chainId": 4663, "wallet": w.actors[0].Hex(), "token": deal.Token, "amount": deal.AmountOrTokenID, "cap": "2",
		"minPrice": "1", "term": 604_800, "listingExpiry": 0,
	})
	// The block is reorganised away after it was read.
	moody.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_simulateV1" {
			resp.Result, resp.Error = nil, []byte(`{"code":-32000,"message":"header not found"}`)
		}
		return false
	})
	w.refused("UPSTREAM_UNAVAILABLE", fund)
	// A deal whose terms do not hash to what the vault says of them is none of this vault.
	moody.Tells(func(_ http.ResponseWriter, _ *http.Request, _ rpctest.Message, resp *rpctest.Message) bool {
		resp.Result = bytes.ReplaceAll(resp.Result, fmt.Appendf(nil, "%064x", 1_100_000), fmt.Appendf(nil, "%064x", 1_100_001))
		return false
	})
	w.refused("DEPLOYMENT_MISMATCH", fund)
	w.isError("DEPLOYMENT_MISMATCH", w.Get(t, "/v1/deals/1"))
}

// TestTooLarge: a body of one byte too many is refused, whether it says its length or not.
func TestTooLarge(t *testing.T) {
	w, _, _ := listed(t)
	server := httptest.NewServer(w.agent)
	defer server.Close()
	for _, path := range []string{prepareRoute, mcpRoute} {
		for _, chunked := range []bool{false, true} {
			for _, size := range []int{16 << 10, 16<<10 + 1} {
				var content io.Reader = strings.NewReader(`"` + strings.Repeat("x", size-2) + `"`)
				if chunked {
					content = io.MultiReader(content)
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, content)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				text, err := w.Document.Check(http.MethodPost, path, res)
				_ = res.Body.Close()
				want := http.StatusBadRequest
				if size > 16<<10 {
					want = http.StatusRequestEntityTooLarge
				}
				if err != nil || res.StatusCode != want {
					t.Errorf("%s of %d bytes, chunked %t: %d %s, %v", path, size, chunked, res.StatusCode, text, err)
				}
			}
		}
	}
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "lienstream_agent_answers_total" && strings.Contains(f.String(), "INTERNAL") {
			t.Error("what is too large counts as our own error")
		}
	}
}
