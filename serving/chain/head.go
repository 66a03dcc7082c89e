package chain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
	"go.uber.org/zap"
)

// Head is the latest block that all live endpoints agree on, as of the last poll. On an error, ErrUnavailable,
// *ChainError or *DisagreementError, there is no usable block. The caller decides whether a head is too old.
func (c *Client) Head() (Block, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head, c.headErr
}

// Refresh polls the head now and returns it as Head does.
//
// All endpoints are asked for their latest block at once. The head is the highest of these blocks that a majority has,
// or both of two (settle). Endpoints without a vote (voters) do not count. Each endpoint that is ahead is asked for its
// block at that height, and the blocks must be equal. In these cases the head stays what it was, for at most
// Config.MaxStill:
//
//   - an endpoint does not return its block at that height
//   - the block needs another node to confirm it (confirmed)
//   - the head would fall back while a node still returns the one before
func (c *Client) Refresh(ctx context.Context) (Block, error) {
	c.polling.Lock()
	defer c.polling.Unlock()
	block, err := c.readHead(ctx)
	if ctx.Err() != nil {
		return c.Head()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, errUnconfirmed) {
		c.metrics.unconfirmed.Inc()
		if c.headErr == nil && time.Since(c.settled) < c.cfg.MaxStill {
			return c.head, nil
		}
	}
	if err != nil && c.headErr == nil {
		c.log.Warn("there is no usable head", zap.Error(err))
	}
	if _, ok := errors.AsType[*DisagreementError](err); ok {
		c.metrics.disagreements.Inc()
	}
	if err == nil && block.Hash == c.head.Hash {
		block.SeenAt = c.head.SeenAt
	}
	if err == nil {
		c.settled = time.Now()
		c.metrics.head.Set(float64(block.Number))
	}
	c.head, c.headErr = block, err
	return block, err
}

func (c *Client) readHead(ctx context.Context) (Block, error) {
	var ask []blockQuery
	for _, e := range c.awake() {
		ask = append(ask, blockQuery{e, "latest"})
	}
	latest, err := c.fetchBlocks(ctx, ask)
	if len(latest) == 0 {
		return Block{}, err
	}
	voting := c.voters(latest)
	return c.settle(ctx, voting, nodes(voting)+c.silent(latest, voting, time.Now()))
}

// silent counts the nodes that do not return their latest block now, but voted, or were first asked, within
// Config.MaxSilent: otherwise a node would be believed alone as soon as others stall. It notes which endpoints vote
// now.
func (c *Client) silent(latest, voters []report, now time.Time) int {
	hosts := map[string]bool{}
	for _, e := range c.endpoints {
		e.mu.Lock()
		if e.lastVote.IsZero() || from(voters, e) {
			e.lastVote = now
		}
		if !ofNode(latest, e) && now.Sub(e.lastVote) < c.cfg.MaxSilent {
			hosts[e.host] = true
		}
		e.mu.Unlock()
	}
	return len(hosts)
}

