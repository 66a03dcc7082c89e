package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// Uniswap v4: the PoolManager's events by pool, the PositionManager's Transfer by position.
var poolManagerEvents = []eventSpec{
	{signature: "Initialize(bytes32,address,address,uint24,int24,address,uint160,int24)", topics: 4, words: 5, read: readPoolInitialized},
	{signature: "ModifyLiquidity(bytes32,address,int24,int24,int256,bytes32)", topics: 3, words: 4, read: readLiquidityModified},
	{signature: "Swap(bytes32,address,int128,int128,uint160,uint128,int24,uint24)", topics: 3, words: 6, read: readSwapped},
}

var positionManagerEvents = []eventSpec{
	{signature: "Transfer(address,address,uint256)", topics: 4, words: 0, read: readPositionTransferred},
}

// Events of Uniswap v4.
type (
	PoolInitialized struct {
		PoolID       common.Hash
		Currency0    common.Address
		Currency1    common.Address
		Fee          uint32
		TickSpacing  int32
		Hooks        common.Address
		SqrtPriceX96 uint256.Int
		Tick         int32
	}
	LiquidityModified struct {
		PoolID         common.Hash
		Sender         common.Address
		TickLower      int32
		TickUpper      int32
		LiquidityDelta uint256.Int `signed:"true"` // two's complement
		Salt           common.Hash
	}
	Swapped struct {
		PoolID       common.Hash
		Sender       common.Address
		Amount0      uint256.Int `signed:"true"` // two's complement; the swapper's delta, negative = paid in
		Amount1      uint256.Int `signed:"true"`
		SqrtPriceX96 uint256.Int
		Liquidity    uint256.Int
		Tick         int32
		Fee          uint32
	}
	PositionTransferred struct {
		From    common.Address
		To      common.Address
		TokenID uint256.Int
	}
)

func (e *PoolInitialized) Entity() Entity     { return PoolEntity(e.PoolID) }
func (e *LiquidityModified) Entity() Entity   { return PoolEntity(e.PoolID) }
func (e *Swapped) Entity() Entity             { return PoolEntity(e.PoolID) }
func (e *PositionTransferred) Entity() Entity { return numbered("position", &e.TokenID) }

func (*PoolInitialized) Name() string     { return "PoolInitialized" }
func (*LiquidityModified) Name() string   { return "LiquidityModified" }
func (*Swapped) Name() string             { return "Swapped" }
func (*PositionTransferred) Name() string { return "PositionTransferred" }

func readPoolInitialized(w *words, _ common.Address) Event {
	return &PoolInitialized{
		PoolID:       w.topicHash(),
		Currency0:    w.topicAddress(),
		Currency1:    w.topicAddress(),
		Fee:          w.uint24(),
		TickSpacing:  w.int24(),
		Hooks:        w.address(),
		SqrtPriceX96: w.uint160(),
		Tick:         w.int24(),
	}
}

func readLiquidityModified(w *words, _ common.Address) Event {
	return &LiquidityModified{
		PoolID:         w.topicHash(),
		Sender:         w.topicAddress(),
		TickLower:      w.int24(),
		TickUpper:      w.int24(),
		LiquidityDelta: w.uint256(),
		Salt:           w.bytes32(),
	}
}

func readSwapped(w *words, _ common.Address) Event {
	return &Swapped{
		PoolID:       w.topicHash(),
		Sender:       w.topicAddress(),
		Amount0:      w.int128(),
		Amount1:      w.int128(),
		SqrtPriceX96: w.uint160(),
		Liquidity:    w.uint128(),
		Tick:         w.int24(),
		Fee:          w.uint24(),
	}
}

func readPositionTransferred(w *words, _ common.Address) Event {
	return &PositionTransferred{
		From:    w.topicAddress(),
		To:      w.topicAddress(),
		TokenID: w.topicNumber(),
	}
}
