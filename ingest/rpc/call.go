package rpc

import (
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
)

// Call is an eth_call. Both caps keep a contract from costing more than it is worth: a node that ignores the
// gas is held to the bytes.
type Call struct {
	To    common.Address
	Data  []byte
	Gas   uint64
	Bytes int // of the answer
}

// Answer is what a contract said to a Call.
type Answer struct {
	Data []byte // nil: it refused, or there is nothing at that address
	// Failed says that the node gave no answer of the contract: what the contract would say is unknown.
	Failed bool
}

// Call runs calls as of a block, by its hash; the zero hash is the newest block. ErrNoState, ErrGone: see there.
func (c *Client) Call(ctx context.Context, block common.Hash, calls []Call) ([]Answer, error) {
	answers := make([]Answer, len(calls))
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

func (e *endpoint) call(ctx context.Context, block common.Hash, calls []Call, answers []Answer) error {
	batch := make([]call, len(calls))
	for i, to := range calls {
		answers[i] = Answer{}
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
				case classOther: // words of a node that nobody listed, about this call alone
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
