package topics

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

// The entities: rows of the state, messages of the ent topics, and what the serving nodes read.
// AppendBinary and UnmarshalBinary are the compact form in Pebble, the changelogs and the read API.

// Deal is a deal as of a block. What depends on time (an expired listing, expired bids) is not in it.
//
//entity:topic 10 deal ID
//entity:doc The latest row of a deal. Amounts are decimal strings of raw units.
type Deal struct {
	ID              uint256.Int `avro:"deal_id"`
	Borrower        common.Address
	Kind            contracts.Kind
	Lane            contracts.Lane
	State           contracts.DealState
	Token           common.Address
	AmountOrTokenID uint256.Int
	Cap             uint256.Int
	MinPrice        uint256.Int
	Term            uint32 `doc:"seconds"`
	FeeBps          uint16
	ListingExpiry   uint64 `doc:"0: open-ended"`
	ListedAt        uint64
	TermsHash       common.Hash // of the current terms
	TxListed        common.Hash
	Funding         *Funding    // nil until funded
	TxSettled       common.Hash `zero:"null"` // zero until reclaimed, claimed or cancelled
	OpenBids        uint32      // bids in OPEN, whatever their expiry and terms
}

// Funding is what a deal gains when a lender funds it.
type Funding struct {
	Lender   common.Address
	Price    uint256.Int
	Fee      uint256.Int
	FundedAt uint64
	Expiry   uint64
	GraceEnd uint64
	Tx       common.Hash `avro:"tx_funded"`
}

// Bid is a bid on a deal.
//
//entity:topic 11 bid ID
//entity:doc The latest row of a bid.
type Bid struct {
	ID        uint256.Int `avro:"bid_id"`
	DealID    uint256.Int
	Lender    common.Address
	Price     uint256.Int
	Expiry    uint64
	PlacedAt  uint64
	State     contracts.BidState
	TermsHash common.Hash // of the terms that it was made on
	Tx        common.Hash
}

// Balance is a credit of the vault: what an account can withdraw now. An NFT is a balance of its own.
//
//entity:topic 12 account and asset
//entity:doc What an account can withdraw from the vault.
type Balance struct {
	Account common.Address
	Asset   common.Address
	Kind    contracts.BalanceKind
	Amount  uint256.Int `avro:"amount_or_token_id"` // raw units; the token ID for an NFT
}

// Asset is a token of the registry. The multiplier that holds depends on time: see rules.Multipliers.
//
//entity:topic 13 token
//entity:doc The latest row of a token of the registry.
type Asset struct {
	Token           common.Address
	Symbol          string
	Name            string
	Decimals        uint8
	Kind            contracts.Kind
	Lane            contracts.Lane
	Allowed         bool
	MinAmount       uint256.Int
	MaxDealRaw      uint256.Int
	MaxOpenRaw      uint256.Int
	OpenRaw         uint256.Int
	UIMultiplier    *uint256.Int // as probed; nil: the token has none
	NewUIMultiplier *uint256.Int
	EffectiveAt     *uint64
	Paused          *bool
}
