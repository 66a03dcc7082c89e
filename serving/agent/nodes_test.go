package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// refusing is a node that answers some methods with an error.
func refusing(fault string, which func(method string) bool) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if which(req.Method) {
			resp.Result, resp.Error = nil, json.RawMessage(fault)
		}
		return false
	}
}

// reverted is a node's error of a call that reverts.
const reverted = `{"code":3,"message":"execution reverted","data":"0x"}`

func is(method string) func(string) bool { return func(m string) bool { return m == method } }

// ofState are the methods that read the state of a block.
func ofState(method string) bool { return method != "eth_getBlockByNumber" && method != "eth_chainId" }

// headerLie lies about fields of a block, not about its hash.
func headerLie(change func(block map[string]any)) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if block, _ := rpctest.Header(req, resp); block != nil {
			change(block)
			resp.Say(block)
		}
		return false
	}
}

func later(block map[string]any) {
	at, _ := hexutil.DecodeUint64(block["timestamp"].(string))
	block["timestamp"] = hexutil.EncodeUint64(at + 100*86400)
}

// blind is the world as a service sees it whose nodes may not agree on a head.
func (w *world) blind(urls ...string) *world {
	w.t.Helper()
	client := w.client(urls...)
	_, _ = client.Refresh(w.t.Context())
	return w.seeing(client)
}

// TestWhatAnActionDependsOnIsReadTwice: one of two nodes invents a credit, a balance, an allowance or collateral.
func TestWhatAnActionDependsOnIsReadTwice(t *testing.T) {
	w, deal, fund := listed(t)
	w.sent(w.prepared(fund))
	w.sync()
	liar, honest := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	for _, urls := range [][]string{{liar.URL, honest.URL}, {honest.URL, liar.URL}} {
		v := w.over(urls...)
		take := body{"action": "withdrawCredit", "chainId": 4663, "wallet": w.actors[0].Hex(), "token": w.dep.USDG.Hex()}
		liar.Tells(nil)
		owed := v.prepared(take).Simulation.Transfers[0].AmountOrTokenID
		n, _ := new(big.Int).SetString(owed, 10)
		liar.Tells(says(nil, word(n.Int64()), word(9_000_000_000)))
		v.refused("UPSTREAM_UNAVAILABLE", take)

		// The token is no collateral of the registry.
		liar.Tells(nil)
		approve := body{"action": "approveCollateral", "chainId": 4663, "wallet": w.actors[0].Hex(), "token": w.dep.STKN.Hex(), "amount": "1"}
		v.refused("INVALID_INPUT", approve)
		liar.Tells(w.answersOf("AssetRegistry", "asset", word(1)+word(0)+word(0)+word(1)+word(1)+word(1)+word(0)))
		if res := v.post(approve); res.Status == http.StatusOK {
			t.Errorf("collateral of one node: %s", res.Body)
		}
		liar.Tells(w.answersOf("USDG", "balanceOf", word(5)))
		reclaim := body{
			"action": "reclaim", "chainId": 4663, "wallet": endless.Hex(), "dealId": "1", "termsHash": deal.TermsHash, "spendLimit": "99999999",
		}
		if res := v.post(reclaim); res.Status == http.StatusOK {
			t.Errorf("a balance of one node: %s", res.Body)
		}
	}
}

// TestAHeaderOfOneNode: one of two nodes gives the right hash with another timestamp or gas limit, or of the block before.
func TestAHeaderOfOneNode(t *testing.T) {
	w, _, fund := listed(t)
	if r := w.sent(w.prepared(fund)); r.Status != types.ReceiptStatusSuccessful {
		t.Fatal("fund")
	}
	if _, err := w.node.Mine(t.Context(), w.head().Timestamp+1, nil); err != nil {
		t.Fatal(err)
	}
	w.head()
	liar, honest := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	for name, change := range map[string]func(map[string]any){
		"gas limit": func(b map[string]any) { b["gasLimit"] = "0xc350" },
		"timestamp": later,
		"timestamp of the block before": func(b map[string]any) { // the lowest number is the head's
			n, _ := hexutil.DecodeUint64(b["number"].(string))
			b["number"], b["hash"] = hexutil.EncodeUint64(n-1), b["parentHash"]
			later(b)
		},
	} {
		liar.Tells(headerLie(change))
		for _, urls := range [][]string{{liar.URL, honest.URL}, {honest.URL, liar.URL}} {
			v := w.blind(urls...)
			v.isError("UPSTREAM_UNAVAILABLE", v.Get(t, "/v1/deals/1"))
			v.refused("UPSTREAM_UNAVAILABLE", fund)
		}
		t.Log(name)
	}
}

