package contracts

import "github.com/ethereum/go-ethereum/common"

// Event is a decoded log. Every implementation is a pointer to a struct in the file of the contract that emits
// it, named and with fields in the order of the Solidity event in src/IMarket.sol.
type Event interface {
	Entity() Entity // what it concerns
	Name() string   // as the evt topics carry it
}

// Unknown is a log that no other type claims: a foreign address, an unknown signature or malformed data.
type Unknown struct {
	Address common.Address
	Reason  string // why, in a few words and of bounded variety: it labels a metric
}

func (e *Unknown) Entity() Entity { return addressed("unknown", e.Address) }

func (*Unknown) Name() string { return "Unknown" }

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

// The terms of deals, in seconds. Each has its own budget in an epoch.
const (
	ShortTerm = 7 * 24 * 60 * 60
	LongTerm  = 21 * 24 * 60 * 60
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

// The names of the enumerations, in the order of their numbers. They are read-only.
var (
	KindNames         = []string{"ERC20", "AMMV4_POSITION"}
	LaneNames         = []string{"STOCK", "ETH", "MEME", "POSITION"}
	DealStateNames    = []string{"LISTED", "FUNDED", "RECLAIMED", "CLAIMED", "CANCELLED"}
	BidStateNames     = []string{"OPEN", "WITHDRAWN", "ACCEPTED"}
	BalanceKindNames  = []string{"USDG", "ERC20", "NFT"}
	CreditReasonNames = []string{"PROCEEDS", "BID_REFUND", "REPAYMENT", "COLLATERAL_RETURN", "COLLATERAL_CLAIM", "FEE"}
	DripSourceNames   = []string{"DEAL", "LP"}
)
