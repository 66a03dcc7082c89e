package query

import (
	"context"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
)

// MarketReader reads the token layer, the pools and the market as a whole. Without the token layer in the
// deployment its fields are nil, empty or zero, as documented. An answer that spans partitions is as of one
// block, number and hash, on all of them. Amounts are raw units.
type MarketReader interface {
	// DealWithReward returns a deal and the reward of its parties. With ErrNotFound, At is set.
	DealWithReward(ctx context.Context, id *uint256.Int) (Answer[DealWithReward], error)
	// Bids lists the bids on a deal, ascending by ID. ErrNotFound, with At set: there is no such deal.
	Bids(ctx context.Context, q DealListQuery) (Answer[Page[topics.Bid]], error)
	// DealDrips lists the drips of a deal, the newest ID first. ErrNotFound, with At set: there is no such deal.
	DealDrips(ctx context.Context, q DealListQuery) (Answer[Page[Drip]], error)
	// AssetDeals lists all deals ever funded on a token, the last funded first. ErrNotFound, with At set: the
	// registry never set the token.
	AssetDeals(ctx context.Context, q AssetDealsQuery) (Answer[Page[DealWithBids]], error)
	// Portfolio returns everything that a wallet has in the market. It may be empty.
	Portfolio(ctx context.Context, wallet common.Address) (Answer[Portfolio], error)
	// WalletBids lists the bids that a wallet made, in any state, the newest ID first.
	WalletBids(ctx context.Context, q WalletListQuery) (Answer[Page[topics.Bid]], error)
	// WalletBalances lists what a wallet can withdraw: ascending by asset, each followed by its NFTs.
	WalletBalances(ctx context.Context, q WalletListQuery) (Answer[Page[topics.Balance]], error)
	// WalletDrips lists a wallet's drips, the newest ID first.
	WalletDrips(ctx context.Context, q WalletListQuery) (Answer[Page[Drip]], error)
	// Rewards returns a wallet's drips, with the epoch and the pool that they come from.
	Rewards(ctx context.Context, wallet common.Address) (Answer[Rewards], error)
	// Pool returns the sTKN/TKN pool with the latest of what happened in it.
	Pool(ctx context.Context) (Answer[PoolOverview], error)
	// Stakes lists the positions that a wallet has staked, ascending by token ID.
	Stakes(ctx context.Context, q StakesQuery) (Answer[Page[Stake]], error)
	// Positions lists the positions that a wallet holds in the PositionManager, ascending by token ID.
	Positions(ctx context.Context, q PositionsQuery) (Answer[Page[Position]], error)
	// Stats returns figures of the whole market.
	Stats(ctx context.Context) (Answer[Stats], error)
	// History returns the last days, at most MaxDays of them, ascending.
	History(ctx context.Context, days int) (Answer[[]Day], error)
}

// DealWithReward is a deal with its bids and its reward.
type DealWithReward struct {
	DealWithBids
	Reward *Reward // nil: none was ever granted
}

// MaxDrips bounds the drips of a Reward. DealDrips lists all.
const MaxDrips = 200

// Reward is a grant with its drips; a share of zero has no drip.
type Reward struct {
	topics.Reward        // Granted is the total, LenderAmount and BorrowerAmount are the shares
	Drips         []Drip // ascending by ID: the newest
	Truncated     bool   // there are more than MaxDrips
}

// Drip is a drip as of the timestamp of the answer's block.
type Drip struct {
	topics.Drip
	UnlockedNow  uint256.Int // by the contract's formula: Claimed <= UnlockedNow <= Total
	ClaimableNow uint256.Int // UnlockedNow less Claimed
	Curve        []CurvePoint
}

// CurvePoint is a corner of a drip's unlock curve: straight lines connect the points, except that nothing is
// unlocked before the cliff. They ascend by time: start, cliff (unless it is the start), cut (if there was
// one), end.
type CurvePoint struct {
	T        uint64
	Unlocked uint256.Int
}

// AssetDealsQuery asks for the funded deals on a token.
type AssetDealsQuery struct {
	Token common.Address
	After []byte
	Limit int
}

// MaxPortfolio bounds each list of a Portfolio and the drips of Rewards to the newest ones, and the balances to
// the first. Deals, WalletBids, WalletBalances and WalletDrips list all, and the sums include all.
const MaxPortfolio = 1000

// Portfolio is everything that a wallet has in the market.
type Portfolio struct {
	AsBorrower []DealWithBids // the newest ID first
	AsLender   []DealWithBids // the newest ID first
	Bids       []topics.Bid   // made by the wallet, in any state, the newest ID first
	Balances   []topics.Balance
	Drips      []Drip // the newest, ascending by ID
	Summary    Summary
	Truncated  bool // a list has more than MaxPortfolio
}

