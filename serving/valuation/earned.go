package valuation

import (
	"context"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/chain"
)

// maxAsked bounds the positions whose fees are read ahead of requests.
const maxAsked = 256

// wordsOfFees is the number of storage words from which a position's fees are computed.
const wordsOfFees = 2 + 2*2

// askedPosition is a position that a request asked for. No event reports its fees, so they are read with the pools of
// each block as long as requests ask for it, and no request waits for the chain. The key includes the range, because
// after a reorg a token ID may be another position's.
type askedPosition struct {
	tokenID      uint256.Int
	pool         common.Hash
	lower, upper int32
}

// note remembers a position that was asked for, while there is room.
func (c *chainReader) note(a askedPosition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = make(map[askedPosition]time.Time)
	}
	if _, known := c.asked[a]; known || len(c.asked) < maxAsked {
		c.asked[a] = time.Now()
	}
}

// askedLately are the positions in a state's pools that were asked for within Config.IdleAfter. The others are dropped.
func (c *chainReader) askedLately(s *state) (all []askedPosition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a, at := range c.asked {
		if time.Since(at) > c.cfg.IdleAfter || s.byID(a.pool) == nil {
			delete(c.asked, a)
		} else {
			all = append(all, a)
		}
	}
	return all
}

// uncollected is a position's fees. They are read once per block; ahead of the request if it was asked for before.
func (c *chainReader) uncollected(ctx context.Context, s *state, p *pool, tokenID, liquidity *uint256.Int, lower, upper int32) ([2]uint256.Int, error) {
	a := askedPosition{tokenID: *tokenID, pool: p.ID, lower: lower, upper: upper}
	c.note(a)
	s.mu.Lock()
	fees, known := s.fees[*tokenID]
	s.mu.Unlock()
	if known {
		return fees, nil
	}
	if words := s.ahead[a]; words != nil {
		return owed(p, words, liquidity, lower, upper), nil
	}
	return chain.Shared(ctx, c.cfg.ReadTimeout, &c.reads, fmt.Sprintf("fees of position %s at %s", tokenID.Dec(), s.at.Hash), func(ctx context.Context) (fees [2]uint256.Int, err error) {
		words, err := c.readFees(ctx, s, &a)
		if err != nil {
			return fees, err
		}
		fees = owed(p, words, liquidity, lower, upper)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fees[*tokenID] = fees
		return fees, nil
	})
}

func (c *chainReader) readFees(ctx context.Context, s *state, a *askedPosition) ([]uint256.Int, error) {
	c.metrics.fees.Inc()
	data, err := c.callBoth(ctx, s.at.Hash, c.extsload(c.feeSlots(a)))
	if err != nil {
		return nil, fmt.Errorf("read the fees of position %s: %w", a.tokenID.Dec(), err)
	}
	return loaded(data, wordsOfFees)
}

// feeSlots are the storage slots from which a position's fees are computed.
func (c *chainReader) feeSlots(a *askedPosition) []*uint256.Int {
	base := poolSlot(a.pool)
	position := mapped(positionKey(c.cfg.Deployment.PositionManager, &a.tokenID, a.lower, a.upper), plus(base, slotPositions))
	slots := []*uint256.Int{plus(position, 1), plus(position, 2)}
	for _, tick := range []int32{a.lower, a.upper} {
		info := mapped(signed(tick), plus(base, slotTicks))
		slots = append(slots, plus(info, 1), plus(info, 2))
	}
	return slots
}

// owed computes a position's fees from its words.
func owed(p *pool, words []uint256.Int, liquidity *uint256.Int, lower, upper int32) [2]uint256.Int {
	pair := func(i int) *ammv4.FeeGrowth { return (*ammv4.FeeGrowth)(words[i : i+2]) }
	inside := ammv4.FeeGrowthInside(p.Tick, lower, upper, &p.growth, pair(2), pair(4))
	return ammv4.FeesOwed(&inside, pair(0), liquidity)
}

// positionKey is Position.calculatePositionKey for a position of the PositionManager.
func positionKey(manager common.Address, tokenID *uint256.Int, lower, upper int32) (key [32]byte) {
	salt := tokenID.Bytes32()
	packed := append([]byte(nil), manager[:]...)
	for _, tick := range []int32{lower, upper} {
		packed = append(packed, byte(tick>>16), byte(tick>>8), byte(tick))
	}
	copy(key[:], crypto.Keccak256(append(packed, salt[:]...)))
	return key
}

// signed encodes a tick as a word.
func signed(tick int32) [32]byte {
	n := uint256.NewInt(uint64(max(tick, -tick)))
	if tick < 0 {
		n.Neg(n)
	}
	return n.Bytes32()
}
