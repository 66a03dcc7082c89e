package rpctest

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/trie"
)

// Sparse is a node of a long chain of ten blocks a second, of which few have a log, made up as it is asked for. What it serves is
// what a real chain has: hashes, bloom filters and receipts' roots hold.
type Sparse struct {
	URL string

	Requests, Calls, Bytes atomic.Int64 // HTTP requests, the calls in them, and bytes of answers

	chainID  uint64
	began    uint64 // time of the first block
	back     uint64 // every so many blocks the next one's time is an hour before; 0: never
	every    uint64 // every so many blocks has a log
	more     int    // transactions of such a block beside the one that writes it
	log      types.Log
	receipts types.Receipts
	root     common.Hash
	hashes   []common.Hash
	index    sync.Once
	at       map[common.Hash][2]uint64 // block and index of transactions
	server   *httptest.Server
}

// NewSparse makes a chain of so many blocks above the first, and serves it. The log is what blocks have one of.
func NewSparse(chainID uint64, blocks, every int, log types.Log) *Sparse {
	return newSparse(chainID, blocks, every, 1, 0, log)
}

// NewBusy is NewSparse with so many transactions in a block with a log.
func NewBusy(chainID uint64, blocks, every, transactions int, log types.Log) *Sparse {
	return newSparse(chainID, blocks, every, transactions, 0, log)
}

// NewBack is NewSparse where the time goes back by an hour every so many blocks.
func NewBack(chainID uint64, blocks, every, back int, log types.Log) *Sparse {
	return newSparse(chainID, blocks, every, 1, back, log)
}

func newSparse(chainID uint64, blocks, every, transactions, back int, log types.Log) *Sparse {
	s := &Sparse{more: transactions - 1, chainID: chainID, began: uint64(time.Now().Unix()) - uint64(blocks/perSecond), back: uint64(back), every: uint64(every), log: log, hashes: make([]common.Hash, blocks+1)}
	receipt := &types.Receipt{Type: types.DynamicFeeTxType, Status: 1, CumulativeGasUsed: 50_000, Logs: []*types.Log{&s.log}}
	receipt.Bloom = types.CreateBloom(receipt)
	s.receipts = types.Receipts{receipt}
	for range s.more {
		s.receipts = append(s.receipts, &types.Receipt{Type: types.DynamicFeeTxType, Status: 1, CumulativeGasUsed: 50_000})
	}
	s.root = types.DeriveSha(s.receipts, trie.NewStackTrie(nil))
	for n := range s.hashes {
		s.hashes[n] = s.header(uint64(n)).Hash()
	}
	s.server = httptest.NewServer(s)
	s.URL = s.server.URL
	return s
}

// Close ends it.
func (s *Sparse) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// Head is the last block.
func (s *Sparse) Head() uint64 { return uint64(len(s.hashes) - 1) }

// Hash is the hash of a block.
func (s *Sparse) Hash(n uint64) common.Hash { return s.hashes[n] }

// perSecond is how many blocks share a timestamp.
const perSecond = 10

// Time is the timestamp of a block.
func (s *Sparse) Time(n uint64) uint64 {
	at := s.began + n/perSecond
	if s.back > 0 {
		at -= n / s.back * 3600
	}
	return at
}

func (s *Sparse) has(n uint64) bool { return n > 0 && n%s.every == 0 }

func (s *Sparse) header(n uint64) *types.Header {
	h := &types.Header{
		UncleHash: types.EmptyUncleHash, TxHash: types.EmptyTxsHash, ReceiptHash: types.EmptyReceiptsHash, Difficulty: new(big.Int),
		Number: new(big.Int).SetUint64(n), GasLimit: 30_000_000, Time: s.Time(n), BaseFee: big.NewInt(1),
	}
	if n > 0 {
		h.ParentHash = s.hashes[n-1]
	}
	if s.has(n) {
		h.Bloom, h.ReceiptHash = s.receipts[0].Bloom, s.root
		h.TxHash = types.DeriveSha(s.transactions(n), trie.NewStackTrie(nil))
	}
	return h
}

// transaction is the one that writes a block's log.
func transaction(n uint64) *types.Transaction { return types.NewTx(&types.DynamicFeeTx{Nonce: n}) }

func (s *Sparse) transactions(n uint64) types.Transactions {
	all := types.Transactions{transaction(n)}
	for i := range s.more {
		all = append(all, types.NewTx(&types.DynamicFeeTx{Nonce: n, Gas: uint64(i) + 1})) //nolint:gosec // of a few
	}
	return all
}

// Signed is the hash of the transaction of a block with a log.
func (s *Sparse) Signed(n uint64) common.Hash { return transaction(n).Hash() }

// ServeHTTP implements http.Handler.
func (s *Sparse) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Requests.Add(1)
	s.Bytes.Add(int64(Serve(w, r, func(m Message) string {
		s.Calls.Add(1)
		return s.Answer(m)
	})))
}

// Serve answers a request's calls, one or a batch, with the results that answer gives. It returns the size of the response.
func Serve(w http.ResponseWriter, r *http.Request, answer func(Message) string) (bytes int) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return 0
	}
	var batch []Message
	single := json.Unmarshal(body, &batch) != nil
	if single {
		batch = make([]Message, 1)
		if json.Unmarshal(body, &batch[0]) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return 0
		}
	}
	answers := make([]string, len(batch))
	for i, m := range batch {
		answers[i] = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, answer(m))
	}
	out := strings.Join(answers, ",")
	if !single {
		out = "[" + out + "]"
	}
	w.Header().Set("Content-Type", "application/json")
	bytes, _ = io.WriteString(w, out)
	return bytes
}

