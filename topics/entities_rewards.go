package topics

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

// The entities of the token layer. Amounts are wei of sTKN unless said otherwise.

// Drip is a stream of sTKN to an account. What of it is unlocked depends on time, and is not in it.
//
//entity:topic 30 drip ID
//entity:doc The latest row of a drip: a stream of sTKN to an account.
type Drip struct {
	ID      uint256.Int `avro:"drip_id"`
	Account common.Address
	Source  contracts.DripSource
	DealID  uint256.Int `zero:"null" doc:"null where the source is no deal"`     // 0 where the source is no deal
	TokenID uint256.Int `zero:"null" doc:"null where the source is no position"` // 0 where the source is no position
	Epoch   uint32
	Granted uint256.Int `doc:"what it was created with"` // what it was created with
	Total   uint256.Int `doc:"less what a cut returned"` // Granted less what a cut returned
	Claimed uint256.Int
	Start   uint64
	Length  uint64 `doc:"seconds"`     // seconds
	Cliff   uint64 `doc:"a timestamp"` // nothing is unlocked before it; a timestamp
	CutAt   uint64 `zero:"null"`       // 0: not cut; from then on all of Total is unlocked
}

// Reward is what the epoch granted to the parties of a deal when it was funded.
//
//entity:topic 31 deal ID
//entity:doc What an epoch granted to the parties of a deal.
type Reward struct {
	DealID          uint256.Int
	Epoch           uint32
	Term            uint32
	Wanted          uint256.Int // what the rate asked for
	Granted         uint256.Int // what the budget had
	LenderAmount    uint256.Int
	BorrowerAmount  uint256.Int
	Returned        uint256.Int // not earned, since the deal ended early
	BudgetExhausted bool
}

// Epoch is a week's budgets.
//
//entity:topic 32 epoch number
//entity:doc The latest row of an epoch.
type Epoch struct {
	N               uint32
	StartsAt        uint64
	EndsAt          uint64
	Weekly          uint256.Int
	RolledOver      uint256.Int `doc:"into this epoch"` // into this epoch
	DealBudget7     uint256.Int
	DealBudget21    uint256.Int
	LiquidityBudget uint256.Int
	Reserved7       uint256.Int
	Reserved21      uint256.Int
	Released        uint256.Int
	Rates           *EpochRates  // nil until they are set
	Unspent         *uint256.Int `doc:"carried on at its close; null until then"` // what it carried on at its close; nil until then
}

// EpochRates is what an epoch grants to a deal.
type EpochRates struct {
	Rate7            uint256.Int `doc:"1e18 = 1; null until rates are set"` // value of the reward per value of the price, 1e18 = 1
	Rate21           uint256.Int
	PriceUSDGPerSTKN uint256.Int `doc:"of a whole sTKN, 1e18 = 1 USDG"` // of a whole sTKN, 1e18 = 1 USDG
	LenderShareBps   uint16
}

// Burn is USDG turned into burned sTKN.
//
//entity:topic 33 block and log index
//entity:doc USDG turned into burned sTKN.
type Burn struct {
	Caller      common.Address
	USDGSpent   uint256.Int // raw USDG
	TKNBought   uint256.Int // wei of TKN
	STKNBurned  uint256.Int
	At          uint64
	Tx          common.Hash
	Block       uint64 `avro:"-"`
	LogIndex    uint32
	BurnedAfter uint256.Int `doc:"sTKN burned by all burns of this partition up to and with this one"` // sTKN burned by all burns of its partition up to and with this one
}
