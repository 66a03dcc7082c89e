package contracts

import "github.com/ethereum/go-ethereum/common"

// The words count the arguments that are not indexed, in the order of the declaration in src/IMarket.sol.
var epochEvents = []eventSpec{
	{signature: "EpochOpened(uint32,uint40,uint40,uint256,uint256,uint256,uint256,uint256)", topics: 2, words: 7, read: readEpochOpened},
	{signature: "EpochRatesSet(uint32,uint256,uint256,uint256,uint16)", topics: 2, words: 4, read: readEpochRatesSet},
	{signature: "EpochReserved(uint32,uint32,uint256,uint256,bool)", topics: 2, words: 4, read: readEpochReserved},
	{signature: "EpochReturned(uint32,uint32,uint256,uint256)", topics: 2, words: 3, read: readEpochReturned},
	{signature: "LiquidityReleased(uint32,uint256,uint256)", topics: 2, words: 2, read: readLiquidityReleased},
	{signature: "EpochClosed(uint32,uint256,uint256)", topics: 2, words: 2, read: readEpochClosed},
	{signature: "RewardReserved(uint256,uint32,uint32,uint256,uint256,uint256,uint256,bool)", topics: 3, words: 6, read: readRewardReserved},
	{signature: "RewardReturned(uint256,uint32,uint256)", topics: 3, words: 1, read: readRewardReturned},
}

var distributorEvents = []eventSpec{
	{signature: "DripCreated(address,uint256,uint256,uint8,uint256,uint32,uint256,uint40,uint40,uint40)", topics: 4, words: 7, read: readDripCreated},
	{signature: "DripCut(address,uint256,uint40,uint256,uint256)", topics: 3, words: 3, read: readDripCut},
	{signature: "DripClaimed(address,uint256,address,uint256,uint256)", topics: 3, words: 3, read: readDripClaimed},
	{signature: "SourceSet(address,bool)", topics: 1, words: 2, read: readSourceSet},
}

var stakingEvents = []eventSpec{
	{signature: "PositionStaked(bytes32,uint256,address,int24,int24,uint128,uint256,uint256,bool,bool,uint40)", topics: 4, words: 8, read: readPositionStaked},
	{signature: "PositionCheckpointed(bytes32,uint256,uint128,uint256,uint256,bool,uint256,uint256,uint40)", topics: 3, words: 7, read: readPositionCheckpointed},
	{signature: "PositionUnstaked(bytes32,uint256,address,uint256,uint40)", topics: 4, words: 2, read: readPositionUnstaked},
	{signature: "EmissionsNotified(bytes32,uint32,uint256,uint256,uint40)", topics: 3, words: 3, read: readEmissionsNotified},
	{signature: "CreatorFeesNotified(bytes32,address,uint256,uint256)", topics: 3, words: 2, read: readCreatorFeesNotified},
	{signature: "EmissionsClaimed(bytes32,uint256,address,uint256,uint256)", topics: 4, words: 2, read: readEmissionsClaimed},
	{signature: "CreatorFeeClaimed(bytes32,uint256,address,uint256)", topics: 4, words: 1, read: readCreatorFeeClaimed},
	{signature: "ControllerSet(address)", topics: 1, words: 1, read: readControllerSet},
	{signature: "FeesWithdrawn(address,address,uint256)", topics: 2, words: 2, read: readFeesWithdrawn},
	{signature: "EmissionsOwed(address,uint256,uint256)", topics: 3, words: 1, read: readEmissionsOwed},
}

var burnerEvents = []eventSpec{
	{signature: "Burned(address,uint256,uint256,uint256,uint40)", topics: 2, words: 4, read: readBurned},
}

func readEpochOpened(w *words, _ common.Address) Event {
	return &EpochOpened{
		N:               w.topicUint32(),
		StartsAt:        w.uint40(),
		EndsAt:          w.uint40(),
		Weekly:          w.uint256(),
		DealBudget7:     w.uint256(),
		DealBudget21:    w.uint256(),
		LiquidityBudget: w.uint256(),
		RolledOver:      w.uint256(),
	}
}

func readEpochRatesSet(w *words, _ common.Address) Event {
	return &EpochRatesSet{
		N:                w.topicUint32(),
		Rate7:            w.uint256(),
		Rate21:           w.uint256(),
		PriceUSDGPerSTKN: w.uint256(),
		LenderShareBps:   w.uint16(),
	}
}

func readEpochReserved(w *words, _ common.Address) Event {
	return &EpochReserved{
		N:               w.topicUint32(),
		Term:            w.uint32(),
		Granted:         w.uint256(),
		ReservedAfter:   w.uint256(),
		BudgetExhausted: w.bool(),
	}
}

func readEpochReturned(w *words, _ common.Address) Event {
	return &EpochReturned{
		N:             w.topicUint32(),
		Term:          w.uint32(),
		Amount:        w.uint256(),
		ReservedAfter: w.uint256(),
	}
}