// TestASecondOpinionIsAnothers: one node lies, and the other says that it does not have the block.
func TestASecondOpinionIsAnothers(t *testing.T) {
	w, _, fund := listed(t)
	w.sent(w.prepared(fund))
	w.sync()
	path := "/v1/portfolio/" + w.actors[0].Hex()
	credit := get[Portfolio](w, path).USDGCredit
	liar, honest := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	liar.Tells(w.answers("credits", word(9_000_000_000)))
	for _, fault := range []string{
		`{"code":-32000,"message":"hash is not currently canonical"}`, `{"code":-32000,"message":"header not found"}`,
		`{"code":-32603,"message":"internal error"}`,
	} {
		honest.Tells(refusing(fault, ofState))
		v := w.over(liar.URL, honest.URL)
		if res := v.Get(t, path); res.Status == http.StatusOK {
			t.Errorf("credit %s, and although the other node says %s: %s", credit, fault, res.Body)
		}
	}
}

// TestANodeThatDoesNotAnswerCalls: it is no wrong deployment, and asking again may help.
func TestANodeThatDoesNotAnswerCalls(t *testing.T) {
	w, _, fund := listed(t)
	moody := rpctest.NewLiar(t, w.node.HTTP(), 0)
	v := w.over(moody.URL)
	for _, fault := range []string{
		`{"code":-32004,"message":"the method is not available now"}`, `{"code":-32601,"message":"the method eth_call does not exist"}`,
		`{"code":-32603,"message":"internal error"}`,
	} {
		moody.Tells(refusing(fault, is("eth_call")))
		v.refused("UPSTREAM_UNAVAILABLE", fund)
		v.isError("UPSTREAM_UNAVAILABLE", v.Get(t, "/v1/deals/1"))
	}
}

// TestANodeThatWillNotSimulate: that says nothing of the transaction, which would succeed. What it refuses because of the
// transaction does.
func TestANodeThatWillNotSimulate(t *testing.T) {
	w, _, fund := listed(t)
	moody := rpctest.NewLiar(t, w.node.HTTP(), 0)
	v := w.over(moody.URL)
	for _, method := range []string{"eth_simulateV1", "eth_estimateGas"} {
		for fault, code := range map[string]string{
			`{"code":-32000,"message":"the backend is not ready"}`:                            "UPSTREAM_UNAVAILABLE",
			`{"code":-32603,"message":"internal error"}`:                                      "UPSTREAM_UNAVAILABLE",
			`{"code":-32000,"message":"execution aborted (timeout = 5s)"}`:                    "UPSTREAM_UNAVAILABLE",
			`{"code":429,"message":"Too Many Requests"}`:                                      "UPSTREAM_UNAVAILABLE",
			`{"code":-32007,"message":"100/second request limit reached"}`:                    "UPSTREAM_UNAVAILABLE",
			`{"code":-32000,"message":"gas required exceeds allowance (21000)"}`:              "SIMULATION_FAILED",
			`{"code":-38014,"message":"insufficient funds for gas * price + value"}`:          "SIMULATION_FAILED",
			`{"code":-32000,"message":"err: insufficient funds for transfer (supplied gas)"}`: "SIMULATION_FAILED",
		} {
			moody.Tells(refusing(fault, is(method)))
			t.Log(method, fault)
			v.refused(code, fund)
		}
	}
}

