package chain

import (
	"context"
	"encoding/json"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
)

// Simulation is what a call would do in a block right after another one.
type Simulation struct {
	Data    []byte
	GasUsed uint64
	Logs    []*types.Log // with TraceTransfers: transfers of the chain's coin too, as logs of NativeToken
	Err     *RevertError // nil: it succeeds
}

// NativeToken is the address that a simulation says emitted the transfers of the chain's own coin, in the shape of
// ERC-20's Transfer.
var NativeToken = common.HexToAddress("0xeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee")

// SimulateAt is eth_simulateV1 of calls, one after the other, in one block on top of a block, whose timestamp is the
// given one: it must be above that of the block.
func SimulateAt(at common.Hash, timestamp uint64, calls []Call, result *Simulations) *Request {
	args := make([]callArgs, len(calls))
	for i, call := range calls {
		args[i] = call.args()
	}
	type block struct {
		Overrides map[string]hexutil.Uint64 `json:"blockOverrides"`
		Calls     []callArgs                `json:"calls"`
	}
	options := map[string]any{
		"blockStateCalls": []block{{Overrides: map[string]hexutil.Uint64{"time": hexutil.Uint64(timestamp)}, Calls: args}},
		"traceTransfers":  true,
		"validation":      false,
	}
	result.want = len(calls)
	return &Request{Method: "eth_simulateV1", Params: []any{options, pinned(at)}, Result: result}
}

// Simulate is SimulateAt in a round trip of its own. ErrUnsupported: no endpoint has eth_simulateV1.
func (c *Client) Simulate(ctx context.Context, at common.Hash, timestamp uint64, calls []Call) ([]Simulation, error) {
	var result Simulations
	r := SimulateAt(at, timestamp, calls, &result)
	if err := c.Batch(ctx, r); err != nil {
		return nil, err
	}
	return result.Calls, r.Err
}

// Simulations is the result of SimulateAt.
type Simulations struct {
	Calls []Simulation
	want  int
}

// UnmarshalJSON reads the answer of a node. One that has not one block with a result for each call is malformed.
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
	if len(blocks) != 1 || len(blocks[0].Calls) != s.want {
		return errMalformed
	}
	s.Calls = make([]Simulation, s.want)
	for i, call := range blocks[0].Calls {
		s.Calls[i] = Simulation{Data: call.ReturnData, GasUsed: uint64(call.GasUsed), Logs: call.Logs}
		if call.Status != hexutil.Uint64(types.ReceiptStatusSuccessful) {
			revert := &RevertError{Data: call.ReturnData}
			if call.Error != nil && len(call.Error.Data) > 0 {
				revert.Data = call.Error.Data
			}
			s.Calls[i].Err, s.Calls[i].Logs = revert, nil
		}
	}
	return nil
}
