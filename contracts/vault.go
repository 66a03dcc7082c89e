package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// vaultEvents are the DealVault's: of deals, of accounts, then of the vault itself.
var vaultEvents = []eventSpec{
	{signature: "DealListed(uint256,address,address,uint8,uint8,uint256,uint128,uint128,uint32,uint40,uint40,uint16,bytes32)", topics: 4, words: 10, read: readDealListed},
	{signature: "DealTermsUpdated(uint256,uint128,uint128,uint32,uint40,bytes32)", topics: 2, words: 5, read: readDealTermsUpdated},
	{signature: "DealFunded(uint256,address,uint256,uint128,uint128,uint128,uint40,uint40,uint40,bytes32)", topics: 4, words: 7, read: readDealFunded},
	{signature: "DealReclaimed(uint256,address,address,uint128,uint40)", topics: 4, words: 2, read: readDealReclaimed},
	{signature: "DealClaimed(uint256,address,address,uint40)", topics: 4, words: 1, read: readDealClaimed},
	{signature: "DealCancelled(uint256,address,uint40)", topics: 3, words: 1, read: readDealCancelled},
	{signature: "BidPlaced(uint256,uint256,address,uint128,uint40,uint40,bytes32)", topics: 4, words: 4, read: readBidPlaced},
	{signature: "BidWithdrawn(uint256,uint256,address,uint128,uint40)", topics: 4, words: 2, read: readBidWithdrawn},
	{signature: "BidAccepted(uint256,uint256,address,uint128,uint40)", topics: 4, words: 2, read: readBidAccepted},
	{signature: "Credited(address,address,uint256,uint8,uint256,uint8)", topics: 4, words: 3, read: readCredited},
	{signature: "Withdrawn(address,address,address,uint8,uint256)", topics: 4, words: 2, read: readWithdrawn},
	{signature: "FeeSet(uint16,address)", topics: 1, words: 2, read: readFeeSet},
	{signature: "RewardsSet(address)", topics: 1, words: 1, read: readRewardsSet},
	{signature: "Paused(address)", topics: 1, words: 1, read: readVaultPaused},
	{signature: "Unpaused(address)", topics: 1, words: 1, read: readVaultUnpaused},
}

// Events of the DealVault.
type (
	DealListed struct {
		DealID          uint256.Int
		Borrower        common.Address
		Token           common.Address
		Kind            Kind
		Lane            Lane
		AmountOrTokenID uint256.Int
		Cap             uint256.Int
		MinPrice        uint256.Int
		Term            uint32
		ListingExpiry   uint64
		ListedAt        uint64
		FeeBps          uint16
		TermsHash       common.Hash
	}
	DealTermsUpdated struct {
		DealID        uint256.Int
		Cap           uint256.Int
		MinPrice      uint256.Int
		Term          uint32
		ListingExpiry uint64
		TermsHash     common.Hash
	}
	DealFunded struct {
		DealID    uint256.Int
		Lender    common.Address
		BidID     uint256.Int // 0: funded at the asking price
		Price     uint256.Int
		Fee       uint256.Int
		Proceeds  uint256.Int
		FundedAt  uint64
		Expiry    uint64
		GraceEnd  uint64
		TermsHash common.Hash
	}
	DealReclaimed struct {
		DealID   uint256.Int
		Borrower common.Address
		Lender   common.Address
		Repaid   uint256.Int
		At       uint64
	}
	DealClaimed struct {
		DealID   uint256.Int
		Lender   common.Address
		Borrower common.Address
		At       uint64
	}
	DealCancelled struct {
		DealID   uint256.Int
		Borrower common.Address
		At       uint64
	}
	BidPlaced struct {
		DealID    uint256.Int
		BidID     uint256.Int
		Lender    common.Address
		Price     uint256.Int
		Expiry    uint64
		PlacedAt  uint64
		TermsHash common.Hash
	}
	BidWithdrawn struct {
		DealID uint256.Int
		BidID  uint256.Int
		Lender common.Address
		Price  uint256.Int
		At     uint64
	}
	BidAccepted struct {
		DealID uint256.Int
		BidID  uint256.Int
		Lender common.Address
		Price  uint256.Int
		At     uint64
	}
	Credited struct {
		Account         common.Address
		Asset           common.Address
		DealID          uint256.Int
		Kind            BalanceKind
		AmountOrTokenID uint256.Int
		Reason          CreditReason
	}
	Withdrawn struct {
		Account         common.Address
		Asset           common.Address
		To              common.Address
		Kind            BalanceKind
		AmountOrTokenID uint256.Int
	}
	FeeSet struct {
		Vault        common.Address
		FeeBps       uint16
		FeeRecipient common.Address
	}
	RewardsSet struct {
		Vault   common.Address
		Rewards common.Address
	}
	VaultPaused struct {
		Vault   common.Address
		Account common.Address // who paused or unpaused it
	}
	VaultUnpaused struct {
		Vault   common.Address
		Account common.Address // who paused or unpaused it
	}
)

func (e *DealListed) Entity() Entity       { return DealEntity(&e.DealID) }
func (e *DealTermsUpdated) Entity() Entity { return DealEntity(&e.DealID) }
func (e *DealFunded) Entity() Entity       { return DealEntity(&e.DealID) }
func (e *DealReclaimed) Entity() Entity    { return DealEntity(&e.DealID) }
func (e *DealClaimed) Entity() Entity      { return DealEntity(&e.DealID) }
func (e *DealCancelled) Entity() Entity    { return DealEntity(&e.DealID) }
func (e *BidPlaced) Entity() Entity        { return DealEntity(&e.DealID) }
func (e *BidWithdrawn) Entity() Entity     { return DealEntity(&e.DealID) }
func (e *BidAccepted) Entity() Entity      { return DealEntity(&e.DealID) }
func (e *Credited) Entity() Entity         { return AccountEntity(e.Account) }
func (e *Withdrawn) Entity() Entity        { return AccountEntity(e.Account) }
func (e *FeeSet) Entity() Entity           { return contract(e.Vault) }
func (e *RewardsSet) Entity() Entity       { return contract(e.Vault) }
func (e *VaultPaused) Entity() Entity      { return contract(e.Vault) }
func (e *VaultUnpaused) Entity() Entity    { return contract(e.Vault) }

