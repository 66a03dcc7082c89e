package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// stakingEvents are LiquidityStaking's.
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

// Events of LiquidityStaking.
type (
	PositionStaked struct {
		PoolID      common.Hash
		TokenID     uint256.Int
		Owner       common.Address
		TickLower   int32
		TickUpper   int32
		Liquidity   uint256.Int
		Weight      uint256.Int
		TotalWeight uint256.Int
		InRange     bool
		IsSeed      bool
		At          uint64
	}
	PositionCheckpointed struct {
		PoolID           common.Hash
		TokenID          uint256.Int
		Liquidity        uint256.Int
		Weight           uint256.Int
		TotalWeight      uint256.Int
		InRange          bool
		EmissionsEarned  uint256.Int
		CreatorFeeEarned uint256.Int
		At               uint64
	}
	PositionUnstaked struct {
		PoolID      common.Hash
		TokenID     uint256.Int
		Owner       common.Address
		TotalWeight uint256.Int
		At          uint64
	}
	EmissionsNotified struct {
		PoolID        common.Hash
		Epoch         uint32
		Amount        uint256.Int
		RatePerSecond uint256.Int
		PeriodFinish  uint64
	}
	CreatorFeesNotified struct {
		PoolID           common.Hash
		From             common.Address
		Amount           uint256.Int
		AccPerWeightX128 uint256.Int
	}
	EmissionsClaimed struct {
		PoolID  common.Hash
		TokenID uint256.Int
		Owner   common.Address
		Amount  uint256.Int
		DripID  uint256.Int
	}
	CreatorFeeClaimed struct {
		PoolID  common.Hash
		TokenID uint256.Int
		Owner   common.Address
		Amount  uint256.Int
	}
	ControllerSet struct {
		Staking    common.Address
		Controller common.Address
	}
	FeesWithdrawn struct {
		Staking common.Address
		Account common.Address
		To      common.Address
		Amount  uint256.Int
	}
	// EmissionsOwed says what an account is owed for a position, for which the distributor made no drip yet.
	EmissionsOwed struct {
		Staking common.Address
		Account common.Address
		TokenID uint256.Int
		Owed    uint256.Int
	}
)

func (e *PositionStaked) Entity() Entity       { return PoolEntity(e.PoolID) }
func (e *PositionCheckpointed) Entity() Entity { return PoolEntity(e.PoolID) }
func (e *PositionUnstaked) Entity() Entity     { return PoolEntity(e.PoolID) }
func (e *EmissionsNotified) Entity() Entity    { return PoolEntity(e.PoolID) }
func (e *CreatorFeesNotified) Entity() Entity  { return PoolEntity(e.PoolID) }
func (e *EmissionsClaimed) Entity() Entity     { return PoolEntity(e.PoolID) }
func (e *CreatorFeeClaimed) Entity() Entity    { return PoolEntity(e.PoolID) }
func (e *ControllerSet) Entity() Entity        { return contract(e.Staking) }
func (e *FeesWithdrawn) Entity() Entity        { return contract(e.Staking) }
func (e *EmissionsOwed) Entity() Entity        { return contract(e.Staking) }

func (*PositionStaked) Name() string       { return "PositionStaked" }
func (*PositionCheckpointed) Name() string { return "PositionCheckpointed" }
func (*PositionUnstaked) Name() string     { return "PositionUnstaked" }
func (*EmissionsNotified) Name() string    { return "EmissionsNotified" }
func (*CreatorFeesNotified) Name() string  { return "CreatorFeesNotified" }
func (*EmissionsClaimed) Name() string     { return "EmissionsClaimed" }
func (*CreatorFeeClaimed) Name() string    { return "CreatorFeeClaimed" }
func (*ControllerSet) Name() string        { return "ControllerSet" }
func (*FeesWithdrawn) Name() string        { return "FeesWithdrawn" }
func (*EmissionsOwed) Name() string        { return "EmissionsOwed" }

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

func readControllerSet(w *words, address common.Address) Event {
	return &ControllerSet{Staking: address, Controller: w.address()}
}

func readFeesWithdrawn(w *words, address common.Address) Event {
	return &FeesWithdrawn{Staking: address, Account: w.topicAddress(), To: w.address(), Amount: w.uint256()}
}

func readEmissionsOwed(w *words, address common.Address) Event {
	return &EmissionsOwed{Staking: address, Account: w.topicAddress(), TokenID: w.topicNumber(), Owed: w.uint256()}
}
