package topics

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// The entities of Uniswap v4 and of the staking of its positions.

// Pool is a v4 pool. One that the registry sets before anybody initialises it has no price yet.
//
//entity:topic 34 pool ID
//entity:doc The latest row of a v4 pool.
type Pool struct {
	ID           common.Hash `avro:"pool_id"`
	Initialized  bool
	Currency0    common.Address // zero: the chain's own coin
	Currency1    common.Address
	Fee          uint32 `doc:"millionths"` // millionths; 1<<23: set by the hooks
	TickSpacing  int32
	Hooks        common.Address
	SqrtPriceX96 uint256.Int // of currency1 per currency0, raw; Q64.96
	Tick         int32       // may be one below the tick of the price
	Liquidity    uint256.Int `doc:"in range"` // in range
	Limits       *PoolLimits // nil: the registry never set the pool

	InitializedAt uint64 `avro:"-"` // 0 until initialised
}

// PoolLimits is what the registry says of a pool: whether its positions may be listed, and which.
type PoolLimits struct {
	Allowed      bool `doc:"null where the registry never set the pool"`
	MinLiquidity uint256.Int
	MaxLiquidity uint256.Int
}

// Tick is a tick of a pool at which liquidity begins or ends. With the pool's price and fee, a pool's ticks say
// what a swap of any amount comes to.
//
//entity:topic 40 pool ID and tick
//entity:doc A tick of a v4 pool at which liquidity begins or ends.
type Tick struct {
	PoolID common.Hash
	Tick   int32
	Gross  uint256.Int `avro:"liquidity_gross" doc:"of the ranges that begin or end here"`                            // of the ranges that begin or end here
	Net    uint256.Int `avro:"liquidity_net" signed:"true" doc:"what is in range gains it when the price rises past"` // two's complement: what is in range gains it when the price rises past
}

// Observation is a pool's price at the end of a second in which it moved.
//
//entity:topic 35 pool ID and second
//entity:doc The price of a v4 pool at the end of a second in which it moved.
type Observation struct {
	PoolID       common.Hash
	At           uint64
	SqrtPriceX96 uint256.Int
	Tick         int32
}

// Position is who holds a position of the PositionManager.
//
//entity:topic 36 token ID
//entity:doc Who holds a position of the PositionManager.
type Position struct {
	TokenID uint256.Int
	Owner   common.Address
}

// PositionLiquidity is what a position of the PositionManager has in its pool. It outlives the position.
//
//entity:topic 37 token ID
//entity:doc What a position of the PositionManager has in its pool.
type PositionLiquidity struct {
	TokenID   uint256.Int
	PoolID    common.Hash
	TickLower int32
	TickUpper int32
	Liquidity uint256.Int
}

// Staking is the state of LiquidityStaking that all stakes of a pool share.
//
//entity:topic 38 pool ID
//entity:doc What all stakes of a pool share.
type Staking struct {
	PoolID            common.Hash
	TotalWeight       uint256.Int
	Epoch             uint32 // of the last notification; 0: none
	RatePerSecond     uint256.Int
	PeriodFinish      uint64      // emissions end then
	EmissionsNotified uint256.Int // wei of sTKN, ever
	CreatorFees       uint256.Int // wei of TKN, ever
}

// Stake is a staked position, as of its last checkpoint.
//
//entity:topic 39 pool ID and token ID
//entity:doc A staked position as of its last checkpoint.
type Stake struct {
	PoolID           common.Hash
	TokenID          uint256.Int
	Owner            common.Address
	TickLower        int32
	TickUpper        int32
	Liquidity        uint256.Int
	Weight           uint256.Int
	InRange          bool        // at the last checkpoint
	EmissionsEarned  uint256.Int // wei of sTKN, not yet claimed
	CreatorFeeEarned uint256.Int // wei of TKN, not yet claimed
	StakedAt         uint64
	LastCheckpoint   uint64
	IsSeed           bool
}
