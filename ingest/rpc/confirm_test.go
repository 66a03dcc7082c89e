package rpc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

// TestConfirmingProvesNothingAgain: several endpoints agree on a range of history. Its last block with logs is proved
// once.
func TestConfirmingProvesNothingAgain(t *testing.T) {
	const blocks = 64
	chain := rpctest.NewSparse(7, blocks, blocks, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	for _, confirm := range []int{1, 2, 3} {
		c := piped(t, func(cfg *Config) { cfg.Confirm = confirm }, chain, chain, chain)
		got, err := c.Blocks(t.Context(), 1, blocks, blocks)
		if err != nil || len(got[blocks-1].Logs) != 1 {
			t.Fatalf("%d answers: %v", confirm, err)
		}
		if proved := testutil.ToFloat64(c.metrics.proved); proved != 1 {
			t.Errorf("%d answers: %v blocks are proved", confirm, proved)
		}
	}
}

// TestConfirmedByAnother: responses of one node by HTTP and by WebSocket count once. A confirmation needs another node.
func TestConfirmedByAnother(t *testing.T) {
	for _, test := range []struct {
		urls []string
		want int
	}{
		{[]string{"http://a:8545"}, 1},
		{[]string{"ws://a:8545", "http://a:8545/"}, 1},
		{[]string{"wss://a/v2/key", "https://a/v2/key"}, 1},
		{[]string{"https://a/one", "https://a/two"}, 2},
		{[]string{"http://a:8545", "http://a:8546"}, 2},
		{[]string{"wss://a/v2/key", "https://a/v2/key", "https://b/v2/key"}, 2},
	} {
		cfg := DefaultConfig()
		cfg.Endpoints = Endpoints(test.urls)
		if got := cfg.confirm(); got != test.want {
			t.Errorf("%v: %d answers, want %d", test.urls, got, test.want)
		}
	}
}

// TestOneNodeConfirmsNothing: a liar is named by its WebSocket and by its HTTP, beside an honest node. It changes a log of history, or leaves out half of
// them where no header shows it: what it says once is not confirmed by what it says again.
func TestOneNodeConfirmsNothing(t *testing.T) {
	const blocks = 64
	chain := rpctest.NewSparse(7, blocks, 1, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}, Data: []byte{1}})
	t.Cleanup(chain.Close)
	for _, proof := range []Proof{ProofTip, ProofSparse} {
		t.Run(string(proof), func(t *testing.T) {
			answer := func(m rpctest.Message) string {
				said := chain.Answer(m)
				if m.Method != "eth_getLogs" || !strings.Contains(string(m.Params[0]), "fromBlock") {
					return said
				}
				var logs, kept []map[string]any
				if err := json.Unmarshal([]byte(said), &logs); err != nil {
					t.Error(err)
				}
				for i, l := range logs {
					if proof == ProofTip && i == len(logs)/2 {
						l["data"] = "0x66"
					}
					if proof == ProofTip || i%2 == 1 {
						kept = append(kept, l)
					}
				}
				raw, err := json.Marshal(kept)
				if err != nil {
					t.Error(err)
				}
				return string(raw)
			}
			server := httptest.NewServer(both(answer))
			t.Cleanup(server.Close)
			slow := rpctest.NewLiar(t, chain.URL, 20*time.Millisecond) // the liar is asked first
			c := piped(t, func(cfg *Config) {
				cfg.Proof, cfg.Dial = proof, nil
				cfg.Endpoints = Endpoints([]string{"ws" + strings.TrimPrefix(server.URL, "http"), server.URL, slow.URL})
			})
			runs(t, c)
			for _, e := range c.endpoints {
				for range 3 { // how fast each is
					if _, err := e.header(t.Context(), `"latest"`); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 5 {
				var got []follow.Block
				var err error
				if proof == ProofTip {
					got, err = c.Blocks(t.Context(), 1, blocks, blocks)
				} else {
					got, err = c.Sparse(t.Context(), 1, blocks)
				}
				if err != nil {
					t.Fatal(err)
				}
				logs := 0
				for i := range got {
					for _, l := range got[i].Logs {
						if logs++; !bytes.Equal(l.(*topics.Log).Data, []byte{1}) {
							t.Errorf("the log of block %d is changed", got[i].Number)
						}
					}
				}
				if logs != blocks {
					t.Errorf("%d logs, want %d", logs, blocks)
				}
			}
		})
	}
}

// TestConfirmedByDifferentNodes: three nodes must agree, and two liars say the same of a block. That one of them says it twice is
// no third answer: where the third node refuses, receipts decide, or nothing with ProofOff.
func TestConfirmedByDifferentNodes(t *testing.T) {
	const blocks, changed = 64, 32
	chain := rpctest.NewSparse(7, blocks, 1, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}, Data: []byte{1}})
	t.Cleanup(chain.Close)
	ofRange := func(m rpctest.Message) bool {
		return m.Method == "eth_getLogs" && strings.Contains(string(m.Params[0]), "fromBlock")
	}
	liar := answering(func(m rpctest.Message) string {
		said := chain.Answer(m)
		if !ofRange(m) {
			return said
		}
		var logs []map[string]any
		if err := json.Unmarshal([]byte(said), &logs); err != nil {
			t.Error(err)
		}
		logs[changed-1]["data"] = "0x66"
		raw, err := json.Marshal(logs)
		if err != nil {
			t.Error(err)
		}
		return string(raw)
	})
	for _, test := range []struct {
		proof   Proof
		refuses bool
		want    error
	}{
		{ProofTip, true, nil},
		{ProofTip, false, nil},
		{ProofOff, true, ErrSplit},
	} {
		inBubble(t, fmt.Sprintf("%s, the third refuses: %t", test.proof, test.refuses), func(t *testing.T) {
			third := answering(func(m rpctest.Message) string {
				if test.refuses && ofRange(m) {
					return refused(`{"code":-32005,"message":"limit exceeded"}`)
				}
				return chain.Answer(m)
			})
			c := piped(t, func(cfg *Config) { cfg.Proof, cfg.Confirm = test.proof, 3 }, liar, liar, third)
			got, err := c.Blocks(t.Context(), 1, blocks, blocks)
			if !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			if err == nil && !bytes.Equal(got[changed-1].Logs[0].(*topics.Log).Data, []byte{1}) {
				t.Error("the liars' log came in")
			}
		})
	}
}

// TestConfirmedByTooMany: more nodes must agree than there are. One alone may be asked several times.
func TestConfirmedByTooMany(t *testing.T) {
	for nodes, want := range map[int]string{1: "", 2: "rpc-confirm: 3 is more than the 2 nodes of rpc", 3: ""} {
		cfg := DefaultConfig()
		cfg.ChainID, cfg.Addresses, cfg.Confirm = 7, []common.Address{{1}}, 3
		for i := range nodes {
			cfg.Endpoints = append(cfg.Endpoints, Endpoint{URL: fmt.Sprint("http://node", i)})
		}
		if err := cfg.Validate(); fmt.Sprint(cmp.Or(err, errors.New(""))) != want {
			t.Errorf("%d nodes: %v, want %q", nodes, err, want)
		}
	}
}
