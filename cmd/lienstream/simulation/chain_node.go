package simulation

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/eth/filters"
	"github.com/gorilla/websocket"
)

// finality is how many blocks below the head are not final.
const finality = 12

// node is a JSON-RPC node that plays a recording. It implements http.Handler.
type node struct {
	rec *recording

	mu        sync.Mutex
	played    int
	canonical []common.Hash
	finalized uint64
	heads     map[*websocket.Conn]bool  // who is told of new heads
	overtaken map[common.Hash]time.Time // when a block was the head for the last time
	shown     map[common.Hash]time.Time // when it came onto the chain for the last time
	nameless  bool                      // it knows no finalized block
}

// step moves the head; false: the recording has ended.
func (n *node) step() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.played == len(n.rec.steps) {
		return false
	}
	s := n.rec.steps[n.played]
	n.played++
	if at := len(n.canonical); at > 0 {
		n.overtaken[n.canonical[at-1]] = time.Now()
	}
	for _, h := range s.added {
		n.overtaken[h], n.shown[h] = time.Now(), time.Now()
	}
	delete(n.overtaken, s.added[len(s.added)-1])
	n.canonical = append(n.canonical[:s.from:s.from], s.added...)
	if head := uint64(len(n.canonical)) - 1; head > finality {
		n.finalized = max(n.finalized, head-finality)
	}
	n.tell(s.added)
	return true
}

// made counts the blocks of all steps so far, of each branch.
func (n *node) made() (blocks int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.rec.steps[:n.played] {
		blocks += len(s.added)
	}
	return blocks
}

// turns reports whether the next step is a reorg.
func (n *node) turns() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.played < len(n.rec.steps) && n.rec.steps[n.played].from < uint64(len(n.canonical))
}

// knowsFinal says whether the node knows a finalized block from now on.
func (n *node) knowsFinal(known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nameless = !known
}

// headerAt is the header of a block, and the number of the head; nil: it is above the head.
func (n *node) headerAt(number uint64) (h *types.Header, head uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if head = uint64(len(n.canonical)) - 1; number <= head {
		h = n.rec.blocks[n.canonical[number]].header
	}
	return h, head
}

// top is the highest number of all blocks so far.
func (n *node) top() (highest uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.rec.steps[:n.played] {
		highest = max(highest, s.from+uint64(len(s.added))-1)
	}
	return highest
}

// timeBelowFinal is the timestamp of the block that is so many below what is final; 0: there is none.
func (n *node) timeBelowFinal(blocks uint64) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.finalized < blocks {
		return 0
	}
	return n.rec.blocks[n.canonical[n.finalized-blocks]].header.Time
}

func (n *node) head() common.Hash {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.canonical[len(n.canonical)-1]
}

// age is for how long a block is not the head any more.
func (n *node) age(h common.Hash, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, was := n.overtaken[h]; was {
		return now.Sub(at)
	}
	return 0
}

// isCanonical reports whether a block is on the chain now.
func (n *node) isCanonical(h common.Hash) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.rec.blocks[h]
	if b == nil {
		return false
	}
	at := b.header.Number.Uint64()
	return at < uint64(len(n.canonical)) && n.canonical[at] == h
}

