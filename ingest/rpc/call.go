package rpc

import (
	"context"
	"errors"
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

// Created returns the block in which a contract was created, or an earlier one where no endpoint has the state of that
// time: nodes that do not keep all states keep the latest.
func (c *Client) Created(ctx context.Context, contract common.Address, upTo uint64) (uint64, error) {
	low, high := uint64(0), upTo // the contract exists at high
	for low < high {
		middle := low + (high-low)/2
		exists, err := c.exists(ctx, contract, middle)
		switch {
		case errors.Is(err, ErrNoState):
			return low, nil
		case err != nil:
			return 0, fmt.Errorf("find the creation of %s: %w", contract, err)
		case exists:
			high = middle
		default:
			low = middle + 1
		}
	}
	return low, nil
}

// exists reports whether there is code at an address as of a block, on the chain that the endpoint has now.
func (c *Client) exists(ctx context.Context, contract common.Address, block uint64) (exists bool, err error) {
	p := append(appendQuantity(append(appendHex([]byte{'['}, contract[:]), ','), block), ']')
	err = c.try(ctx, choice{block: block}, func(ctx context.Context, e *endpoint) error {
		return e.do(ctx, []call{{method: "eth_getCode", params: p, result: func(s *scanner) error {
			code, err := s.digits()
			exists = len(code) > 0
			return err
		}}})
	})
	return exists, err
}
