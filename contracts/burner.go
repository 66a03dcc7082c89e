package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// burnerEvents are the Burner's.
var burnerEvents = []eventSpec{
	{signature: "Burned(address,uint256,uint256,uint256,uint40)", topics: 2, words: 4, read: readBurned},
}

// Burned is USDG turned into burned sTKN.
type Burned struct {
	Caller     common.Address
	USDGSpent  uint256.Int
	TKNBought  uint256.Int
	STKNBurned uint256.Int
	At         uint64
}

func (e *Burned) Entity() Entity { return addressed("burner", e.Caller) }

func (*Burned) Name() string { return "Burned" }

func readBurned(w *words, _ common.Address) Event {
	return &Burned{
		Caller:     w.topicAddress(),
		USDGSpent:  w.uint256(),
		TKNBought:  w.uint256(),
		STKNBurned: w.uint256(),
		At:         w.uint40(),
	}
}
