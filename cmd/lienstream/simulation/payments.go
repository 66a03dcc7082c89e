package simulation

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm/runtime"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/eth/filters"
	"github.com/ethereum/go-ethereum/params"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	"github.com/lienstream/lienstream/serving/x402"
)

// Hosts of the payment chain and of who settles on it, in the runs in which bugs are reported.
const (
	paymentHost     = "payments"
	facilitatorHost = "facilitator"
)

// Of the payment chain.
const (
	paymentEvery  = 2 * time.Second // a block
	confirmations = 5               // after which a block is final
	paymentGas    = 1_000_000       // of a call
)

// paymentRules are those of the embedded payment chain.
var paymentRules = func() *params.ChainConfig {
	rules := *params.AllDevChainProtocolChanges
	rules.ChainID = big.NewInt(paychain.ChainID)
	return &rules
}()

// payments is a node of the payment chain, whose dollar is the contract's own code, run by go-ethereum's virtual machine. The
// embedded payment chain has goroutines and ports of its own, and cannot run in a bubble. It implements http.Handler.
type payments struct {
	mu    sync.Mutex
	chain []paymentBlock
	pool  [][]byte // calls of the dollar that wait for a block
	made  uint64   // blocks ever: no two are the same
}

type paymentBlock struct {
	header   *types.Header
	state    *state.StateDB // as of it; nobody changes it any more
	calls    [][]byte       // of the dollar, and of each
	receipts []*types.Receipt
}

// purse is what a wallet has of the dollar.
type purse struct {
	wallet common.Address
	has    *big.Int
}

// newPayments begins a chain on which wallets have some dollars.
func newPayments(purses []purse) (*payments, error) {
	owner := paychain.Address(0, "owner")
	account, err := paychain.TokenAccount(owner)
	if err != nil {
		return nil, err
	}
	db, err := state.New(types.EmptyRootHash, state.NewDatabaseForTesting())
	if err != nil {
		return nil, err
	}
	db.SetCode(paychain.Token, account.Code, tracing.CodeChangeUnspecified)
	for slot, value := range account.Storage {
		db.SetState(paychain.Token, slot, value)
	}
	dollar, err := contracts.ABI("PaymentDollar")
	if err != nil {
		return nil, err
	}
	p := &payments{}
	genesis := paymentBlock{header: &types.Header{Number: new(big.Int), Time: uint64(now().Unix()), Difficulty: new(big.Int), BaseFee: new(big.Int)}, state: db}
	for _, of := range purses {
		mint, err := dollar.Pack("mint", of.wallet, of.has)
		if err == nil {
			_, err = genesis.call(owner, mint)
		}
		if err != nil {
			return nil, err
		}
	}
	p.chain = []paymentBlock{genesis}
	return p, nil
}

// call has an account call the dollar, and changes the state.
func (b *paymentBlock) call(from common.Address, data []byte) ([]byte, error) {
	out, _, err := runtime.Call(paychain.Token, data, &runtime.Config{
		State: b.state, Origin: from, ChainConfig: paymentRules, Time: b.header.Time, BlockNumber: b.header.Number, GasLimit: paymentGas, BaseFee: new(big.Int),
	})
	b.state.Finalise(paymentRules.Rules(b.header.Number, true, b.header.Time))
	return out, err
}

// run makes blocks until ctx is done.
func (p *payments) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(paymentEvery):
			p.mu.Lock()
			p.mine()
			p.mu.Unlock()
		}
	}
}

// submit takes calls of the dollar for the next block; nil: none.
func (p *payments) submit(calls ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, data := range calls {
		if data != nil {
			p.pool = append(p.pool, data)
		}
	}
}

// mine makes a block of what waits. The lock is held.
func (p *payments) mine() {
	below := &p.chain[len(p.chain)-1]
	p.made++
	b := paymentBlock{state: below.state.Copy(), calls: p.pool, header: &types.Header{
		ParentHash: below.header.Hash(), Number: new(big.Int).Add(below.header.Number, common.Big1), Time: max(below.header.Time+1, uint64(now().Unix())),
		Difficulty: new(big.Int), BaseFee: new(big.Int), GasLimit: 30 * paymentGas, Extra: binary.BigEndian.AppendUint64(nil, p.made),
	}}
	hash := b.header.Hash()
	for i, data := range b.calls {
		r := &types.Receipt{
			Type: types.DynamicFeeTxType, Status: types.ReceiptStatusSuccessful, TxHash: crypto.Keccak256Hash(hash[:], []byte{byte(i)}, data), BlockHash: hash,
			BlockNumber: b.header.Number, TransactionIndex: uint(i), EffectiveGasPrice: new(big.Int), Logs: []*types.Log{},
		}
		b.state.SetTxContext(r.TxHash, i, 0)
		if _, err := b.call(paychain.Address(0, "stranger"), data); err != nil {
			r.Status = types.ReceiptStatusFailed
		} else {
			r.Logs = b.state.GetLogs(r.TxHash, b.header.Number.Uint64(), hash, b.header.Time)
		}
		b.receipts = append(b.receipts, r)
	}
	p.pool = nil
	p.chain = append(p.chain, b)
}

