package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// Events of the EpochController: the epoch's, then the deal's.
type (
	EpochOpened struct {
		N               uint32
		StartsAt        uint64
		EndsAt          uint64
		Weekly          uint256.Int
		DealBudget7     uint256.Int
		DealBudget21    uint256.Int
		LiquidityBudget uint256.Int
		RolledOver      uint256.Int
	}
	EpochRatesSet struct {
		N                uint32
		Rate7            uint256.Int
		Rate21           uint256.Int
		PriceUSDGPerSTKN uint256.Int
		LenderShareBps   uint16
	}
	EpochReserved struct {
		N               uint32
		Term            uint32
		Granted         uint256.Int
		ReservedAfter   uint256.Int
		BudgetExhausted bool
	}
	EpochReturned struct {
		N             uint32
		Term          uint32
		Amount        uint256.Int
		ReservedAfter uint256.Int
	}
	LiquidityReleased struct {
		N             uint32
		Amount        uint256.Int
		ReleasedAfter uint256.Int
	}
	EpochClosed struct {
		N          uint32
		Released   uint256.Int
		RolledOver uint256.Int
	}
	RewardReserved struct {
		DealID          uint256.Int
		N               uint32
		Term            uint32
		Wanted          uint256.Int
		Granted         uint256.Int
		LenderAmount    uint256.Int
		BorrowerAmount  uint256.Int
		BudgetExhausted bool
	}
	RewardReturned struct {
		DealID uint256.Int
		N      uint32
		Amount uint256.Int
	}
)

// Events of the RewardDistributor.
type (
	DripCreated struct {
		Account common.Address
		DripID  uint256.Int
		DealID  uint256.Int
		Source  DripSource
		TokenID uint256.Int
		Epoch   uint32
		Total   uint256.Int
		Start   uint64
		Length  uint64
		Cliff   uint64
	}
	DripCut struct {
		Account    common.Address
		DripID     uint256.Int
		At         uint64
		TotalAfter uint256.Int
		Returned   uint256.Int
	}
	DripClaimed struct {
		Account      common.Address
		DripID       uint256.Int
		To           common.Address
		Amount       uint256.Int
		ClaimedAfter uint256.Int
	}
)

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

// Burned is the Burner's one event.
type Burned struct {
	Caller     common.Address
	USDGSpent  uint256.Int
	TKNBought  uint256.Int
	STKNBurned uint256.Int
	At         uint64
}
