package contracts

import "github.com/ethereum/go-ethereum/common"

// The words count the arguments that are not indexed, in the order of the declaration in src/IMarket.sol.
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

var registryEvents = []eventSpec{
	{signature: "AssetSet(address,uint8,uint8,bool,uint8,uint256,uint256,uint256,string,string)", topics: 3, words: 8, strings: true, read: readAssetSet},
	{signature: "OpenRawChanged(address,uint256)", topics: 2, words: 1, read: readOpenRawChanged},
	{signature: "PoolSet(bytes32,bool,uint128,uint128)", topics: 2, words: 3, read: readPoolSet},
	{signature: "VaultSet(address)", topics: 1, words: 1, read: readVaultSet},
}

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

func readAssetSet(w *words, _ common.Address) Event {
	return &AssetSet{
		Token:      w.topicAddress(),
		Kind:       Kind(w.enum(uint8(KindPosition))),
		Lane:       Lane(w.topicEnum(uint8(LanePosition))),
		Allowed:    w.bool(),
		Decimals:   w.uint8(),
		MinAmount:  w.uint256(),
		MaxDealRaw: w.uint256(),
		MaxOpenRaw: w.uint256(),
		Symbol:     w.string(),
		TokenName:  w.string(),
	}
}

func readOpenRawChanged(w *words, _ common.Address) Event {
	return &OpenRawChanged{
		Token:   w.topicAddress(),
		OpenRaw: w.uint256(),
	}
}

func readPoolSet(w *words, _ common.Address) Event {
	return &PoolSet{
		PoolID:       w.topicHash(),
		Allowed:      w.bool(),
		MinLiquidity: w.uint128(),
		MaxLiquidity: w.uint128(),
	}
}
