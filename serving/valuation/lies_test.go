package valuation

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// ofPools is a node that changes the first word of each pool in what it says of the PoolManager's storage.
func ofPools(pools int, change func(word []byte)) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method != "eth_call" || !bytes.Contains(req.Params[0], []byte(common.Bytes2Hex(selectorExtsload))) {
			return false
		}
		var data hexutil.Bytes
		if json.Unmarshal(resp.Result, &data) != nil || len(data) < 64+32*wordsOfPool*pools {
			return false
		}
		for i := range pools {
			change(data[64+32*wordsOfPool*i:][:32])
		}
		resp.Say(data)
		return false
	}
}

// answersTo is a node that answers a call of its own.
func answersTo(selector []byte, answer any) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_call" && bytes.Contains(req.Params[0], []byte(common.Bytes2Hex(selector))) {
			resp.Say(answer)
		}
		return false
	}
}

// toSimulations is a node that changes what a simulation returns.
func toSimulations(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	var blocks []map[string]any
	if req.Method != "eth_simulateV1" || json.Unmarshal(resp.Result, &blocks) != nil {
		return false
	}
	calls := blocks[len(blocks)-1]["calls"].([]any)
	calls[len(calls)-1].(map[string]any)["returnData"] = "0x" + common.Bytes2Hex(make([]byte, 32))
	resp.Say(blocks)
	return false
}

// ofPast is a node that changes a pool's growth as of an earlier block.
func ofPast(change func(word []byte)) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var data hexutil.Bytes
		if req.Method == "eth_call" && json.Unmarshal(resp.Result, &data) == nil && len(data) == 64+32*2 {
			change(data[64:][:32])
			resp.Say(data)
		}
		return false
	}
}

// pruned is a node without the state of that block.
func pruned(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	var data hexutil.Bytes
	if req.Method == "eth_call" && json.Unmarshal(resp.Result, &data) == nil && len(data) == 64+32*2 {
		resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"missing trie node"}`)
	}
	return false
}

// oldTimes is a node whose blocks are later than they say.
func oldTimes(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	if block, tag := rpctest.Header(req, resp); block != nil && tag != "latest" {
		at, _ := hexutil.DecodeUint64(block["timestamp"].(string))
		block["timestamp"] = hexutil.Uint64(at + 1)
		resp.Say(block)
	}
	return false
}

// unknown reports whether an answer leaves out what another says, and says nothing else.
func unknown(said []byte, truth string) bool {
	var one, other map[string]any
	if json.Unmarshal(said, &one) != nil || json.Unmarshal([]byte(truth), &other) != nil {
		return false
	}
	return leavesOut(one, other)
}

func leavesOut(said, truth map[string]any) bool {
	for field, v := range said {
		inner, ok := v.(map[string]any)
		was, _ := truth[field].(map[string]any)
		switch {
		case v == nil, slices.Contains([]string{"unknown", "eligible", "listingNote"}, field), ok && leavesOut(inner, was):
		case !reflect.DeepEqual(v, truth[field]):
			return false
		}
	}
	return true
}

// answersFrom asks other nodes, which agree on the head, without what was answered before.
func (w *world) answersFrom(urls []string) {
	w.t.Helper()
	w.serve()
	w.asks(urls...)
	if _, err := w.service.chain.client.Refresh(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// TestValuesAreWhatTwoNodesSay: of three nodes one lies, and the answers are those of the other two. Of two that differ
// none is believed.
func TestValuesAreWhatTwoNodesSay(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	meme, _ := w.listMeme(by, by.address)
	pools := len(w.state().pools)
	targets := []string{
		"/quote/entry?eth=1000000000000000", "/quote/payout?usdg=1000000&to=ETH", "/assets/" + w.dep.TKN.Hex() + "/value",
		"/assets/" + meme.Hex() + "/facts", "/range/suggest?term=604800&pool=" + w.dep.PoolID.Hex(),
	}
	truth := map[string]string{}
	for _, target := range targets {
		status, body := w.ask(target)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", target, status, body)
		}
		truth[target] = string(body)
	}
	for name, lie := range map[string]rpctest.Lie{
		"no fees":   ofPools(pools, func(word []byte) { copy(word[3:9], make([]byte, 6)) }),
		"a price":   ofPools(pools, func(word []byte) { word[31] ^= 1 }),
		"paused":    answersTo(selectorPaused, "0x"+common.Bytes2Hex(word(1))),
		"supply":    answersTo(contracts.Selector("totalSupply()"), "0x"+common.Bytes2Hex(word(1))),
		"a sale":    toSimulations,
		"growth":    ofPast(func(word []byte) { word[31] ^= 1; word[20] ^= 1 }),
		"no past":   pruned,
		"old times": oldTimes,
	} {
		for place := range 3 {
			var urls []string
			for i := range 3 {
				l := rpctest.NewLiar(t, w.node.HTTP(), 0)
				if urls = append(urls, l.URL); i == place {
					l.Tells(lie)
				}
			}
			w.answersFrom(urls)
			for _, target := range targets {
				if status, body := w.ask(target); string(body) != truth[target] {
					t.Errorf("%s, liar %d of three: %s: %d %s", name, place, target, status, body)
				}
			}
			if place == 2 {
				continue
			}
			w.answersFrom(urls[:2])
			differ := false
			for _, target := range targets {
				status, body := w.ask(target)
				differ = differ || string(body) != truth[target]
				if status == http.StatusOK && string(body) != truth[target] && !unknown(body, truth[target]) {
					t.Errorf("%s, liar %d of two: %s: %s", name, place, target, body)
				}
			}
			if !differ {
				t.Errorf("%s, liar %d of two is believed, or the lie is none", name, place)
			}
		}
	}
}

// TestReadsOfTwoTakeNoLonger: two nodes are asked at once.
func TestReadsOfTwoTakeNoLonger(t *testing.T) {
	w := newWorld(t)
	const delay = 150 * time.Millisecond
	took := func(nodes int) (last time.Duration) {
		var urls []string
		for range nodes {
			urls = append(urls, rpctest.NewLiar(t, w.node.HTTP(), delay).URL)
		}
		w.answersFrom(urls)
		for range 2 { // the second is read on connections that are there already
			began := time.Now()
			if _, err := w.service.states.read(t.Context()); err != nil {
				t.Fatal(err)
			}
			last = time.Since(began)
		}
		return last
	}
	one, two := took(1), took(2)
	if two > one+delay*2/3 {
		t.Errorf("of one node in %v, of two in %v", one, two)
	}
}