// TestAThrottledNodeIsPassedOver: a provider that was asked too often says so in an answer of its own, and of three the other
// two are asked. So is it where one will not simulate, of two as well.
func TestAThrottledNodeIsPassedOver(t *testing.T) {
	w, _, fund := listed(t)
	first := true
	for name, lie := range map[string]rpctest.Lie{
		"throttled": refusing(`{"code":429,"message":"Too Many Requests"}`, ofState),
		"not ready": refusing(`{"code":-32000,"message":"the backend is not ready"}`, is("eth_simulateV1")),
		"no state at first": refusing(`{"code":-32603,"message":"internal error"}`, func(method string) bool {
			refused := first && method == "eth_getBalance"
			first = first && !refused
			return refused
		}),
	} {
		moody, ready := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
		moody.Tells(lie)
		urls := []string{moody.URL, ready.URL}
		if name == "throttled" {
			urls = append(urls, rpctest.NewLiar(t, w.node.HTTP(), 0).URL)
		}
		v := w.over(urls...)
		if name == "throttled" {
			for _, path := range []string{"/v1/capabilities", "/v1/deals/1"} {
				if res := v.Get(t, path); res.Status != http.StatusOK {
					t.Errorf("%s: %s: %s", name, path, res.Body)
				}
			}
		}
		if res := v.post(fund); res.Status != http.StatusOK {
			t.Errorf("%s: %s", name, res.Body)
		}
	}
}

// TestIdentityOfOneNode: one of two nodes has another deployment, whichever is asked first.
func TestIdentityOfOneNode(t *testing.T) {
	w, _, fund := listed(t)
	liar, honest := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	liar.Tells(w.answers("registry", word(5)))
	for _, urls := range [][]string{{liar.URL, honest.URL}, {honest.URL, liar.URL}} {
		for _, path := range []string{"/v1/capabilities", "/v1/assets", "/v1/deals/1"} {
			v := w.over(urls...)
			v.isError("UPSTREAM_UNAVAILABLE", v.Get(t, path))
		}
		w.over(urls...).refused("UPSTREAM_UNAVAILABLE", fund)
	}
}