func (*DealListed) Name() string       { return "DealListed" }
func (*DealTermsUpdated) Name() string { return "DealTermsUpdated" }
func (*DealFunded) Name() string       { return "DealFunded" }
func (*DealReclaimed) Name() string    { return "DealReclaimed" }
func (*DealClaimed) Name() string      { return "DealClaimed" }
func (*DealCancelled) Name() string    { return "DealCancelled" }
func (*BidPlaced) Name() string        { return "BidPlaced" }
func (*BidWithdrawn) Name() string     { return "BidWithdrawn" }
func (*BidAccepted) Name() string      { return "BidAccepted" }
func (*Credited) Name() string         { return "Credited" }
func (*Withdrawn) Name() string        { return "Withdrawn" }
func (*FeeSet) Name() string           { return "FeeSet" }
func (*RewardsSet) Name() string       { return "RewardsSet" }
func (*VaultPaused) Name() string      { return "VaultPaused" }
func (*VaultUnpaused) Name() string    { return "VaultUnpaused" }

func readDealListed(w *words, _ common.Address) Event {
	return &DealListed{
		DealID:          w.topicNumber(),
		Borrower:        w.topicAddress(),
		Token:           w.topicAddress(),
		Kind:            Kind(w.enum(uint8(KindPosition))),
		Lane:            Lane(w.enum(uint8(LanePosition))),
		AmountOrTokenID: w.uint256(),
		Cap:             w.uint128(),
		MinPrice:        w.uint128(),
		Term:            w.uint32(),
		ListingExpiry:   w.uint40(),
		ListedAt:        w.uint40(),
		FeeBps:          w.uint16(),
		TermsHash:       w.bytes32(),
	}
}

func readDealTermsUpdated(w *words, _ common.Address) Event {
	return &DealTermsUpdated{
		DealID:        w.topicNumber(),
		Cap:           w.uint128(),
		MinPrice:      w.uint128(),
		Term:          w.uint32(),
		ListingExpiry: w.uint40(),
		TermsHash:     w.bytes32(),
	}
}

func readDealFunded(w *words, _ common.Address) Event {
	return &DealFunded{
		DealID:    w.topicNumber(),
		Lender:    w.topicAddress(),
		BidID:     w.topicNumber(),
		Price:     w.uint128(),
		Fee:       w.uint128(),
		Proceeds:  w.uint128(),
		FundedAt:  w.uint40(),
		Expiry:    w.uint40(),
		GraceEnd:  w.uint40(),
		TermsHash: w.bytes32(),
	}
}

func readDealReclaimed(w *words, _ common.Address) Event {
	return &DealReclaimed{
		DealID:   w.topicNumber(),
		Borrower: w.topicAddress(),
		Lender:   w.topicAddress(),
		Repaid:   w.uint128(),
		At:       w.uint40(),
	}
}

func readDealClaimed(w *words, _ common.Address) Event {
	return &DealClaimed{
		DealID:   w.topicNumber(),
		Lender:   w.topicAddress(),
		Borrower: w.topicAddress(),
		At:       w.uint40(),
	}
}

func readDealCancelled(w *words, _ common.Address) Event {
	return &DealCancelled{
		DealID:   w.topicNumber(),
		Borrower: w.topicAddress(),
		At:       w.uint40(),
	}
}

func readBidPlaced(w *words, _ common.Address) Event {
	return &BidPlaced{
		DealID:    w.topicNumber(),
		BidID:     w.topicNumber(),
		Lender:    w.topicAddress(),
		Price:     w.uint128(),
		Expiry:    w.uint40(),
		PlacedAt:  w.uint40(),
		TermsHash: w.bytes32(),
	}
}

func readBidWithdrawn(w *words, _ common.Address) Event {
	return &BidWithdrawn{
		DealID: w.topicNumber(),
		BidID:  w.topicNumber(),
		Lender: w.topicAddress(),
		Price:  w.uint128(),
		At:     w.uint40(),
	}
}

func readBidAccepted(w *words, _ common.Address) Event {
	return &BidAccepted{
		DealID: w.topicNumber(),
		BidID:  w.topicNumber(),
		Lender: w.topicAddress(),
		Price:  w.uint128(),
		At:     w.uint40(),
	}
}

func readCredited(w *words, _ common.Address) Event {
	return &Credited{
		Account:         w.topicAddress(),
		Asset:           w.topicAddress(),
		DealID:          w.topicNumber(),
		Kind:            BalanceKind(w.enum(uint8(BalanceNFT))),
		AmountOrTokenID: w.uint256(),
		Reason:          CreditReason(w.enum(uint8(CreditFee))),
	}
}

func readWithdrawn(w *words, _ common.Address) Event {
	return &Withdrawn{
		Account:         w.topicAddress(),
		Asset:           w.topicAddress(),
		To:              w.topicAddress(),
		Kind:            BalanceKind(w.enum(uint8(BalanceNFT))),
		AmountOrTokenID: w.uint256(),
	}
}

func readFeeSet(w *words, address common.Address) Event {
	return &FeeSet{
		Vault:        address,
		FeeBps:       w.uint16(),
		FeeRecipient: w.address(),
	}
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
