package ingest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// transactions reports whether a request is for all transactions of a block.
func transactions(req rpctest.Message, block common.Hash) bool {
	return req.Method == "eth_getBlockByHash" && string(req.Params[1]) == "true" && strings.Contains(string(req.Params[0]), block.Hex())
}

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

// TestOrigin: the hash in a token's ledger is that of the transaction whose log is proved. Where nothing is proved all nodes must agree on it, or there is
// none.
func TestOrigin(t *testing.T) {
	t.Parallel()
	o, meme := oldToken(t, 3)
	minted := o.minted(meme)
	receipt, err := o.chain.Client().TransactionReceipt(t.Context(), minted)
	if err != nil {
		t.Fatal(err)
	}
	quoted := []byte(`"` + minted.Hex() + `"`)
	forged := []byte(`"` + (common.Hash{0xbb}).Hex() + `"`)
	forges := func(_ http.ResponseWriter, _ *http.Request, _ rpctest.Message, resp *rpctest.Message) bool {
		resp.Result = bytes.ReplaceAll(resp.Result, quoted, forged)
		return false
	}
	lacks := func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if transactions(req, receipt.BlockHash) || strings.Contains(req.Method, "_getRawTransaction") {
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
		if transactions(req, receipt.BlockHash) {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"not today"}`)
		}
		return false
	}
	misquotes := func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if transactions(req, receipt.BlockHash) {
			resp.Result = bytes.Replace(resp.Result, []byte(`"nonce":"0x`), []byte(`"nonce":"0x1`), 1)
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
		"forges hashes":                            {rpc.ProofTip, []rpctest.Lie{forges, nil}, minted},
		"forges hashes, sparse":                    {rpc.ProofSparse, []rpctest.Lie{forges, nil}, minted},
		"forges transactions":                      {rpc.ProofTip, []rpctest.Lie{misquotes, nil}, minted},
		"has no signed transactions":               {rpc.ProofTip, []rpctest.Lie{both(lacks, forges), nil}, minted},
		"alone, has none":                          {rpc.ProofTip, []rpctest.Lie{lacks}, common.Hash{}},
		"none has them":                            {rpc.ProofTip, []rpctest.Lie{lacks, lacks}, minted},
		"fails at transactions":                    {rpc.ProofTip, []rpctest.Lie{fails, nil}, minted},
		"nothing is proved":                        {rpc.ProofOff, []rpctest.Lie{nil}, minted},
		"nothing is proved, nor said":              {rpc.ProofOff, []rpctest.Lie{deaf}, common.Hash{}},
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

// ledgersOf waits for the topic to be at the head, and returns the records that are ledgers of a token.
func (w *world) ledgersOf(t *testing.T, token common.Address) (all []*topics.Ledger) {
	t.Helper()
	head, err := w.chain.Client().HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	partition := topics.Partition(contracts.TokenEntity(token).Key(), partitions)
	r, err := readUntil(t.Context(), w.kafka, w.topic, partition, head.Hash())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range r.blocks {
		for _, raw := range b.records {
			if l, ok := raw.(*topics.Ledger); ok && l.Token == token {
				all = append(all, l)
			}
		}
	}
	return all
}

// deafNode is a node that, as long as it is deaf, knows no transaction of the block with a token's first transfer.
func (o *owner) deafNode(t *testing.T, token common.Address) (node *rpctest.Liar, deaf *atomic.Bool) {
	t.Helper()
	minted, err := o.chain.Client().TransactionReceipt(t.Context(), o.minted(token))
	if err != nil {
		t.Fatal(err)
	}
	deaf = new(atomic.Bool)
	deaf.Store(true)
	node = rpctest.NewLiar(t, o.chain.HTTP(), 0)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if deaf.Load() && strings.Contains(req.Method, "Transaction") && strings.Contains(string(req.Params[0]), minted.BlockHash.Hex()) {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method does not exist/is not available"}`)
		}
		return false
	})
	return node, deaf
}