// TestThreeStandOneLiar: one of three nodes agrees about the head and lies about the state, about what a transaction does,
// or about the block of the index.
func TestThreeStandOneLiar(t *testing.T) {
	w, _, fund := listed(t)
	for range 2 { // so that the index is behind the head's parent
		if _, err := w.node.Mine(t.Context(), w.head().Timestamp+1, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.head()
	liar, one, two := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	below := headerLie(func(b map[string]any) { // of the index's block, which is not the latest
		if b["number"] == hexutil.EncodeUint64(w.index.at.Number) {
			b["hash"] = common.Hash{1}.Hex()
		}
	})
	for name, lie := range map[string]rpctest.Lie{
		"state": w.answers("GRACE", word(1)), "contracts": w.answers("registry", word(5)), "block": below,
		"run": refusing(reverted, is("eth_simulateV1")),
		"gas": refusing(`{"code":-32000,"message":"gas required exceeds allowance (21000)"}`, is("eth_estimateGas")),
	} {
		liar.Tells(lie)
		for at, urls := range [][]string{{liar.URL, one.URL, two.URL}, {one.URL, liar.URL, two.URL}, {one.URL, two.URL, liar.URL}} {
			for _, path := range []string{"/v1/capabilities", "/v1/deals/1", "/v1/listings"} {
				if res := w.over(urls...).Get(t, path); res.Status != http.StatusOK {
					t.Errorf("%s, liar %d: %s: %s", name, at, path, res.Body)
				}
			}
			if res := w.over(urls...).post(fund); res.Status != http.StatusOK {
				t.Errorf("%s, liar %d: prepare: %s", name, at, res.Body)
			}
		}
	}
}

// TestOneOfThreeSaysWhatCannotBe: an error that no such call has, a block of no time, or another price than it read itself.
// That is one node's word, and the other two agree.
func TestOneOfThreeSaysWhatCannotBe(t *testing.T) {
	w, _, fund := listed(t)
	for range 2 { // so that the index is behind the head's parent
		if _, err := w.node.Mine(t.Context(), w.head().Timestamp+1, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.head()
	funded := w.agent.contracts.vault.Events["DealFunded"].ID.Hex()
	price := simulationLie(func(call map[string]any) {
		for _, l := range call["logs"].([]any) {
			if m := l.(map[string]any); m["topics"].([]any)[0] == funded {
				m["data"] = hexutil.Encode(bytes.Repeat([]byte{1}, len(hexutil.MustDecode(m["data"].(string)))))
			}
		}
	})
	height := hexutil.EncodeUint64(w.index.at.Number)
	indexed := func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if _, tag := rpctest.Header(req, resp); tag == height {
			resp.Result, resp.Error = nil, json.RawMessage(reverted)
		}
		return false
	}
	timeless := headerLie(func(b map[string]any) {
		if b["number"] == height {
			b["timestamp"] = "0x10000000000"
		}
	})
	liar, one, two := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	for name, lie := range map[string]rpctest.Lie{
		"a balance reverts":          refusing(reverted, is("eth_getBalance")),
		"code reverts":               refusing(reverted, is("eth_getCode")),
		"calls lack funds":           refusing(`{"code":-32000,"message":"insufficient funds"}`, is("eth_call")),
		"the index's block reverts":  indexed,
		"the index's block: no time": timeless,
		"price of the simulation":    price,
	} {
		liar.Tells(lie)
		for at, urls := range [][]string{{liar.URL, one.URL, two.URL}, {one.URL, liar.URL, two.URL}, {one.URL, two.URL, liar.URL}} {
			for _, path := range []string{"/v1/capabilities", "/v1/deals/1", "/v1/listings"} {
				if res := w.over(urls...).Get(t, path); res.Status != http.StatusOK {
					t.Errorf("%s, liar %d: %s: %s", name, at, path, res.Body)
				}
			}
			if res := w.over(urls...).post(fund); res.Status != http.StatusOK {
				t.Errorf("%s, liar %d: prepare: %s", name, at, res.Body)
			}
		}
	}
}

// TestWhatWasReadOfOtherContracts: a check of the contracts fails at a head, and what was read at that head before is not
// served on.
func TestWhatWasReadOfOtherContracts(t *testing.T) {
	w, _, fund := listed(t)
	moody := rpctest.NewLiar(t, w.node.HTTP(), 0)
	v := w.over(moody.URL)
	get[Capabilities](v, "/v1/capabilities")
	get[DirectDeal](v, "/v1/deals/1")
	moody.Tells(w.answers("registry", word(5)))
	v.refused("DEPLOYMENT_MISMATCH", fund)
	for _, path := range []string{"/v1/listings", "/v1/capabilities", "/v1/deals/1"} {
		v.isError("DEPLOYMENT_MISMATCH", v.Get(t, path))
	}
}

// TestWhoHangsUp voids nothing of what is known of the contracts; nor does a node that is away.
func TestWhoHangsUp(t *testing.T) {
	w, _, fund := listed(t)
	moody := rpctest.NewLiar(t, w.node.HTTP(), 0)
	v := w.over(moody.URL)
	get[Capabilities](v, "/v1/capabilities")
	text, err := json.Marshal(fund)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, prepareRoute, strings.NewReader(string(text)))
	r.Header.Set("Content-Type", "application/json")
	v.agent.ServeHTTP(httptest.NewRecorder(), r)
	if !v.agent.known() {
		t.Error("a caller who hung up makes the contracts unknown to all")
	}
	r = httptest.NewRequestWithContext(ctx, http.MethodPost, mcpRoute, strings.NewReader(oneCall))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	v.agent.ServeHTTP(httptest.NewRecorder(), r)
	counted := func(code string) float64 { return testutil.ToFloat64(v.agent.metrics.answers.WithLabelValues(code)) }
	if gone, faults := counted(hungUp), counted("UPSTREAM_UNAVAILABLE"); gone < 1 || gone > 2 || faults != 0 {
		t.Errorf("two callers hung up: %v are counted, and %v answers of a node that is away", gone, faults)
	}
	moody.Tells(refusing(`{"code":429,"message":"Too Many Requests"}`, ofState))
	v.refused("UPSTREAM_UNAVAILABLE", fund)
	if !v.agent.known() {
		t.Error("a node that is away makes the contracts unknown")
	}
}

// TestGasThatNoBlockHas: what a node says is no number to reckon with.
func TestGasThatNoBlockHas(t *testing.T) {
	w, _, fund := listed(t)
	liar := rpctest.NewLiar(t, w.node.HTTP(), 0)
	for _, said := range []uint64{1 << 41, 1 << 62, 1<<64 - 1} {
		liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_estimateGas" {
				resp.Say(hexutil.Uint64(said))
			}
			return false
		})
		w.over(liar.URL).refused("UPSTREAM_UNAVAILABLE", fund)
	}
	for _, c := range []struct{ needed, bps, limit, want uint64 }{
		{100_000, 2_000, 0, 120_000}, {100_000, 2_000, 110_000, 110_000}, {maxGas, 100_000, 0, 11 * maxGas},
	} {
		if got, err := (&simulated{needed: c.needed}).withHeadroom(c.bps, c.limit); err != nil || got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}

