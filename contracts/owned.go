package contracts

import "github.com/ethereum/go-ethereum/common"

// ownedEvents are emitted by every contract of ours.
var ownedEvents = []eventSpec{
	{signature: "OwnershipTransferStarted(address,address)", topics: 3, words: 0, read: readOwnershipTransferStarted},
	{signature: "OwnershipTransferred(address,address)", topics: 3, words: 0, read: readOwnershipTransferred},
}

// Events about the owner of a contract.
type (
	OwnershipTransferStarted struct {
		Contract      common.Address
		PreviousOwner common.Address
		NewOwner      common.Address
	}
	OwnershipTransferred struct {
		Contract      common.Address
		PreviousOwner common.Address
		NewOwner      common.Address
	}
)

func (e *OwnershipTransferStarted) Entity() Entity { return contract(e.Contract) }
func (e *OwnershipTransferred) Entity() Entity     { return contract(e.Contract) }

func (*OwnershipTransferStarted) Name() string { return "OwnershipTransferStarted" }
func (*OwnershipTransferred) Name() string     { return "OwnershipTransferred" }

func readOwnershipTransferStarted(w *words, address common.Address) Event {
	return &OwnershipTransferStarted{Contract: address, PreviousOwner: w.topicAddress(), NewOwner: w.topicAddress()}
}

func readOwnershipTransferred(w *words, address common.Address) Event {
	return &OwnershipTransferred{Contract: address, PreviousOwner: w.topicAddress(), NewOwner: w.topicAddress()}
}
