package valuation

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"
	"golang.org/x/sync/singleflight"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/chain"
)

// errBlockGone: the node lacks the block, or has dropped it.
var errBlockGone = chain.ErrBlockGone

// errDiffers: the node's pools differ from the index at the same block.
var errDiffers = errors.New("the chain and the index disagree about a pool")

// chainReader reads data as of a block that no event reports. With two nodes or more, two must return the same.
type chainReader struct {
	client  *chain.Client
	cfg     *Config
	metrics *metrics

	reads singleflight.Group // reads that requests wait for

	mu   sync.Mutex
	weth common.Address // the PositionManager's wrapped ether, once known
	past *feeGrowthCache

	asked map[askedPosition]time.Time // when a request last asked for it

	scales map[common.Address]*uint8 // decimals, by token; nil: it has none

	creations map[common.Address]creation // by token

	run unhaltedBlocks // up to the last state's block
}

// Storage layout of Uniswap v4's PoolManager and its Pool.State.
const (
	poolsSlot     = 6
	slot0         = 0
	slotGrowth0   = 1
	slotLiquidity = 3
	slotTicks     = 4
	slotPositions = 6
	wordsOfPool   = 4
)

// Selectors of the calls.
var (
	selectorExtsload = contracts.Selector("extsload(bytes32[])")
	selectorPaused   = contracts.Selector("paused()")
	selectorOracle   = contracts.Selector("oraclePaused()")
	selectorWETH     = contracts.Selector("WETH9()")
	selectorDecimals = contracts.Selector("decimals()")
)

// poolSlot is the storage slot of a pool's first word.
func poolSlot(id common.Hash) *uint256.Int {
	return new(uint256.Int).SetBytes(crypto.Keccak256(id[:], common.BigToHash(uint256.NewInt(poolsSlot).ToBig()).Bytes()))
}

// mapped is the storage slot of a mapping's value.
func mapped(key [32]byte, slot *uint256.Int) *uint256.Int {
	at := slot.Bytes32()
	return new(uint256.Int).SetBytes(crypto.Keccak256(key[:], at[:]))
}

func plus(slot *uint256.Int, n uint64) *uint256.Int { return new(uint256.Int).AddUint64(slot, n) }

// extsload is the call that reads storage words of the PoolManager.
func (c *chainReader) extsload(slots []*uint256.Int) chain.Call {
	data := append([]byte(nil), selectorExtsload...)
	data = append(data, word(32)...)
	data = append(data, word(uint64(len(slots)))...)
	for _, s := range slots {
		raw := s.Bytes32()
		data = append(data, raw[:]...)
	}
	return chain.Call{To: c.cfg.Deployment.PoolManager, Data: data}
}

func word(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 24, 32), n) }

// loaded decodes the result of extsload.
func loaded(data []byte, n int) ([]uint256.Int, error) {
	if len(data) != 64+32*n {
		return nil, fmt.Errorf("extsload of %d words returned %d bytes: %w", n, len(data), chain.ErrUnavailable)
	}
	words := make([]uint256.Int, n)
	for i := range words {
		words[i].SetBytes(data[64+32*i : 96+32*i])
	}
	return words, nil
}

// complete adds the chain's data to a state, in one round trip to two nodes at once, and compares the index's pools
// with the chain's. It includes the fees of positions that were asked for lately.
func (c *chainReader) complete(ctx context.Context, s *state) error {
	var slots []*uint256.Int
	for _, p := range s.pools {
		base := poolSlot(p.ID)
		for i := range uint64(wordsOfPool) {
			slots = append(slots, plus(base, i))
		}
	}
	asked := c.askedLately(s)
	for _, a := range asked {
		slots = append(slots, c.feeSlots(&a)...)
	}
	calls := []chain.Call{c.extsload(slots), {To: c.cfg.Deployment.USDG, Data: selectorPaused}}
	unknownDecimals := c.unknownDecimals(s)
	for _, token := range unknownDecimals {
		calls = append(calls, chain.Call{To: token, Data: selectorDecimals, Gas: viewGas})
	}
	pauseUnknown := s.pauseUnknown()
	for _, token := range pauseUnknown {
		calls = append(calls, chain.Call{To: token, Data: selectorPaused, Gas: viewGas}, chain.Call{To: token, Data: selectorOracle, Gas: viewGas})
	}
	c.mu.Lock()
	known := c.weth
	c.mu.Unlock()
	if known == (common.Address{}) {
		calls = append(calls, chain.Call{To: c.cfg.Deployment.PositionManager, Data: selectorWETH})
	}
	results, err := chain.Both(ctx, c.client, "the pools", func(ctx context.Context) ([]chain.Result, error) {
		return c.client.Calls(ctx, s.at.Hash, calls)
	}, sameResults)
	if err != nil {
		return fmt.Errorf("read the pools of block %d: %w", s.at.Number, err)
	}
	if results[0].Err != nil {
		return fmt.Errorf("read the pools of block %d: %w", s.at.Number, results[0].Err)
	}
	words, err := loaded(results[0].Data, len(slots))
	if err != nil {
		return err
	}
	for i, p := range s.pools {
		if err := p.take(words[wordsOfPool*i : wordsOfPool*(i+1)]); err != nil {
			return fmt.Errorf("block %d: %w", s.at.Number, err)
		}
	}
	for i, a := range asked {
		s.ahead[a] = words[wordsOfPool*len(s.pools)+wordsOfFees*i:][:wordsOfFees]
	}
	if _, refused := errors.AsType[*chain.NodeError](results[1].Err); refused {
		return fmt.Errorf("read whether the dollar token is paused at block %d: %w: %w", s.at.Number, chain.ErrUnavailable, results[1].Err)
	}
	// A dollar token without the method cannot be paused.
	s.usdgPaused = results[1].Err == nil && len(results[1].Data) == 32 && results[1].Data[31] != 0
	c.noteDecimals(s, unknownDecimals, results[2:])
	s.notePaused(pauseUnknown, results[2+len(unknownDecimals):])
	if last := results[len(results)-1]; known == (common.Address{}) && last.Err == nil && len(last.Data) == 32 {
		known = common.BytesToAddress(last.Data)
		c.mu.Lock()
		c.weth = known
		c.mu.Unlock()
	}
	s.weth = known
	return nil
}

