package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/trie"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestForgedTokens: one of three endpoints makes up a block at the tip in which the registry sets 3,000 tokens. It is
// reverted, and its tokens are not probed in the blocks that replace it.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	node, calls := countCalls(t, w.chain.HTTP())
	other := rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
	cfg, topic := w.lyingConfig(t, "forgedtokens", rpc.Endpoint{URL: liar.URL, Name: "liar"}, rpc.Endpoint{URL: node.URL, Name: "honest"}, rpc.Endpoint{URL: other.URL, Name: "other"})
	in := run(t, cfg)
	client := w.chain.Client()
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, client)

	block, receipt := forgeTokens(t, w, 3000)
	hash, number := block.Hash(), fmt.Sprintf("0x%x", block.Number())
	full := map[string]any{}
	raw, err := json.Marshal(block.Header())
	if err == nil {
		err = json.Unmarshal(raw, &full)
	}
	if err != nil {
		t.Fatal(err)
	}
	full["transactions"] = block.Transactions()
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		first := ""
		if len(req.Params) > 0 {
			_ = json.Unmarshal(req.Params[0], &first)
		}
		var says any
		switch {
		case req.Method == "eth_getBlockByNumber" && (first == "latest" || first == number):
			says = block.Header()
		case req.Method == "eth_getBlockByHash" && first == hash.Hex():
			says = full
		case req.Method == "eth_getBlockReceipts" && first == hash.Hex():
			says = []any{receipt}
		case req.Method == "eth_call" && strings.Contains(string(req.Params[1]), hash.Hex()):
			says = "0x"
		default:
			return false
		}
		resp.Error = nil
		resp.Say(says)
		return false
	})
	polltest.Within(t, time.Minute, func() error {
		if s := in.Status(); s.Published.Hash != hash {
			return fmt.Errorf("published %d %s", s.Published.Number, s.Published.Hash)
		}
		return nil
	})
	liar.Tells(nil)
	w.step(t, 2)
	if reverts := checkTopic(t, cfg.Kafka, topic, w.market.Deployment, client); reverts == 0 {
		t.Fatal("the block was not taken back")
	}
	calls.Store(0)
	const blocks = 45 // the last of them after the tokens were due
	for range blocks {
		w.step(t, 1)
		checkTopic(t, cfg.Kafka, topic, w.market.Deployment, client)
	}
	if n := calls.Load(); n > 15*blocks {
		t.Errorf("%d blocks cost %d calls because of one that was taken back", blocks, n)
	}
}

// forgeTokens makes up a block on top of the chain in which the registry sets so many tokens, all in one transaction.
func forgeTokens(t *testing.T, w *world, tokens int) (*types.Block, *types.Receipt) {
	t.Helper()
	client := w.chain.Client()
	abi, err := contracts.ABI("AssetRegistry")
	if err != nil {
		t.Fatal(err)
	}
	set, err := client.FilterLogs(t.Context(), ethereum.FilterQuery{Addresses: []common.Address{w.market.Deployment.AssetRegistry}, Topics: [][]common.Hash{{abi.Events["AssetSet"].ID}}})
	if err != nil {
		t.Fatal(err)
	}
	var model *types.Log // the tokens are set as this one was
	for i := range set {
		// With a meme token the block would wait for a second endpoint.
		if set[i].Data[31] == byte(contracts.KindERC20) && set[i].Topics[2][31] != byte(contracts.LaneMeme) {
			model = &set[i]
		}
	}
	if model == nil {
		t.Fatalf("none of %d logs sets such a token", len(set))
	}
	head, err := client.HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	tx := types.MustSignNewTx(key, types.LatestSignerForChainID(new(big.Int).SetUint64(w.market.Deployment.ChainID)),
		&types.LegacyTx{GasPrice: big.NewInt(1), Gas: 1 << 20, To: &common.Address{1}, Value: new(big.Int)})
	receipt := &types.Receipt{Status: 1, CumulativeGasUsed: 1 << 20, GasUsed: 1 << 20, TxHash: tx.Hash()}
	for i := range tokens {
		l := *model
		l.Topics = slices.Clone(model.Topics)
		l.Topics[1] = common.BytesToHash(crypto.Keccak256([]byte(fmt.Sprint("token", i)))[12:])
		l.Index, l.TxIndex, l.TxHash = uint(i), 0, tx.Hash()
		receipt.Logs = append(receipt.Logs, &l)
	}
	receipt.Bloom = types.CreateBloom(receipt)
	h := types.CopyHeader(head)
	h.Number.Add(h.Number, big.NewInt(1))
	h.Time++
	h.ParentHash, h.Bloom, h.GasUsed = head.Hash(), receipt.Bloom, receipt.GasUsed
	h.ReceiptHash = types.DeriveSha(types.Receipts{receipt}, trie.NewStackTrie(nil))
	h.TxHash = types.DeriveSha(types.Transactions{tx}, trie.NewStackTrie(nil))
	receipt.BlockHash, receipt.BlockNumber = h.Hash(), h.Number
	for _, l := range receipt.Logs {
		l.BlockHash, l.BlockNumber = receipt.BlockHash, h.Number.Uint64()
	}
	return types.NewBlockWithHeader(h).WithBody(types.Body{Transactions: types.Transactions{tx}}), receipt
}
