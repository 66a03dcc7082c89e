package contracts

import "github.com/ethereum/go-ethereum/common"

// ownedEvents are emitted by every contract of ours.
var ownedEvents = []eventSpec{
	{signature: "OwnershipTransferStarted(address,address)", topics: 3, words: 0, read: readOwnershipTransferStarted},
	{signature: "OwnershipTransferred(address,address)", topics: 3, words: 0, read: readOwnershipTransferred},
}

func readOwnershipTransferStarted(w *words, address common.Address) Event {
	return &OwnershipTransferStarted{Contract: address, PreviousOwner: w.topicAddress(), NewOwner: w.topicAddress()}
}

func readOwnershipTransferred(w *words, address common.Address) Event {
	return &OwnershipTransferred{Contract: address, PreviousOwner: w.topicAddress(), NewOwner: w.topicAddress()}
}

func readRewardsSet(w *words, address common.Address) Event {
	return &RewardsSet{Vault: address, Rewards: w.address()}
}

func readVaultPaused(w *words, address common.Address) Event {
	return &VaultPaused{Vault: address, Account: w.address()}
}

func readVaultUnpaused(w *words, address common.Address) Event {
	return &VaultUnpaused{Vault: address, Account: w.address()}
}

func readVaultSet(w *words, address common.Address) Event {
	return &VaultSet{Registry: address, Vault: w.address()}
}

func readSourceSet(w *words, address common.Address) Event {
	return &SourceSet{Distributor: address, Source: w.address(), Allowed: w.bool()}
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
