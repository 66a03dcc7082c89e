package ingest_test

import (
	"bytes"
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

const rawTransaction = "eth_getRawTransactionByBlockHashAndIndex"

// minted is the transaction of a token's first transfer of more than nothing.
func (o *owner) minted(token common.Address) common.Hash {
	o.t.Helper()
	logs, err := o.chain.Client().FilterLogs(o.t.Context(), ethereum.FilterQuery{
		Addresses: []common.Address{token}, Topics: [][]common.Hash{{contracts.TransferTopic()}},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, l := range logs {
		if new(big.Int).SetBytes(l.Data).Sign() != 0 {
			return l.TxHash
		}
	}
	o.t.Fatalf("no transfer of %s", token)
	return common.Hash{}
}

// TestOrigin: no receipt proves a transaction's hash. The one in a token's ledger is proved by the block's transactions, or
// agreed on by all where no node has them as they were signed, or there is none.
func TestOrigin(t *testing.T) {
	t.Parallel()
	o, meme := oldToken(t, 3)
	minted := o.minted(meme)
	quoted := []byte(`"` + minted.Hex() + `"`)
	forged := []byte(`"` + (common.Hash{0xbb}).Hex() + `"`)
	forges := func(_ http.ResponseWriter, _ *http.Request, _ rpctest.Message, resp *rpctest.Message) bool {
		resp.Result = bytes.ReplaceAll(resp.Result, quoted, forged)
		return false
	}
	lacks := func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == rawTransaction {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method does not exist/is not available"}`)
		}
		return false
	}
	deaf := func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if strings.Contains(req.Method, "Transaction") {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method does not exist/is not available"}`)
		}
		return false
	}
	fails := func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == rawTransaction {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"not today"}`)
		}
		return false
	}
	misquotes := func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == rawTransaction {
			resp.Say("0x" + strings.Repeat("ab", 100))
		}
		return false
	}
	both := func(lies ...rpctest.Lie) rpctest.Lie {
		return func(w http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			for _, lie := range lies {
				lie(w, r, req, resp)
			}
			return false
		}
	}
	for name, test := range map[string]struct {
		proof rpc.Proof
		lies  []rpctest.Lie
		want  common.Hash
	}{
		"alone, forges hashes":                     {rpc.ProofTip, []rpctest.Lie{forges}, minted},
		"forges hashes":                            {rpc.ProofTip, []rpctest.Lie{forges, nil}, minted},
		"forges hashes, sparse":                    {rpc.ProofSparse, []rpctest.Lie{forges, nil}, minted},
		"forges transactions":                      {rpc.ProofTip, []rpctest.Lie{misquotes, nil}, minted},
		"has no signed transactions":               {rpc.ProofTip, []rpctest.Lie{both(lacks, forges), nil}, minted},
		"none has signed transactions":             {rpc.ProofTip, []rpctest.Lie{lacks, lacks}, minted},
		"none has, and one fails":                  {rpc.ProofTip, []rpctest.Lie{fails, lacks}, minted},
		"none has, and one forges hashes":          {rpc.ProofTip, []rpctest.Lie{both(lacks, forges), lacks}, common.Hash{}},
		"alone, has no signed transactions":        {rpc.ProofTip, []rpctest.Lie{lacks}, common.Hash{}},
		"alone, has no transactions at all":        {rpc.ProofTip, []rpctest.Lie{deaf}, common.Hash{}},
		"has no transactions at all":               {rpc.ProofTip, []rpctest.Lie{deaf, lacks}, common.Hash{}},
		"alone, and believed":                      {rpc.ProofOff, []rpctest.Lie{lacks}, minted},
		"nothing is proved, and one forges hashes": {rpc.ProofOff, []rpctest.Lie{forges, nil}, common.Hash{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var endpoints []rpc.Endpoint
			for i, lie := range test.lies {
				node := rpctest.NewLiar(t, o.chain.HTTP(), time.Duration(i)*10*time.Millisecond)
				node.Tells(lie)
				endpoints = append(endpoints, rpc.Endpoint{URL: node.URL, Name: string(rune('a' + i))})
			}
			cfg, topic := o.lyingConfig(t, strings.NewReplacer(" ", "", ",", "").Replace(name), endpoints...)
			cfg.RPC.Proof = test.proof
			run(t, cfg)
			on := *o.world
			on.kafka, on.topic = cfg.Kafka, topic
			if l := on.ledgerOf(t, meme); l.First != test.want || len(l.Shares) != 4 {
				t.Errorf("first transfer %s of %d holders (%q), want %s", l.First, len(l.Shares), l.Fault, test.want)
			}
		})
	}
}
