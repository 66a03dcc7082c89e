package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// epochEvents are the EpochController's: of epochs, then of deals.
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

// Events of the EpochController.
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

func (e *EpochOpened) Entity() Entity       { return EpochEntity(e.N) }
func (e *EpochRatesSet) Entity() Entity     { return EpochEntity(e.N) }
func (e *EpochReserved) Entity() Entity     { return EpochEntity(e.N) }
func (e *EpochReturned) Entity() Entity     { return EpochEntity(e.N) }
func (e *LiquidityReleased) Entity() Entity { return EpochEntity(e.N) }
func (e *EpochClosed) Entity() Entity       { return EpochEntity(e.N) }
func (e *RewardReserved) Entity() Entity    { return DealEntity(&e.DealID) }
func (e *RewardReturned) Entity() Entity    { return DealEntity(&e.DealID) }

func (*EpochOpened) Name() string       { return "EpochOpened" }
func (*EpochRatesSet) Name() string     { return "EpochRatesSet" }
func (*EpochReserved) Name() string     { return "EpochReserved" }
func (*EpochReturned) Name() string     { return "EpochReturned" }
func (*LiquidityReleased) Name() string { return "LiquidityReleased" }
func (*EpochClosed) Name() string       { return "EpochClosed" }
func (*RewardReserved) Name() string    { return "RewardReserved" }
func (*RewardReturned) Name() string    { return "RewardReturned" }

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
