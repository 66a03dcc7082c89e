package chain

import (
	"context"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// Call is a message to a contract.
type Call struct {
	From  common.Address // zero: no particular sender
	To    common.Address
	New   bool // creates a contract, and To is ignored
	Data  []byte
	Value *big.Int // nil: 0
	Gas   uint64   // 0: the node's limit
	Price *big.Int // of gas; nil: 0
}

type callArgs struct {
	From  *common.Address `json:"from,omitempty"`
	To    *common.Address `json:"to,omitempty"`
	Input hexutil.Bytes   `json:"input"`
	Value *hexutil.Big    `json:"value,omitempty"`
	Gas   *hexutil.Uint64 `json:"gas,omitempty"`
	Price *hexutil.Big    `json:"gasPrice,omitempty"`
}

func (c Call) args() callArgs {
	args := callArgs{Input: c.Data, Value: (*hexutil.Big)(c.Value), Price: (*hexutil.Big)(c.Price)}
	if !c.New {
		args.To = &c.To
	}
	if c.From != (common.Address{}) {
		args.From = &c.From
	}
	if c.Gas != 0 {
		gas := hexutil.Uint64(c.Gas)
		args.Gas = &gas
	}
	return args
}

// pinned names a block by its hash (EIP-1898) and requires it to be canonical.
func pinned(at common.Hash) rpc.BlockNumberOrHash { return rpc.BlockNumberOrHashWithHash(at, true) }

// CallAt is eth_call at a block.
func CallAt(at common.Hash, call Call, result *hexutil.Bytes) *Request {
	return &Request{Method: "eth_call", Params: []any{call.args(), pinned(at)}, Result: result, sends: call.From != (common.Address{})}
}

// CodeAt is eth_getCode at a block.
func CodeAt(at common.Hash, account common.Address, result *hexutil.Bytes) *Request {
	return &Request{Method: "eth_getCode", Params: []any{account, pinned(at)}, Result: result}
}

// BlockFees is the base fee of a block.
type BlockFees struct {
	BaseFee *hexutil.Big `json:"baseFeePerGas"` // nil: the chain has none, or the node does not have the block
}

// FeesAt is eth_getBlockByHash.
func FeesAt(at common.Hash, result *BlockFees) *Request {
	return &Request{Method: "eth_getBlockByHash", Params: []any{at, false}, Result: result}
}

// BalanceAt is eth_getBalance at a block, in wei.
func BalanceAt(at common.Hash, account common.Address, result *hexutil.Big) *Request {
	return &Request{Method: "eth_getBalance", Params: []any{account, pinned(at)}, Result: result}
}

// EstimateAt is eth_estimateGas at a block.
func EstimateAt(at common.Hash, call Call, result *hexutil.Uint64) *Request {
	return &Request{Method: "eth_estimateGas", Params: []any{call.args(), pinned(at)}, Result: result, sends: true}
}

// Call is eth_call at a block: one call, one round trip.
func (c *Client) Call(ctx context.Context, at common.Hash, call Call) ([]byte, error) {
	var result hexutil.Bytes
	r := CallAt(at, call, &result)
	if err := c.Batch(ctx, r); err != nil {
		return nil, err
	}
	return result, r.Err
}

// Result is the result of one of several calls.
type Result struct {
	Data []byte
	Err  error // nil, *RevertError or *NodeError
}

// Calls executes eth_calls at one block, in one round trip.
func (c *Client) Calls(ctx context.Context, at common.Hash, calls []Call) ([]Result, error) {
	data := make([]hexutil.Bytes, len(calls))
	requests := make([]*Request, len(calls))
	for i, call := range calls {
		requests[i] = CallAt(at, call, &data[i])
	}
	if err := c.Batch(ctx, requests...); err != nil {
		return nil, err
	}
	results := make([]Result, len(calls))
	for i, r := range requests {
		results[i] = Result{Data: data[i], Err: r.Err}
	}
	return results, nil
}