// TestWhoWasContradictedIsNoAnswer: the two nodes that contradicted a third are throttled for a moment. What that one says
// alone is neither answered nor prepared.
func TestWhoWasContradictedIsNoAnswer(t *testing.T) {
	w, _, fund := listed(t)
	w.sent(w.prepared(fund))
	w.sync()
	path := "/v1/portfolio/" + w.actors[0].Hex()
	liar, one, two := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	liar.Tells(w.answers("credits", word(9_000_000_000)))
	client := w.client(liar.URL, one.URL, two.URL)
	if _, err := client.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := w.seeing(client)
	if res := v.Get(t, path); res.Status != http.StatusOK {
		t.Fatalf("two of three agree: %s", res.Body)
	}
	busy := refusing(`{"code":429,"message":"Too Many Requests"}`, ofState)
	one.Tells(busy)
	two.Tells(busy)
	if _, err := w.node.Mine(t.Context(), w.head().Timestamp+1, nil); err != nil {
		t.Fatal(err)
	}
	w.sync()
	if _, err := client.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.isError("UPSTREAM_UNAVAILABLE", v.Get(t, path))
	take := body{"action": "withdrawCredit", "chainId": 4663, "wallet": w.actors[0].Hex(), "token": w.dep.USDG.Hex()}
	v.isError("UPSTREAM_UNAVAILABLE", v.post(take))
}

// TestNobodyIsHisOwnSecondOpinion: the others still tell their head, and are throttled or fail when asked for anything else.
// What one node says alone is neither answered nor prepared, although nobody has contradicted it yet.
func TestNobodyIsHisOwnSecondOpinion(t *testing.T) {
	w, deal, fund := listed(t)
	w.sent(w.prepared(fund))
	w.sync()
	usdg := w.dep.USDG.Hex()
	take := body{"action": "withdrawCredit", "chainId": 4663, "wallet": w.actors[0].Hex(), "token": usdg}
	reclaim := body{
		"action": "reclaim", "chainId": 4663, "wallet": endless.Hex(), "dealId": "1", "termsHash": deal.TermsHash, "spendLimit": "99999999",
	}
	for nodes := 2; nodes <= 3; nodes++ {
		for name, fault := range map[string]rpctest.Lie{
			"throttled": refusing(`{"code":429,"message":"Too Many Requests"}`, ofState),
			"away": func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
				if ofState(req.Method) {
					w.WriteHeader(http.StatusBadGateway)
				}
				return ofState(req.Method)
			},
		} {
			liar := rpctest.NewLiar(t, w.node.HTTP(), 0)
			liar.Tells(w.answers("credits", word(9_000_000_000)))
			urls := []string{liar.URL}
			for len(urls) < nodes {
				busy := rpctest.NewLiar(t, w.node.HTTP(), 0)
				busy.Tells(fault)
				urls = append(urls, busy.URL)
			}
			t.Log(nodes, name)
			v := w.over(urls...)
			v.isError("UPSTREAM_UNAVAILABLE", v.Get(t, "/v1/portfolio/"+w.actors[0].Hex()))
			v.refused("UPSTREAM_UNAVAILABLE", take)
			w.over(urls...).refused("UPSTREAM_UNAVAILABLE", reclaim)
			for _, path := range []string{"/v1/capabilities", "/v1/listings", "/v1/deals/1"} {
				v := w.over(urls...)
				v.isError("UPSTREAM_UNAVAILABLE", v.Get(t, path))
			}
		}
	}
}