func readLiquidityReleased(w *words, _ common.Address) Event {
	return &LiquidityReleased{
		N:             w.topicUint32(),
		Amount:        w.uint256(),
		ReleasedAfter: w.uint256(),
	}
}

func readEpochClosed(w *words, _ common.Address) Event {
	return &EpochClosed{
		N:          w.topicUint32(),
		Released:   w.uint256(),
		RolledOver: w.uint256(),
	}
}

func readRewardReserved(w *words, _ common.Address) Event {
	return &RewardReserved{
		DealID:          w.topicNumber(),
		N:               w.topicUint32(),
		Term:            w.uint32(),
		Wanted:          w.uint256(),
		Granted:         w.uint256(),
		LenderAmount:    w.uint256(),
		BorrowerAmount:  w.uint256(),
		BudgetExhausted: w.bool(),
	}
}

func readRewardReturned(w *words, _ common.Address) Event {
	return &RewardReturned{
		DealID: w.topicNumber(),
		N:      w.topicUint32(),
		Amount: w.uint256(),
	}
}

func readDripCreated(w *words, _ common.Address) Event {
	return &DripCreated{
		Account: w.topicAddress(),
		DripID:  w.topicNumber(),
		DealID:  w.topicNumber(),
		Source:  DripSource(w.enum(uint8(DripLP))),
		TokenID: w.uint256(),
		Epoch:   w.uint32(),
		Total:   w.uint256(),
		Start:   w.uint40(),
		Length:  w.uint40(),
		Cliff:   w.uint40(),
	}
}

func readDripCut(w *words, _ common.Address) Event {
	return &DripCut{
		Account:    w.topicAddress(),
		DripID:     w.topicNumber(),
		At:         w.uint40(),
		TotalAfter: w.uint256(),
		Returned:   w.uint256(),
	}
}

func readDripClaimed(w *words, _ common.Address) Event {
	return &DripClaimed{
		Account:      w.topicAddress(),
		DripID:       w.topicNumber(),
		To:           w.address(),
		Amount:       w.uint256(),
		ClaimedAfter: w.uint256(),
	}
}

func readPositionStaked(w *words, _ common.Address) Event {
	return &PositionStaked{
		PoolID:      w.topicHash(),
		TokenID:     w.topicNumber(),
		Owner:       w.topicAddress(),
		TickLower:   w.int24(),
		TickUpper:   w.int24(),
		Liquidity:   w.uint128(),
		Weight:      w.uint256(),
		TotalWeight: w.uint256(),
		InRange:     w.bool(),
		IsSeed:      w.bool(),
		At:          w.uint40(),
	}
}

func readPositionCheckpointed(w *words, _ common.Address) Event {
	return &PositionCheckpointed{
		PoolID:           w.topicHash(),
		TokenID:          w.topicNumber(),
		Liquidity:        w.uint128(),
		Weight:           w.uint256(),
		TotalWeight:      w.uint256(),
		InRange:          w.bool(),
		EmissionsEarned:  w.uint256(),
		CreatorFeeEarned: w.uint256(),
		At:               w.uint40(),
	}
}

func readPositionUnstaked(w *words, _ common.Address) Event {
	return &PositionUnstaked{
		PoolID:      w.topicHash(),
		TokenID:     w.topicNumber(),
		Owner:       w.topicAddress(),
		TotalWeight: w.uint256(),
		At:          w.uint40(),
	}
}

func readEmissionsNotified(w *words, _ common.Address) Event {
	return &EmissionsNotified{
		PoolID:        w.topicHash(),
		Epoch:         w.topicUint32(),
		Amount:        w.uint256(),
		RatePerSecond: w.uint256(),
		PeriodFinish:  w.uint40(),
	}
}

func readCreatorFeesNotified(w *words, _ common.Address) Event {
	return &CreatorFeesNotified{
		PoolID:           w.topicHash(),
		From:             w.topicAddress(),
		Amount:           w.uint256(),
		AccPerWeightX128: w.uint256(),
	}
}

func readEmissionsClaimed(w *words, _ common.Address) Event {
	return &EmissionsClaimed{
		PoolID:  w.topicHash(),
		TokenID: w.topicNumber(),
		Owner:   w.topicAddress(),
		Amount:  w.uint256(),
		DripID:  w.uint256(),
	}
}

func readCreatorFeeClaimed(w *words, _ common.Address) Event {
	return &CreatorFeeClaimed{
		PoolID:  w.topicHash(),
		TokenID: w.topicNumber(),
		Owner:   w.topicAddress(),
		Amount:  w.uint256(),
	}
}

func readBurned(w *words, _ common.Address) Event {
	return &Burned{
		Caller:     w.topicAddress(),
		USDGSpent:  w.uint256(),
		TKNBought:  w.uint256(),
		STKNBurned: w.uint256(),
		At:         w.uint40(),
	}
}