type rpcRequest struct {
	ID     json.RawMessage   `json:"id"`
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`
}

type rpcReply struct {
	ID     json.RawMessage
	Result any // where there is no error
	Error  *rpcError
}

// append writes a reply. What was recorded is JSON already, which encoding/json would read again, each time.
func (r rpcReply) append(b []byte) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	if b = append(b, r.ID...); len(r.ID) == 0 {
		b = append(b, null...)
	}
	name, what := `,"result":`, r.Result
	if r.Error != nil {
		name, what = `,"error":`, r.Error
	}
	b = append(b, name...)
	recorded, is := what.(json.RawMessage)
	if !is || len(recorded) == 0 {
		recorded, _ = json.Marshal(what) // a hexutil type, logs, an error, or nothing: it cannot fail
	}
	return append(append(b, recorded...), '}')
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// say is what the chain's states answer.
func (r *rpcReply) say(a stateAnswer) {
	if r.Result = json.RawMessage(a.Result); a.Code != 0 {
		r.Result, r.Error = nil, &rpcError{a.Code, a.Message, a.Data}
	}
}

// pinned is the block that a parameter names by its hash; gone: the node does not have it, or no longer where it has to be
// canonical. The lock is held.
func (n *node) pinned(q *rpcRequest, param int) (at common.Hash, gone *rpcError) {
	var block struct {
		BlockHash        common.Hash
		RequireCanonical bool
	}
	if param < len(q.Params) {
		_ = json.Unmarshal(q.Params[param], &block)
	}
	b := n.rec.blocks[block.BlockHash]
	if b == nil && (block.RequireCanonical || block.BlockHash != (common.Hash{})) {
		return block.BlockHash, &rpcError{Code: -32000, Message: "header not found"}
	}
	if b != nil && block.RequireCanonical {
		if number := b.header.Number.Uint64(); number >= uint64(len(n.canonical)) || n.canonical[number] != block.BlockHash {
			return block.BlockHash, &rpcError{Code: -32000, Message: "hash is not currently canonical"}
		}
	}
	return block.BlockHash, nil
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if websocket.IsWebSocketUpgrade(r) {
		n.serveWS(w, r)
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil || len(raw) == 0 {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(n.answerAll(raw))
}

// answerAll answers a request, or a batch of them, in JSON. The lock is held.
func (n *node) answerAll(raw []byte) (answer []byte) {
	if raw[0] == '[' {
		var all []rpcRequest
		_ = json.Unmarshal(raw, &all) // what is not a request has no method, and gets that error
		for i := range all {
			answer = n.answer(&all[i]).append(append(answer, ','))
		}
		if len(answer) == 0 {
			return []byte("[]")
		}
		answer[0] = '['
		return append(answer, ']')
	}
	var one rpcRequest
	_ = json.Unmarshal(raw, &one)
	return n.answer(&one).append(nil)
}

var null = json.RawMessage("null")

func (n *node) answer(q *rpcRequest) rpcReply {
	reply := rpcReply{ID: q.ID, Result: null}
	param := func(i int, to any) {
		if i < len(q.Params) {
			_ = json.Unmarshal(q.Params[i], to)
		}
	}
	switch q.Method {
	case "eth_chainId":
		reply.Result = hexutil.Uint64(n.rec.deployment.ChainID)
	case "eth_getBlockByNumber":
		var tag string
		param(0, &tag)
		at := uint64(len(n.canonical)) - 1
		switch tag {
		case "latest":
		case "finalized", "safe":
			if at = n.finalized; n.nameless {
				at = uint64(len(n.canonical)) // none
			}
		default:
			at, _ = hexutil.DecodeUint64(tag)
		}
		if at < uint64(len(n.canonical)) {
			reply.Result = n.rec.blocks[n.canonical[at]].json
		}
	case "eth_getBlockByHash": // what reorgs took back, too
		var hash common.Hash
		param(0, &hash)
		var whole bool
		param(1, &whole)
		if b := n.rec.blocks[hash]; b != nil && whole {
			reply.Result = b.whole
		} else if b != nil {
			reply.Result = b.json
		}
	case "eth_getBlockReceipts":
		var hash common.Hash
		param(0, &hash)
		if b := n.rec.blocks[hash]; b != nil {
			reply.Result = b.receipts
		}
	case "eth_getBlockTransactionCountByHash", "eth_getRawTransactionByBlockHashAndIndex":
		var hash common.Hash
		var at hexutil.Uint64
		param(0, &hash)
		param(1, &at)
		switch b := n.rec.blocks[hash]; {
		case b == nil:
		case q.Method == "eth_getBlockTransactionCountByHash":
			reply.Result = hexutil.Uint64(len(b.txs))
		case at < hexutil.Uint64(len(b.txs)):
			reply.Result = b.txs[at]
		}
	case "eth_getLogs":
		var filter filters.FilterCriteria
		param(0, &filter)
		reply.Result = n.logs(&filter)
	case "eth_call":
		var to struct {
			To   common.Address
			Data hexutil.Bytes
		}
		param(0, &to)
		at, gone := n.pinned(q, 1)
		answer, probed := n.rec.calls[callKey(at, to.To, to.Data)]
		switch {
		case gone != nil:
			reply.Result, reply.Error = nil, gone
		case probed:
			reply.Result = answer
		case to.Data != nil: // as ingesters ask, and nothing else
			reply.Result, reply.Error = nil, &rpcError{Code: 3, Message: "execution reverted"}
		default:
			reply.say(n.rec.states.call(at, q.Params[0]))
		}
	case "eth_simulateV1", "eth_estimateGas", "eth_getBalance", "eth_getCode":
		var account common.Address
		param(0, &account)
		if q.Method == "eth_getCode" && account != n.rec.deployment.DealVault { // it keeps no others
			reply.Result, reply.Error = nil, &rpcError{Code: -32000, Message: "missing trie node"}
		} else if at, gone := n.pinned(q, 1); gone != nil {
			reply.Result, reply.Error = nil, gone
		} else {
			reply.say(n.rec.states.of(q.Method, at, q.Params[0]))
		}
	default:
		reply.Result, reply.Error = nil, &rpcError{Code: -32601, Message: "the method " + q.Method + " does not exist"}
	}
	return reply
}

func wants(f *filters.FilterCriteria, l *types.Log) bool {
	if len(f.Addresses) > 0 && !slices.Contains(f.Addresses, l.Address) {
		return false
	}
	return len(f.Topics) == 0 || len(f.Topics[0]) == 0 || len(l.Topics) > 0 && slices.Contains(f.Topics[0], l.Topics[0])
}

// logs are those that a filter wants, in JSON.
func (n *node) logs(f *filters.FilterCriteria) json.RawMessage {
	found := json.RawMessage{'['}
	of := func(h common.Hash) {
		if b := n.rec.blocks[h]; b != nil {
			for i := range b.logs {
				if wants(f, &b.logs[i]) {
					if len(found) > 1 {
						found = append(found, ',')
					}
					found = append(found, b.logsJSON[i]...)
				}
			}
		}
	}
	switch {
	case f.BlockHash != nil:
		of(*f.BlockHash)
	case f.FromBlock != nil && f.ToBlock != nil:
		for i := f.FromBlock.Uint64(); i <= f.ToBlock.Uint64() && i < uint64(len(n.canonical)); i++ {
			of(n.canonical[i])
		}
	}
	return append(found, ']')
}
