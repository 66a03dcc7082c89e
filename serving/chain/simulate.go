package chain

import (
	"context"
	"encoding/json"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
)

// Simulation is the result of a simulated call.
type Simulation struct {
	Data    []byte
	GasUsed uint64
	Logs    []*types.Log // with TraceTransfers: also transfers of ether, as logs of NativeToken
	Err     *RevertError // nil: it succeeded
}

// NativeToken is the emitter of simulated ether transfers, which look like ERC-20 Transfer events.
var NativeToken = common.HexToAddress("0xeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee")

// SimulatedBlock is a block of consecutive calls.
type SimulatedBlock struct {
	Timestamp uint64   // later than that of the block before
	BaseFee   *big.Int // nil: 0
	Balances  map[common.Address]*big.Int
	Calls     []Call
}

// SimulateAt is eth_simulateV1 of consecutive calls in blocks after a block.
func SimulateAt(at common.Hash, result *Simulations, blocks ...SimulatedBlock) *Request {
	type balance struct {
		Balance *hexutil.Big `json:"balance"`
	}
	type overrides struct {
		Time    hexutil.Uint64 `json:"time"`
		BaseFee *hexutil.Big   `json:"baseFeePerGas,omitempty"`
	}
	type block struct {
		Overrides overrides                  `json:"blockOverrides"`
		State     map[common.Address]balance `json:"stateOverrides,omitempty"`
		Calls     []callArgs                 `json:"calls"`
	}
	all := make([]block, len(blocks))
	result.want = make([]int, len(blocks))
	for i, b := range blocks {
		all[i].Overrides = overrides{hexutil.Uint64(b.Timestamp), (*hexutil.Big)(b.BaseFee)}
		for account, amount := range b.Balances {
			if all[i].State == nil {
				all[i].State = make(map[common.Address]balance, len(b.Balances))
			}
			all[i].State[account] = balance{(*hexutil.Big)(amount)}
		}
		for _, call := range b.Calls {
			all[i].Calls = append(all[i].Calls, call.args())
		}
		result.want[i] = len(b.Calls)
	}
	options := map[string]any{"blockStateCalls": all, "traceTransfers": true, "validation": false}
	return &Request{Method: "eth_simulateV1", Params: []any{options, pinned(at)}, Result: result, sends: true}
}

// Simulate is SimulateAt in its own round trip. ErrUnsupported: no endpoint has eth_simulateV1.
func (c *Client) Simulate(ctx context.Context, at common.Hash, blocks ...SimulatedBlock) ([]Simulation, error) {
	var result Simulations
	r := SimulateAt(at, &result, blocks...)
	if err := c.Batch(ctx, r); err != nil {
		return nil, err
	}
	return result.Calls, r.Err
}

// Simulations is the result of SimulateAt: of the calls of all blocks.
type Simulations struct {
	Calls []Simulation
	want  []int // calls of each block
}

// UnmarshalJSON decodes a node's response. It must have all blocks, with a result for each call.
func (s *Simulations) UnmarshalJSON(data []byte) error {
	var blocks []struct {
		Calls []struct {
			ReturnData hexutil.Bytes  `json:"returnData"`
			GasUsed    hexutil.Uint64 `json:"gasUsed"`
			Status     hexutil.Uint64 `json:"status"`
			Logs       []*types.Log   `json:"logs"`
			Error      *struct {
				Message string        `json:"message"`
				Data    hexutil.Bytes `json:"data"`
			} `json:"error"`
		} `json:"calls"`
	}
	if err := json.Unmarshal(data, &blocks); err != nil {
		return err
	}
	if len(blocks) != len(s.want) {
		return errMalformed
	}
	s.Calls = nil
	for i, block := range blocks {
		if len(block.Calls) != s.want[i] {
			return errMalformed
		}
		for _, call := range block.Calls {
			done := Simulation{Data: call.ReturnData, GasUsed: uint64(call.GasUsed), Logs: call.Logs}
			if call.Status != hexutil.Uint64(types.ReceiptStatusSuccessful) {
				revert := &RevertError{Data: call.ReturnData}
				if call.Error != nil && len(call.Error.Data) > 0 {
					revert.Data = call.Error.Data
				}
				done.Err, done.Logs = revert, nil
			}
			if slices.Contains(call.Logs, nil) {
				return errMalformed
			}
			s.Calls = append(s.Calls, done)
		}
	}
	return nil
}
