package contracts

import (
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// Family is the kind of entity that an event concerns.
type Family uint8

// The families, in the order of their numbers on the wire.
const (
	FamilyUnknown  Family = iota // ID: the address that emitted the log
	FamilyDeal                   // ID: deal ID
	FamilyAccount                // ID: account
	FamilyToken                  // ID: token
	FamilyPool                   // ID: pool ID
	FamilyPosition               // ID: token ID in the PositionManager
	FamilyEpoch                  // ID: epoch number
	FamilyBurner                 // ID: caller
	FamilyContract               // ID: one of our own contracts
)

// Entity names the one thing that an event concerns. It is comparable.
type Entity struct {
	Family Family
	ID     common.Hash // left-padded as in a log's topic
}

// Key is the entity as the key of a Kafka record: "deal:42", "account:0x…", "pool:0x…".
func (e Entity) Key() []byte { return e.AppendKey(nil) }

// AppendKey appends Key to b.
func (e Entity) AppendKey(b []byte) []byte {
	switch e.Family {
	case FamilyDeal:
		return e.appendNumber(append(b, "deal:"...))
	case FamilyPosition:
		return e.appendNumber(append(b, "position:"...))
	case FamilyEpoch:
		return e.appendNumber(append(b, "epoch:"...))
	case FamilyPool:
		return appendHex(append(b, "pool:"...), e.ID[:])
	case FamilyAccount:
		return appendHex(append(b, "account:"...), e.ID[12:])
	case FamilyToken:
		return appendHex(append(b, "token:"...), e.ID[12:])
	case FamilyBurner:
		return appendHex(append(b, "burner:"...), e.ID[12:])
	case FamilyContract:
		return appendHex(append(b, "contract:"...), e.ID[12:])
	default:
		return appendHex(append(b, "unknown:"...), e.ID[12:])
	}
}

func (e Entity) appendNumber(b []byte) []byte {
	n := new(uint256.Int).SetBytes32(e.ID[:])
	if n.IsUint64() {
		return strconv.AppendUint(b, n.Uint64(), 10)
	}
	return append(b, n.Dec()...)
}

func appendHex(b, raw []byte) []byte {
	const digits = "0123456789abcdef"
	b = append(b, "0x"...)
	for _, c := range raw {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return b
}

// Event is a decoded log. Every implementation is a pointer to one of the structs below, named and
// with fields in the order of the Solidity event in src/IMarket.sol.
type Event interface {
	Entity() Entity
	Name() string
}

// Enumerations, with the numbers of the contracts.
type (
	Kind         uint8
	Lane         uint8
	DealState    uint8
	BidState     uint8
	BalanceKind  uint8
	CreditReason uint8
	DripSource   uint8
)

// Values of the enumerations.
const (
	KindERC20 Kind = iota
	KindPosition
)

const (
	LaneStock Lane = iota
	LaneETH
	LaneMeme
	LanePosition
)

const (
	DealListedState DealState = iota
	DealFundedState
	DealReclaimedState
	DealClaimedState
	DealCancelledState
)

const (
	BidOpen BidState = iota
	BidWithdrawnState
	BidAcceptedState
)

const (
	BalanceUSDG BalanceKind = iota
	BalanceERC20
	BalanceNFT
)

const (
	CreditProceeds CreditReason = iota
	CreditBidRefund
	CreditRepayment
	CreditCollateralReturn
	CreditCollateralClaim
	CreditFee
)

const (
	DripDeal DripSource = iota
	DripLP
)

// Events of the DealVault: the deal's, then the account's, then its own.
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

// Events of the AssetRegistry.
type (
	AssetSet struct {
		Token      common.Address
		Kind       Kind
		Lane       Lane
		Allowed    bool
		Decimals   uint8
		MinAmount  uint256.Int
		MaxDealRaw uint256.Int
		MaxOpenRaw uint256.Int
		Symbol     string
		TokenName  string
	}
	OpenRawChanged struct {
		Token   common.Address
		OpenRaw uint256.Int
	}
	PoolSet struct {
		PoolID       common.Hash
		Allowed      bool
		MinLiquidity uint256.Int
		MaxLiquidity uint256.Int
	}
)

// Events of a token. Nothing in them is indexed by token: the entity is the emitting address.
type (
	UIMultiplierUpdated struct {
		Token         common.Address
		OldMultiplier uint256.Int
		NewMultiplier uint256.Int
		EffectiveAt   uint256.Int
	}
	TokenPaused   struct{ Token common.Address }
	TokenUnpaused struct{ Token common.Address }
)

// Events of what an owner changes elsewhere, and of who owns a contract.
type (
	VaultSet struct {
		Registry common.Address
		Vault    common.Address
	}
	SourceSet struct {
		Distributor common.Address
		Source      common.Address
		Allowed     bool
	}
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

// Events of Uniswap v4: the PoolManager's by pool, the PositionManager's Transfer by position.
type (
	PoolInitialized struct {
		PoolID       common.Hash
		Currency0    common.Address
		Currency1    common.Address
		Fee          uint32
		TickSpacing  int32
		Hooks        common.Address
		SqrtPriceX96 uint256.Int
		Tick         int32
	}
	LiquidityModified struct {
		PoolID         common.Hash
		Sender         common.Address
		TickLower      int32
		TickUpper      int32
		LiquidityDelta uint256.Int // two's complement
		Salt           common.Hash
	}
	Swapped struct {
		PoolID       common.Hash
		Sender       common.Address
		Amount0      uint256.Int // two's complement; the swapper's delta, negative = paid in
		Amount1      uint256.Int
		SqrtPriceX96 uint256.Int
		Liquidity    uint256.Int
		Tick         int32
		Fee          uint32
	}
	PositionTransferred struct {
		From    common.Address
		To      common.Address
		TokenID uint256.Int
	}
)

// Unknown is a log that no other type claims: a foreign address, an unknown signature or malformed data.
type Unknown struct {
	Address common.Address
	Reason  string // why, in a few words and of bounded variety: it labels a metric
}
