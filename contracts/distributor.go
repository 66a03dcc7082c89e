package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// distributorEvents are the RewardDistributor's.
var distributorEvents = []eventSpec{
	{signature: "DripCreated(address,uint256,uint256,uint8,uint256,uint32,uint256,uint40,uint40,uint40)", topics: 4, words: 7, read: readDripCreated},
	{signature: "DripCut(address,uint256,uint40,uint256,uint256)", topics: 3, words: 3, read: readDripCut},
	{signature: "DripClaimed(address,uint256,address,uint256,uint256)", topics: 3, words: 3, read: readDripClaimed},
	{signature: "SourceSet(address,bool)", topics: 1, words: 2, read: readSourceSet},
}

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
	SourceSet struct {
		Distributor common.Address
		Source      common.Address
		Allowed     bool
	}
)

func (e *DripCreated) Entity() Entity { return AccountEntity(e.Account) }
func (e *DripCut) Entity() Entity     { return AccountEntity(e.Account) }
func (e *DripClaimed) Entity() Entity { return AccountEntity(e.Account) }
func (e *SourceSet) Entity() Entity   { return contract(e.Distributor) }

func (*DripCreated) Name() string { return "DripCreated" }
func (*DripCut) Name() string     { return "DripCut" }
func (*DripClaimed) Name() string { return "DripClaimed" }
func (*SourceSet) Name() string   { return "SourceSet" }

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

func readSourceSet(w *words, address common.Address) Event {
	return &SourceSet{Distributor: address, Source: w.address(), Allowed: w.bool()}
}
