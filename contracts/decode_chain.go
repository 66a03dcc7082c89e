package contracts

import "github.com/ethereum/go-ethereum/common"

var poolManagerEvents = []eventSpec{
	{signature: "Initialize(bytes32,address,address,uint24,int24,address,uint160,int24)", topics: 4, words: 5, read: readPoolInitialized},
	{signature: "ModifyLiquidity(bytes32,address,int24,int24,int256,bytes32)", topics: 3, words: 4, read: readLiquidityModified},
	{signature: "Swap(bytes32,address,int128,int128,uint160,uint128,int24,uint24)", topics: 3, words: 6, read: readSwapped},
}

var positionManagerEvents = []eventSpec{
	{signature: "Transfer(address,address,uint256)", topics: 4, words: 0, read: readPositionTransferred},
}

var tokenEvents = []eventSpec{
	{signature: "UIMultiplierUpdated(uint256,uint256,uint256)", topics: 1, words: 3, read: readUIMultiplierUpdated},
	{signature: "Paused(address)", topics: 1, words: 1, read: readTokenPaused},
	{signature: "Unpaused(address)", topics: 1, words: 1, read: readTokenUnpaused},
}

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

func readUIMultiplierUpdated(w *words, address common.Address) Event {
	return &UIMultiplierUpdated{
		Token:         address,
		OldMultiplier: w.uint256(),
		NewMultiplier: w.uint256(),
		EffectiveAt:   w.uint256(),
	}
}

func readTokenPaused(w *words, address common.Address) Event {
	w.address() // who paused it
	return &TokenPaused{Token: address}
}

func readTokenUnpaused(w *words, address common.Address) Event {
	w.address() // who paused it
	return &TokenUnpaused{Token: address}
}