// voters leaves out endpoints that are far behind most of the others, and those that are far behind any other and have
// had the same block for Config.MaxStill. Being behind the highest is not enough: one node that claims a high block
// would take the vote from all others.
func (c *Client) voters(latest []report) []report {
	now := time.Now()
	numbers := make([]uint64, len(latest))
	still := make([]bool, len(latest))
	for i, s := range latest {
		numbers[i], still[i] = s.block.Number, s.from.stoodStill(s.block.Number, now) > c.cfg.MaxStill
	}
	slices.Sort(numbers)
	most, highest := numbers[(len(numbers)-1)/2], numbers[len(numbers)-1]
	kept := make([]report, 0, len(latest))
	for i, s := range latest {
		if n := s.block.Number; c.farBehind(n, most) || still[i] && c.farBehind(n, highest) {
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

func (c *Client) farBehind(number, other uint64) bool {
	return number < other && other-number > c.cfg.MaxBehind
}

// awake are the endpoints whose polls are not paused; if all are paused, all.
func (c *Client) awake() []*endpoint {
	now := time.Now()
	awake := slices.DeleteFunc(slices.Clone(c.endpoints), func(e *endpoint) bool { return e.resting(&e.polls, now) })
	if len(awake) == 0 {
		return c.endpoints
	}
	return awake
}

// report is the block that an endpoint returned.
type report struct {
	from  *endpoint
	block Block
}

// blockQuery asks an endpoint for a block.
type blockQuery struct {
	of    *endpoint
	which string // "latest" or a number in hexadecimal
}

// fetchBlocks fetches blocks from endpoints concurrently. If none responds, it returns the most specific error.
func (c *Client) fetchBlocks(ctx context.Context, ask []blockQuery) ([]report, error) {
	found := make([]report, len(ask))
	errs := make([]error, len(ask))
	var wg sync.WaitGroup
	for i, q := range ask {
		wg.Go(func() {
			var answer rpcBlock
			r := []*Request{{Method: "eth_getBlockByNumber", Params: []any{q.which, false}, Result: &answer}}
			if errs[i] = c.poll(ctx, q.of, r); errs[i] == nil {
				errs[i] = r[0].Err
			}
			if errs[i] == nil {
				found[i].block, errs[i] = answer.block()
			}
			found[i].from = q.of
		})
	}
	wg.Wait()
	var worst error
	var told []report
	for i := range ask {
		if errs[i] == nil {
			told = append(told, found[i])
		}
		worst = worse(worst, errs[i])
	}
	return told, worst
}

// rpcBlock is the needed part of a block in JSON; chains add fields of their own.
type rpcBlock struct {
	Number    *hexutil.Uint64 `json:"number"`
	Hash      *common.Hash    `json:"hash"`
	Parent    common.Hash     `json:"parentHash"`
	Timestamp hexutil.Uint64  `json:"timestamp"`
	GasLimit  hexutil.Uint64  `json:"gasLimit"`
	BaseFee   *hexutil.Big    `json:"baseFeePerGas"`
}

// maxTimestamp is beyond what contracts can hold: they keep 40 bits.
const maxTimestamp = 1 << 40

func (b *rpcBlock) block() (Block, error) {
	if b.Number == nil || b.Hash == nil {
		return Block{}, fmt.Errorf("%w: the endpoint does not have it", ErrBlockGone)
	}
	if uint64(*b.Number) > math.MaxInt64 || b.Timestamp >= maxTimestamp {
		return Block{}, errMalformed
	}
	block := Block{
		Number: uint64(*b.Number), Hash: *b.Hash, Parent: b.Parent, Timestamp: uint64(b.Timestamp),
		GasLimit: uint64(b.GasLimit), SeenAt: time.Now(),
	}
	if fee := b.BaseFee.ToInt(); b.BaseFee != nil && fee.IsUint64() {
		wei := fee.Uint64()
		block.BaseFee = &wei
	}
	return block, nil
}

// BlockByNumber returns the block at a height or with a tag: rpc.SafeBlockNumber, rpc.FinalizedBlockNumber.
// ErrBlockGone: no node that was asked has it.
func (c *Client) BlockByNumber(ctx context.Context, number rpc.BlockNumber) (Block, error) {
	return c.blockBy(ctx, "eth_getBlockByNumber", number)
}

// BlockByHash returns a block, whether or not it is on the chain now. ErrBlockGone: no node that was asked has it.
func (c *Client) BlockByHash(ctx context.Context, hash common.Hash) (Block, error) {
	b, err := c.blockBy(ctx, "eth_getBlockByHash", hash)
	if err == nil && b.Hash != hash {
		err = fmt.Errorf("block %s for %s: %w", b.Hash, hash, errMalformed)
	}
	return b, err
}

func (c *Client) blockBy(ctx context.Context, method string, what any) (Block, error) {
	var answer rpcBlock
	r := Request{Method: method, Params: []any{what, false}, Result: &answer, nullRefuses: true}
	if err := c.Batch(ctx, &r); err != nil {
		return Block{}, err
	}
	if r.Err != nil {
		return Block{}, r.Err
	}
	return answer.block()
}

// BlocksByNumber fetches the blocks at some heights, in one round trip if Config.MaxBatch allows. ErrBlockGone: the
// node that was asked lacks one of them.
func (c *Client) BlocksByNumber(ctx context.Context, numbers []uint64) ([]Block, error) {
	answers, requests := make([]rpcBlock, len(numbers)), make([]*Request, len(numbers))
	for i, number := range numbers {
		requests[i] = &Request{Method: "eth_getBlockByNumber", Params: []any{NumberOf(number), false}, Result: &answers[i], nullRefuses: true}
	}
	if err := c.Batch(ctx, requests...); err != nil {
		return nil, err
	}
	blocks := make([]Block, len(numbers))
	for i := range answers {
		if requests[i].Err != nil {
			return nil, requests[i].Err
		}
		var err error
		if blocks[i], err = answers[i].block(); err != nil {
			return nil, err
		}
		if blocks[i].Number != numbers[i] {
			return nil, fmt.Errorf("block %d for %d: %w", blocks[i].Number, numbers[i], errMalformed)
		}
	}
	return blocks, nil
}

// NumberOf is a block number for BlockByNumber.
func NumberOf(number uint64) rpc.BlockNumber { return rpc.BlockNumber(min(number, math.MaxInt64)) }
