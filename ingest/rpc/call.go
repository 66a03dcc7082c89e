package rpc

import (
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
)

// Call is an eth_call. Gas and Bytes limit its cost: Bytes also holds for nodes that ignore the gas limit.
type Call struct {
	To    common.Address
	Data  []byte
	Gas   uint64
	Bytes int // of the result
}

// CallResult is the result of a Call.
type CallResult struct {
	Data []byte // nil: the call reverted, or there is no contract
	// Failed: the node returned an error of its own, so the contract's result is unknown.
	Failed bool
}

// Call executes calls as of a block, by its hash; the zero hash is the latest block. It may return ErrNoState
// or ErrGone.
func (c *Client) Call(ctx context.Context, block common.Hash, calls []Call) ([]CallResult, error) {
	answers := make([]CallResult, len(calls))
	for from := 0; from < len(calls); {
		var n int
		err := c.try(ctx, choice{}, func(ctx context.Context, e *endpoint) error {
			n = min(len(calls)-from, c.cfg.HeaderBatch)
			return e.call(ctx, block, calls[from:from+n], answers[from:from+n])
		})
		if err != nil {
			return nil, fmt.Errorf("call at block %s: %w", block, err)
		}
		from += n
	}
	return answers, nil
}

func (e *endpoint) call(ctx context.Context, block common.Hash, calls []Call, answers []CallResult) error {
	batch := make([]call, len(calls))
	for i, to := range calls {
		answers[i] = CallResult{}
		p := appendHex([]byte(`[{"to":`), to.To[:])
		p = appendHex(append(p, `,"data":`...), to.Data)
		if to.Gas > 0 {
			p = appendQuantity(append(p, `,"gas":`...), to.Gas)
		}
		if block == (common.Hash{}) {
			p = append(p, `},"latest"]`...)
		} else {
			p = append(appendHex(append(p, `},{"blockHash":`...), block[:]), `}]`...)
		}
		batch[i] = call{
			method: "eth_call", params: p, bytes: to.Bytes,
			result: func(s *scanner) error {
				v, err := s.digits()
				if err != nil || len(v) == 0 {
					return err
				}
				if to.Bytes > 0 && len(v) > 2*to.Bytes {
					answers[i].Failed = true
					return nil
				}
				answers[i].Data = make([]byte, len(v)/2)
				return unhex(answers[i].Data, v)
			},
			failed: func(answer *Error) bool {
				switch answer.class() {
				case classRevert:
					return true
				case classOther: // an unknown error of the node, about this call alone
					answers[i].Failed = true
					return true
				default:
					return false
				}
			},
		}
	}
	return e.do(ctx, batch)
}

// Existed returns those of the addresses that have code as of a block.
func (c *Client) Existed(ctx context.Context, block common.Hash, addresses []common.Address) ([]common.Address, error) {
	var all []common.Address
	err := c.try(ctx, choice{}, func(ctx context.Context, e *endpoint) error {
		all = nil
		calls := make([]call, len(addresses))
		for i, a := range addresses {
			p := appendHex([]byte{'['}, a[:])
			calls[i] = call{
				method: "eth_getCode", params: append(appendHex(append(p, `,{"blockHash":`...), block[:]), `}]`...),
				result: func(s *scanner) error {
					code, err := s.digits()
					if len(code) > 0 {
						all = append(all, a)
					}
					return err
				},
			}
		}
		return e.do(ctx, calls)
	})
	if err != nil {
		return nil, fmt.Errorf("get code at block %s: %w", block, err)
	}
	return all, nil
}