// unknownDecimals are the pools' currencies whose decimals neither the registry nor the protocol defines, and that were
// not asked yet.
func (c *chainReader) unknownDecimals(s *state) (tokens []common.Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range s.pools {
		for _, token := range []common.Address{p.Currency0, p.Currency1} {
			_, asked := c.scales[token]
			if _, err := s.decimals(token); err != nil && !asked && !slices.Contains(tokens, token) {
				tokens = append(tokens, token)
			}
		}
	}
	return tokens
}

// pauseUnknown are the stocks among the pools' currencies for which the index does not know whether they are paused:
// its nodes disagreed, or the token has no pause.
func (s *state) pauseUnknown() (tokens []common.Address) {
	for _, p := range s.pools {
		for _, token := range []common.Address{p.Currency0, p.Currency1} {
			a := s.assets[token]
			if a != nil && a.Lane == contracts.LaneStock && a.Paused == nil && !slices.Contains(tokens, token) {
				tokens = append(tokens, token)
			}
		}
	}
	return tokens
}

// notePaused notes which tokens are paused by either function, or may be because the node refused the call.
func (s *state) notePaused(tokens []common.Address, said []chain.Result) {
	s.stopped = map[common.Address]bool{}
	for i, token := range tokens {
		for _, r := range said[2*i : 2*i+2] {
			_, refused := errors.AsType[*chain.NodeError](r.Err)
			if refused || r.Err == nil && len(r.Data) == 32 && !new(uint256.Int).SetBytes(r.Data).IsZero() {
				s.stopped[token] = true
			}
		}
	}
}

// noteDecimals stores the decimals that tokens returned, for good; a token without the method has none. The state gets
// all that are known.
func (c *chainReader) noteDecimals(s *state, tokens []common.Address, said []chain.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.scales == nil {
		c.scales = map[common.Address]*uint8{}
	}
	for i, token := range tokens {
		if _, refused := errors.AsType[*chain.NodeError](said[i].Err); refused {
			continue // the node refused: ask again
		}
		c.scales[token] = nil
		if z := new(uint256.Int).SetBytes(said[i].Data); said[i].Err == nil && len(said[i].Data) == 32 && z.LtUint64(256) {
			c.scales[token] = new(uint8(z.Uint64()))
		}
	}
	s.scales = map[common.Address]uint8{}
	for token, scale := range c.scales {
		if scale != nil {
			s.scales[token] = *scale
		}
	}
}

// sameResults reports whether two nodes returned the same results of calls.
func sameResults(one, other []chain.Result) bool {
	return slices.EqualFunc(one, other, func(a, b chain.Result) bool {
		return bytes.Equal(a.Data, b.Data) && sameOutcome(a.Err, b.Err)
	})
}

// sameOutcome reports whether a call succeeded on two nodes, or failed on both. The texts of errors may differ.
func sameOutcome(one, other error) bool {
	_, reverted := errors.AsType[*chain.RevertError](one)
	_, too := errors.AsType[*chain.RevertError](other)
	return (one == nil) == (other == nil) && reverted == too
}

// dynamicFee is the fee of a pool whose hook sets it.
const dynamicFee = 0x800000

// take reads a pool's storage words.
func (p *pool) take(words []uint256.Int) error {
	var price, tick uint256.Int
	price.Rsh(price.Lsh(&words[slot0], 96), 96)
	tick.Rsh(&words[slot0], 160)
	at := int32(uint32(tick[0])<<8) >> 8
	if !price.Eq(&p.SqrtPriceX96) || at != p.Tick || !words[slotLiquidity].Eq(&p.Liquidity) {
		return fmt.Errorf("pool %s at %s, tick %d with %s: %w (%s, %d, %s)", p.ID, &price, at, &words[slotLiquidity], errDiffers,
			&p.SqrtPriceX96, p.Tick, &p.Liquidity)
	}
	fees := tick.Rsh(&tick, 24)[0]
	p.amm.ProtocolFee, p.amm.LPFee = uint32(fees&0xffffff), uint32(fees>>24&0xffffff)
	if p.Fee != dynamicFee && p.amm.LPFee != p.Fee {
		return fmt.Errorf("pool %s with a fee of %d: %w (%d)", p.ID, p.amm.LPFee, errDiffers, p.Fee)
	}
	p.growth = ammv4.FeeGrowth{words[slotGrowth0], words[slotGrowth0+1]}
	return nil
}