// TestOriginLater: when a token joins, no node names the transaction of its first transfer, and later its node does.
// It is published then, once, also after a restart and after a reorg of that block. It used to stay zero.
func TestOriginLater(t *testing.T) {
	t.Parallel()
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprint("restarts ", restarts), func(t *testing.T) {
			t.Parallel()
			o, meme := oldToken(t, 3)
			node, deaf := o.deafNode(t, meme)
			cfg, topic := o.lyingConfig(t, "later", rpc.Endpoint{URL: node.URL, Name: "node"})
			o.kafka, o.topic = cfg.Kafka, topic
			cfg.LedgerShares = 2
			cfg.RPC.Proof = rpc.ProofOff // or nothing comes before what proves it
			in := run(t, cfg)
			if l := o.ledgersOf(t, meme); len(l) != 2 || l[0].First != (common.Hash{}) {
				t.Fatalf("%d parts, the first transfer is %s; nobody says that", len(l), l[0].First)
			}
			again := func() {
				if !restarts {
					return
				}
				if err := in.stop(); err != nil {
					t.Fatal(err)
				}
				in = run(t, cfg)
			}
			comes := func() {
				t.Helper()
				polltest.Within(t, time.Minute, func() error {
					o.mine(o.give(meme, 3, 1))
					if l := o.ledgersOf(t, meme); len(l) != 3 || l[2].Parts != 0 || l[2].First != o.minted(meme) {
						return fmt.Errorf("%d records, the last is %+v", len(l), l[len(l)-1])
					}
					return nil
				})
			}
			again()
			deaf.Store(false)
			comes()
			again()
			o.rewind(1)
			o.mine(o.give(meme, 4, 7))
			o.mine(o.give(meme, 4, 7))
			comes()
			again()
			for range 3 {
				o.mine(o.give(meme, 5, 1))
			}
			checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
			if l := o.ledgersOf(t, meme); len(l) != 3 {
				t.Errorf("%d records, want two parts and an origin", len(l))
			}
		})
	}
}

// TestOriginRewound: a token's origin came later, and --rewind reverts its final block. It comes again.
func TestOriginRewound(t *testing.T) {
	t.Parallel()
	o, meme := oldTokenOn(t, devchain.Config{Seed: 7, SafeBlocks: 900, FinalizedBlocks: 1000}, 3)
	node, deaf := o.deafNode(t, meme)
	cfg, topic := o.lyingConfig(t, "rewound", rpc.Endpoint{URL: node.URL, Name: "node"})
	o.kafka, o.topic = cfg.Kafka, topic
	cfg.RPC.Proof, cfg.Finality, cfg.FinalizedEvery = rpc.ProofOff, ingest.FinalityWindow, 10*time.Millisecond
	in := run(t, cfg)
	if l := o.ledgersOf(t, meme); len(l) != 1 || l[0].First != (common.Hash{}) {
		t.Fatalf("%d records, the first transfer is %s; nobody says that", len(l), l[0].First)
	}
	deaf.Store(false)
	after := uint64(0) // the last block before the origin
	comes := func() {
		t.Helper()
		polltest.Within(t, time.Minute, func() error {
			l := o.ledgersOf(t, meme)
			if len(l) == 2 && l[1].Parts == 0 && l[1].First == o.minted(meme) {
				return nil
			}
			var err error
			if after, err = o.chain.Client().BlockNumber(t.Context()); err != nil {
				return err
			}
			o.mine(o.give(meme, 3, 1))
			return fmt.Errorf("%d records, the last is %+v", len(l), l[len(l)-1])
		})
	}
	comes()
	for range cfg.ReorgWindow + 4 {
		o.mine(o.give(meme, 5, 1))
	}
	checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
	polltest.Until(t, "the origin is final", func() bool { return in.Status().Finalized > after+2 })
	for range 3 {
		o.mine(o.give(meme, 5, 1))
		checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	head, err := o.chain.Client().BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o.rewind(head - after)
	for range cfg.ReorgWindow + 8 {
		o.mine(o.give(meme, 6, 1))
	}
	cfg.Rewind = true
	in = run(t, cfg)
	comes()
	if _, deep := checkRewound(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client()); deep == 0 {
		t.Error("nothing final was taken back")
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}
