package chain

import (
	"context"
	"encoding/json"
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

// SimulateAt is eth_simulateV1 of consecutive calls in one block after a block, with the given timestamp, which
// must be later.
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
	return &Request{Method: "eth_simulateV1", Params: []any{options, pinned(at)}, Result: result, sends: true}
}

// Simulate is SimulateAt in its own round trip. ErrUnsupported: no endpoint has eth_simulateV1.
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

// UnmarshalJSON decodes a node's response. It must have one block with a result for each call.
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
		if slices.Contains(call.Logs, nil) {
			return errMalformed
		}
	}
	return nil
}