// NoBloom empties the bloom filters of headers and receipts. Hashes and roots hold as before.
func (s *Sparse) NoBloom() {
	for _, r := range s.receipts {
		r.Bloom = types.Bloom{}
	}
	s.root = types.DeriveSha(s.receipts, trie.NewStackTrie(nil))
	for n := range s.hashes {
		s.hashes[n] = s.header(uint64(n)).Hash() //nolint:gosec // an index
	}
}

// Answer is the result of a call.
func (s *Sparse) Answer(m Message) string {
	switch m.Method {
	case "eth_chainId":
		return fmt.Sprintf("%q", hexutil.Uint64(s.chainID))
	case "eth_getBlockByNumber":
		if n, ok := s.number(m.Params[0]); ok {
			raw, _ := json.Marshal(s.header(n))
			return string(raw)
		}
	case "eth_getBlockReceipts":
		if n, ok := s.logged(m.Params[0]); ok {
			return s.receipt(n)
		}
		return "[]"
	case "eth_getTransactionReceipt":
		if n, i, ok := s.transaction(m.Params[0]); ok {
			return s.receiptsOf(n)[i]
		}
	case "debug_getRawReceipts":
		if _, ok := s.logged(m.Params[0]); ok {
			var all []hexutil.Bytes
			for _, r := range s.receipts {
				b, _ := r.MarshalBinary()
				all = append(all, b)
			}
			raw, _ := json.Marshal(all)
			return string(raw)
		}
		return "[]"
	case "eth_getBlockByHash":
		if n, ok := s.logged(m.Params[0]); ok {
			block := map[string]any{"hash": s.hashes[n], "transactions": s.transactions(n)}
			if string(m.Params[1]) == "false" {
				var hashes []common.Hash
				for _, tx := range s.transactions(n) {
					hashes = append(hashes, tx.Hash())
				}
				block["transactions"] = hashes
			}
			raw, _ := json.Marshal(block)
			return string(raw)
		}
	case "eth_getRawTransactionByBlockHashAndIndex":
		var i hexutil.Uint64
		_ = json.Unmarshal(m.Params[1], &i)
		if n, ok := s.logged(m.Params[0]); ok && uint64(i) <= uint64(s.more) {
			raw, _ := s.transactions(n)[i].MarshalBinary()
			return fmt.Sprintf("%q", hexutil.Bytes(raw))
		}
	case "eth_getLogs":
		var q struct{ FromBlock, ToBlock hexutil.Uint64 }
		_ = json.Unmarshal(m.Params[0], &q)
		var logs []string
		asked := string(m.Params[0])
		if of := strings.Contains(asked, `"address"`) || strings.Contains(asked, `"topics"`); !of || strings.Contains(asked, strings.ToLower(s.log.Address.Hex())) {
			for n := (uint64(q.FromBlock) + s.every - 1) / s.every * s.every; n <= uint64(q.ToBlock); n += s.every {
				logs = append(logs, s.logOf(n))
			}
		}
		return "[" + strings.Join(logs, ",") + "]"
	}
	return "null"
}

// logged is the block with a log that has a hash.
func (s *Sparse) logged(param json.RawMessage) (n uint64, ok bool) {
	var hash common.Hash
	_ = json.Unmarshal(param, &hash)
	for n := s.every; n <= s.Head(); n += s.every {
		if s.hashes[n] == hash {
			return n, true
		}
	}
	return 0, false
}

func (s *Sparse) number(tag json.RawMessage) (uint64, bool) {
	var text string
	_ = json.Unmarshal(tag, &text)
	switch text {
	case "latest", "finalized":
		return s.Head(), true
	}
	n, err := strconv.ParseUint(text, 0, 64)
	return n, err == nil && n <= s.Head()
}

func (s *Sparse) logOf(n uint64) string {
	l := s.log
	l.BlockNumber, l.BlockHash, l.TxHash = n, s.hashes[n], transaction(n).Hash()
	raw, _ := json.Marshal(&l)
	return string(raw)
}

func (s *Sparse) receipt(n uint64) string { return "[" + strings.Join(s.receiptsOf(n), ",") + "]" }

func (s *Sparse) receiptsOf(n uint64) (all []string) {
	for i, tx := range s.transactions(n) {
		logs := ""
		if i == 0 {
			logs = s.logOf(n)
		}
		all = append(all, fmt.Sprintf(`{"type":"0x2","status":"0x1","cumulativeGasUsed":"0xc350","transactionHash":%q,"logsBloom":%q,"logs":[%s]}`,
			tx.Hash().Hex(), hexutil.Bytes(s.receipts[i].Bloom[:]).String(), logs))
	}
	return all
}

// transaction is the one of a block with a log that has a hash.
func (s *Sparse) transaction(param json.RawMessage) (n uint64, i int, ok bool) {
	var hash common.Hash
	_ = json.Unmarshal(param, &hash)
	s.index.Do(func() {
		s.at = map[common.Hash][2]uint64{}
		for n := s.every; n <= s.Head(); n += s.every {
			for i, tx := range s.transactions(n) {
				s.at[tx.Hash()] = [2]uint64{n, uint64(i)} //nolint:gosec // of a few
			}
		}
	})
	at, ok := s.at[hash]
	return at[0], int(at[1]), ok //nolint:gosec // of a few
}
