package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// gasTimes is a lie about the gas that a transaction takes, by whichever method.
func gasTimes(num, den uint64) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		switch req.Method {
		case "eth_estimateGas":
			var said hexutil.Uint64
			if json.Unmarshal(resp.Result, &said) == nil {
				resp.Say(hexutil.Uint64(uint64(said) * num / den))
			}
		case "eth_simulateV1":
			simulationLie(func(call map[string]any) {
				call["gasUsed"] = hexutil.Uint64(hexutil.MustDecodeUint64(call["gasUsed"].(string)) * num / den)
			})(nil, nil, req, resp)
		}
		return false
	}
}

const (
	notReady  = `{"code":-32000,"message":"the backend is not ready"}`
	pruned    = `{"code":-32000,"message":"missing trie node"}`
	throttled = `{"code":429,"message":"Too Many Requests"}`
)

// orders are all orders of three nodes.
func orders(x, l, h string) [][]string {
	return [][]string{{x, l, h}, {x, h, l}, {l, x, h}, {l, h, x}, {h, x, l}, {h, l, x}}
}

// TestOneLiesAndOneFails: of three nodes one lies, and another fails at a method. No answer is wrong; and where the one that
// fails can still run the transaction, so that two sound ones can answer, an answer is given.
func TestOneLiesAndOneFails(t *testing.T) {
	w, _, fund := listed(t)
	truth := w.prepared(fund)
	invented := &types.Log{
		Address: w.dep.USDG, Topics: []common.Hash{transferTopic, common.BytesToHash(w.dep.DealVault[:]), {31: 0xbb}}, Data: common.FromHex(word(1_000_000)),
	}
	lies := map[string]rpctest.Lie{
		"gas": gasTimes(1, 10), "revert": reverting(nil), "grace": w.answers("GRACE", word(1)),
		"transfers": simulationLie(func(call map[string]any) { call["logs"] = append(call["logs"].([]any), invented) }),
	}
	faults := []struct {
		method, said string
		runs         bool // the node can still run the transaction
	}{
		{"eth_simulateV1", `{"code":-32601,"message":"the method eth_simulateV1 does not exist"}`, true},
		{"eth_simulateV1", notReady, true},
		{"eth_simulateV1", pruned, true},
		{"eth_simulateV1", throttled, false},
		{"eth_estimateGas", notReady, false},
		{"eth_call", notReady, false},
		{"eth_getBalance", pruned, false},
	}
	x, l, h := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	answers := 0
	for lie, tell := range lies {
		l.Tells(tell)
		for _, fault := range faults {
			x.Tells(refusing(fault.said, is(fault.method)))
			for _, urls := range orders(x.URL, l.URL, h.URL) {
				name := fmt.Sprintf("lie %s, fault of %s %s, order %d", lie, fault.method, fault.said, place(urls, x.URL)*3+place(urls, l.URL))
				v := w.over(urls...)
				for range 2 { // what a node lacks, or says otherwise, is known the second time
					answers += v.holds(name, fund, truth, lie == "transfers", fault.runs)
				}
				res := v.post(fund.with("maxPrice", "1"))
				if code := codeOf(t, res.Body); code != "SPEND_LIMIT" && (code != "UPSTREAM_UNAVAILABLE" || fault.runs) {
					t.Errorf("%s: it is refused with %s", name, res.Body)
				}
			}
		}
	}
	t.Logf("%d answers", answers)
}

// holds holds an answer to the truth, and says whether there was one. Transfers may be missing where they are disputed.
func (w *world) holds(name string, asked body, truth Prepared, disputed, answered bool) int {
	w.t.Helper()
	res := w.post(asked)
	if res.Status == http.StatusServiceUnavailable && !answered {
		return 0
	}
	if res.Status != http.StatusOK {
		w.t.Errorf("%s: %d %s", name, res.Status, res.Body)
		return 0
	}
	var p Prepared
	res.Decode(w.t, &p)
	if inText(p.Transaction) != inText(truth.Transaction) || inText(p.Terms) != inText(truth.Terms) || inText(p.Spend) != inText(truth.Spend) {
		w.t.Errorf("%s: %s, want %s", name, inText(p), inText(truth))
	}
	unknown := disputed && p.Simulation.Transfers == nil && p.Simulation.Method == byCall
	if !unknown && inText(p.Simulation) != inText(truth.Simulation) {
		w.t.Errorf("%s: %s, want %s", name, inText(p.Simulation), inText(truth.Simulation))
	}
	return 1
}

func place(urls []string, url string) int {
	for i, u := range urls {
		if u == url {
			return i
		}
	}
	return -1
}

func codeOf(t *testing.T, answer []byte) string {
	t.Helper()
	var v struct{ Error struct{ Code string } }
	if err := json.Unmarshal(answer, &v); err != nil {
		t.Fatal(err)
	}
	return v.Error.Code
}

// TestGasOfTheOneThatSimulates: of two nodes one cannot simulate, and can estimate. What the other says of gas is held to it.
func TestGasOfTheOneThatSimulates(t *testing.T) {
	w, _, fund := listed(t)
	x, liar := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	for _, fault := range []rpctest.Lie{noSimulation, refusing(notReady, is("eth_simulateV1"))} {
		x.Tells(fault)
		for _, urls := range [][]string{{x.URL, liar.URL}, {liar.URL, x.URL}} {
			liar.Tells(gasTimes(1, 10))
			w.over(urls...).refused("UPSTREAM_UNAVAILABLE", fund)
			liar.Tells(nil)
			w.over(urls...).prepared(fund)
		}
	}
}

// TestALiarWhereOneCannotSimulate: one of three lies about a read, for good, and one of the honest two cannot simulate. They
// agree about all else, and the liar is asked last.
func TestALiarWhereOneCannotSimulate(t *testing.T) {
	w, _, fund := listed(t)
	truth := w.prepared(fund)
	liar, one, two := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	liar.Tells(w.answers("GRACE", word(1)))
	one.Tells(noSimulation)
	for at, urls := range orders(liar.URL, one.URL, two.URL) {
		v := w.over(urls...)
		for i := range 3 {
			v.holds(fmt.Sprintf("order %d, time %d", at, i), fund, truth, false, true)
		}
	}
}