// turn replaces the last blocks by others, one more than there were. What they had waits again, or is forgotten. No block goes
// that anybody may take for final.
func (p *payments) turn(depth int, forget bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	depth = min(depth, confirmations-1, len(p.chain)-1)
	gone := p.chain[len(p.chain)-depth:]
	p.chain = slices.Clone(p.chain[:len(p.chain)-depth])
	waits := p.pool
	p.pool = nil
	for range depth {
		p.mine()
	}
	if p.pool = waits; !forget {
		for _, b := range gone {
			p.pool = append(p.pool, b.calls...)
		}
	}
	p.mine()
}

// transfer is one of the dollar, by its log.
type transfer struct {
	from, to    common.Address
	value       *big.Int
	transaction common.Hash
	final       bool
}

func (t transfer) String() string {
	return fmt.Sprintf("%d from %s to %s by %s, final: %v", t.value, t.from, t.to, t.transaction, t.final)
}

// transfers are those of a wallet that are on the chain, except to one.
func (p *payments) transfers(from, except common.Address) (all []transfer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range p.chain {
		for _, r := range b.receipts {
			for _, l := range r.Logs {
				if l.Topics[0] != x402.TopicTransfer {
					continue
				}
				t := transfer{value: new(big.Int).SetBytes(l.Data), transaction: r.TxHash, final: len(p.chain)-i >= confirmations}
				t.from, t.to = common.BytesToAddress(l.Topics[1][:]), common.BytesToAddress(l.Topics[2][:])
				if t.from == from && t.to != except {
					all = append(all, t)
				}
			}
		}
	}
	return all
}

// finalTime is the timestamp of the last block that is final.
func (p *payments) finalTime() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chain[max(0, len(p.chain)-confirmations)].header.Time
}

// ServeHTTP implements http.Handler.
func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q rpcRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(p.answer(&q).append(nil))
}

// at is the block that a parameter names; nil: there is none. The lock is held.
func (p *payments) at(q *rpcRequest, param int) *paymentBlock {
	var tag string
	if param < len(q.Params) {
		_ = json.Unmarshal(q.Params[param], &tag)
	}
	number := uint64(len(p.chain)) - 1
	if tag != "latest" && tag != "pending" && tag != "" {
		number, _ = hexutil.DecodeUint64(tag)
	}
	if number >= uint64(len(p.chain)) {
		return nil
	}
	return &p.chain[number]
}

func (p *payments) answer(q *rpcRequest) rpcReply {
	reply := rpcReply{ID: q.ID, Result: null}
	param := func(to any) error {
		if len(q.Params) == 0 {
			return errors.New("missing value for required argument 0")
		}
		return json.Unmarshal(q.Params[0], to)
	}
	var err error
	switch q.Method {
	case "eth_chainId":
		reply.Result = hexutil.Uint64(paychain.ChainID)
	case "eth_getBlockByNumber":
		if b := p.at(q, 0); b != nil {
			reply.Result = b.header
		}
	case "eth_getTransactionReceipt":
		var hash common.Hash
		err = param(&hash)
		for i := range p.chain {
			for _, r := range p.chain[i].receipts {
				if r.TxHash == hash {
					reply.Result = r
				}
			}
		}
	case "eth_getCode":
		var account common.Address
		err = param(&account)
		if b := p.at(q, 1); b != nil {
			reply.Result = hexutil.Bytes(b.state.GetCode(account))
		}
	case "eth_getLogs":
		var filter filters.FilterCriteria
		err = param(&filter)
		reply.Result = p.logs(&filter)
	case "eth_call":
		var call struct {
			From  common.Address
			Input hexutil.Bytes
		}
		err = param(&call)
		b := p.at(q, 1)
		if b == nil {
			reply.Result, reply.Error = nil, &rpcError{Code: -32000, Message: "header not found"}
			return reply
		}
		out, failed := (&paymentBlock{header: b.header, state: b.state.Copy()}).call(call.From, call.Input)
		if reply.Result = hexutil.Bytes(out); failed != nil {
			reply.Result, reply.Error = nil, &rpcError{Code: 3, Message: failed.Error(), Data: hexutil.Encode(out)}
		}
	default:
		err = fmt.Errorf("the method %s does not exist", q.Method)
	}
	if err != nil {
		reply.Result, reply.Error = nil, &rpcError{Code: -32601, Message: err.Error()}
	}
	return reply
}

func (p *payments) logs(f *filters.FilterCriteria) []*types.Log {
	found := []*types.Log{}
	if f.FromBlock == nil || f.ToBlock == nil {
		return found
	}
	for n := f.FromBlock.Uint64(); n <= f.ToBlock.Uint64() && n < uint64(len(p.chain)); n++ {
		for _, r := range p.chain[n].receipts {
			for _, l := range r.Logs {
				if named(f, l) {
					found = append(found, l)
				}
			}
		}
	}
	return found
}

// named reports whether a log has, in each place, one of the topics that a filter names there.
func named(f *filters.FilterCriteria, l *types.Log) bool {
	if len(f.Topics) > len(l.Topics) || len(f.Addresses) > 0 && !slices.Contains(f.Addresses, l.Address) {
		return false
	}
	for i, any := range f.Topics {
		if len(any) > 0 && !slices.Contains(any, l.Topics[i]) {
			return false
		}
	}
	return true
}
