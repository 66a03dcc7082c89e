package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics/pause"
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
	// Failed: the contract's result is unknown. Nodes failed or differ, none that has the block has an
	// answer, or only one has the state.
	Failed bool
}

// Call executes calls as of a block, given by hash; the zero hash is the latest block. Nothing proves a result, so all
// endpoints are asked. A result counts if all that answer agree, or a majority of at least two; otherwise it is
// Failed.
//
// Endpoints that do not answer within opinionPatience are not counted. If an endpoint that counts (fork.go) lacks the
// state or fails, one other answer is not enough: nodes prune, and otherwise a single archive node would decide all of
// history. It may return ErrNoState, also if no endpoint serves eth_call, or ErrGone if none has the block, whatever
// they say of calls.
func (c *Client) Call(ctx context.Context, block common.Hash, calls []Call) ([]CallResult, error) {
	answers := make([]CallResult, len(calls))
	began := time.Now()
	for from := 0; from < len(calls); {
		n := min(len(calls)-from, c.cfg.MaxBatch)
		said, err := c.opinions(ctx, block, calls[from:from+n])
		for rest := minRest; errors.Is(err, ErrGone) && c.hasBlock(ctx, block); rest *= 2 {
			if time.Since(began)+rest >= opinionWait {
				said, err = nil, nil // the block is there, but no endpoint has an answer
			} else if err = pause.For(ctx, rest); err == nil {
				said, err = c.opinions(ctx, block, calls[from:from+n])
			}
		}
		if err != nil {
			return nil, err
		}
		for i := range n {
			answers[from+i] = c.agreedResult(said, i)
		}
		from += n
	}
	return answers, nil
}

// hasBlock reports whether any endpoint has a block by its hash.
func (c *Client) hasBlock(ctx context.Context, block common.Hash) bool {
	if block == (common.Hash{}) {
		return false
	}
	have, _ := c.had(ctx, block, c.patience())
	return have > 0
}

// agreedResult returns what endpoints agree on about one call. It pauses no endpoint: of two that differ, either may
// be right.
func (c *Client) agreedResult(said map[*endpoint][]CallResult, call int) CallResult {
	votes := map[string]int{}
	of := func(r CallResult) string { return fmt.Sprintf("%t%x", r.Data == nil, r.Data) }
	result, most, all, pruned := CallResult{Failed: true}, 0, 0, false
	for e, answers := range said {
		if answers == nil {
			pruned = pruned || e.counts()
			continue
		}
		r := answers[call]
		if r.Failed { // perhaps it lacks the state, in an unknown wording
			pruned = pruned || e.counts()
			continue
		}
		all++
		votes[of(r)]++
		if n := votes[of(r)]; n > most {
			result, most = r, n
		}
	}
	known := most == all && (!pruned || most != 1) || most >= 2 && most > all-most
	for e, answers := range said {
		if answers == nil {
			continue
		}
		if r := answers[call]; !r.Failed && most < all && (!known || of(r) != of(result)) {
			c.metrics.lies.WithLabelValues(e.name, "disagreement").Inc()
			c.log.Warn("endpoints return different results for a call", zap.String("endpoint", e.name), zap.Int("call", call), zap.Bool("outvoted", known))
		}
	}
	if !known {
		return CallResult{Failed: true}
	}
	return result
}

// call returns what one endpoint says. Calls that it refuses for their size or their time are asked for again without those that it answered, as long
// as it answers any.
func (e *endpoint) call(ctx context.Context, block common.Hash, calls []Call) ([]CallResult, error) {
	if e.lacksCalls() {
		return nil, errNotServed
	}
	answers := make([]CallResult, len(calls))
	batch := make([]call, len(calls))
	large := make([]bool, len(calls))
	for i, to := range calls {
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
				if answer.reverted() {
					return true
				}
				switch answer.class() {
				case classRate, classMethod, classState, classBatch, classGone:
					return false
				case classRange:
					large[i] = true
				default: // an error of the node, about this call alone
					answers[i].Failed = true
				}
				return true
			},
		}
	}
	for asked := batch; ; {
		clear(large)
		err := e.do(ctx, asked)
		if e.refusesCalls(err); err != nil {
			return nil, notServed(err)
		}
		var again []call
		for i := range batch {
			if large[i] {
				again = append(again, batch[i])
			}
		}
		if len(again) == len(asked) { // and not only for what came with them
			for i := range answers {
				answers[i].Failed = answers[i].Failed || large[i]
			}
			again = nil
		}
		if asked = again; len(asked) == 0 {
			return answers, nil
		}
	}
}

// callsRefused is how often in a row an endpoint says that it does not serve eth_call until it is not asked for a while: behind its URL there may
// be several nodes.
const callsRefused = 2

// lacksCalls reports whether the endpoint does not serve eth_call, as it said not long ago.
func (e *endpoint) lacksCalls() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.noCalls)
}

// refusesCalls notes whether the endpoint serves eth_call, by what came of a request.
func (e *endpoint) refusesCalls(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch class := classify(err); {
	case err == nil:
		e.refused = 0
	case class == classMethod:
		if e.refused++; e.refused < callsRefused {
			return
		}
		if e.noCalls.IsZero() {
			e.client.log.Warn("endpoint does not serve eth_call: if none does, multipliers and pauses of tokens are unknown", zap.String("endpoint", e.name), zap.Error(e.redact(err)))
		}
		e.noCalls = time.Now().Add(noneAgain)
	}
}

// shortRest is the longest pause of an endpoint that is waited for where all take part: that of one that failed a few
// times, not one that is down.
const shortRest = 2 * time.Second

// others calls ask with all endpoints but one, and once more with those that fail. Endpoints that fail again, or are
// paused for long, take no part.
func (c *Client) others(ctx context.Context, but *endpoint, ask func(context.Context, *endpoint, *sync.Mutex) error) {
	var (
		g  errgroup.Group
		mu sync.Mutex
	)
	for _, e := range c.endpoints {
		if e == but {
			continue
		}
		g.Go(func() error {
			for range 2 {
				if !e.rested(ctx, shortRest) {
					return nil
				}
				switch err := ask(ctx, e, &mu); {
				case err == nil:
					e.well()
					return nil
				case ctx.Err() != nil || errors.Is(err, errSitsOut):
					return err
				default:
					if e.failed(err); classify(err) == classState {
						return nil
					}
				}
			}
			return nil
		})
	}
	_ = g.Wait()
}

// rested waits for the end of the endpoint's pause. It reports false if the pause exceeds the limit.
func (e *endpoint) rested(ctx context.Context, limit time.Duration) bool {
	rest, _ := e.score(time.Now())
	if rest > limit {
		return false
	}
	return pause.For(ctx, rest) == nil
}

// withCode reports which of the addresses have code as of a block, given by number or by hash.
func (e *endpoint) withCode(ctx context.Context, block []byte, addresses []common.Address) ([]bool, error) {
	is := make([]bool, len(addresses))
	calls := make([]call, len(addresses))
	for i, a := range addresses {
		p := append(appendHex([]byte{'['}, a[:]), ',')
		calls[i] = call{method: "eth_getCode", params: append(append(p, block...), ']'), result: func(s *scanner) error {
			code, err := s.digits()
			is[i] = len(code) > 0
			return err
		}}
	}
	if err := e.do(ctx, calls); err != nil {
		return nil, notServed(err)
	}
	return is, nil
}