// Summary sums up all deals of a wallet, in raw USDG.
type Summary struct {
	ReceivedAlready uint256.Int // price minus fee, as borrower, of all deals ever funded
	StillAtStake    uint256.Int // cap, as borrower, of deals in FUNDED
	PaidOut         uint256.Int // price, as lender, of all deals ever funded
	AwaitingExpiry  uint256.Int // cap, as lender, of deals in FUNDED
}

// StakesQuery asks for the positions that a wallet has staked.
type StakesQuery struct {
	Owner common.Address
	After []byte
	Limit int
}

// Stake is a staked position. Weight, emissions and fees are as of its last checkpoint.
type Stake struct {
	topics.Stake             // its InRange is as of the last checkpoint
	InRangeNow   bool        // TickLower <= the pool's tick < TickUpper
	ValueTKN     uint256.Int // wei of TKN: its contents at the pool's price
}

// PositionsQuery asks for the positions that a wallet holds in the PositionManager.
type PositionsQuery struct {
	Owner common.Address
	After []byte
	Limit int
}

// Refusal is the reason why the registry would refuse a position, in the order of its checks.
type Refusal string

// The refusals.
const (
	RefusalNone      Refusal = ""
	RefusalAsset     Refusal = "ASSET_NOT_ALLOWED"      // the registry does not allow positions at all
	RefusalPool      Refusal = "POOL_NOT_ALLOWED"       // nor those of this pool
	RefusalFee       Refusal = "POOL_FEE_DYNAMIC"       // hooks set the fee
	RefusalHooks     Refusal = "POOL_HAS_HOOKS"         // hooks could take its contents
	RefusalLiquidity Refusal = "LIQUIDITY_OUT_OF_RANGE" // of the pool's limits
)

// Position is a position of the PositionManager. Uncollected fees are not in it.
type Position struct {
	topics.PositionLiquidity
	Currency0 common.Address // zero: the chain's own coin
	Currency1 common.Address
	Fee       uint32
	InRange   bool        // TickLower <= the pool's tick < TickUpper
	Amount0   uint256.Int // amounts from removing all liquidity at the pool's price
	Amount1   uint256.Int
	Refusal   Refusal // empty: the registry allows it as collateral
}

// Stats are figures of the whole market, in raw USDG unless stated otherwise.
type Stats struct {
	TVL          TVL
	Fees         Windows
	Volume       Windows // prices of funded deals
	Deals        DealCounts
	Medians      Medians
	Emissions    Emissions
	PriceHistory []PricePoint // ascending, hourly, for the last 7 days as far as the pool had a price

	VolumeHistory []HourOfVolume // ascending, of the last 7 days; the last hour is not over
}

// HourOfVolume is what was funded in an hour, in raw USDG.
type HourOfVolume struct {
	T            uint64      // when it began
	Volume, Fees uint256.Int // as in Windows
}

// TVL is the collateral of LISTED and FUNDED deals at the latest pool prices. A position counts with the tokens
// in it. Each asset's value is rounded down once; the other values are sums of these.
type TVL struct {
	USDG     uint256.Int
	ByLane   [4]uint256.Int   // by contracts.Lane; a position's tokens are in LanePosition
	ByAsset  []AssetValue     // ascending by token, then lane
	Unpriced []common.Address // tokens of ByAsset without a price, contested, or worth more than 256 bits hold, ascending
}

// AssetValue is the collateral in one token. Tokens in positions are listed separately, with LanePosition.
type AssetValue struct {
	Token common.Address
	Lane  contracts.Lane
	Raw   uint256.Int  // raw units of the token
	USDG  *uint256.Int // nil: no price
}

// Windows is a sum over all time, and over the last day and week before the answer's block.
type Windows struct {
	Total, Last24h, Last7d uint256.Int
}

// DealCounts counts deals. Active ones are FUNDED.
type DealCounts struct {
	Total, Active uint64
	ByState       [5]uint64 // by contracts.DealState
}

// Medians are over all deals ever funded, exact: for an even number of deals the mean of the two in the middle,
// rounded down. Nil: no such deal.
type Medians struct {
	CostBps7d         *uint256.Int // (cap-price)*10000/price, of deals of 7 days
	CostBps21d        *uint256.Int // of deals of 21 days
	TimeToFundSeconds *uint256.Int // from listing to funding
}

// Emissions are the rewards of liquidity, in wei of sTKN. Nil: never notified, or there was no epoch.
type Emissions struct {
	RatePerSecond     *uint256.Int // 0 once the period is over
	ReleasedThisEpoch *uint256.Int
}

// PricePoint is the price of sTKN at the end of an hour, or now.
type PricePoint struct {
	T                uint64
	PriceSTKNinTKN   Price
	PriceUSDGPerSTKN *Price // nil: TKN had no price in USDG, or its pools are far apart
}
