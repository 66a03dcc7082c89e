// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

// The market's interfaces. One event concerns one entity, and that entity's ID is its first, indexed
// parameter: the ingester routes a log by it. What truly concerns two entities is emitted as two events.

enum Kind { ERC20, AMMV4_POSITION }
enum Lane { STOCK, ETH, MEME, POSITION }
enum DealState { LISTED, FUNDED, RECLAIMED, CLAIMED, CANCELLED }
enum BidState { OPEN, WITHDRAWN, ACCEPTED }
enum BalanceKind { USDG, ERC20, NFT }
enum CreditReason { PROCEEDS, BID_REFUND, REPAYMENT, COLLATERAL_RETURN, COLLATERAL_CLAIM, FEE }
enum DripSource { DEAL, LP }

struct Deal {
    address borrower; uint40 listedAt; uint32 term; Kind kind; DealState state; Lane lane; uint16 feeBps;
    address token; uint40 listingExpiry; uint40 fundedAt;
    uint256 amountOrTokenId;
    uint128 cap; uint128 minPrice;
    address lender;
    uint128 price; uint128 fee;
}
struct Bid { uint256 dealId; address lender; uint40 expiry; uint40 placedAt; BidState state; uint128 price; bytes32 termsHash; }

interface IDealVault {
    // Entity: the deal.
    event DealListed(
        uint256 indexed dealId, address indexed borrower, address indexed token,
        Kind kind, Lane lane, uint256 amountOrTokenId, uint128 cap, uint128 minPrice,
        uint32 term, uint40 listingExpiry, uint40 listedAt, uint16 feeBps, bytes32 termsHash);
    event DealTermsUpdated(uint256 indexed dealId, uint128 cap, uint128 minPrice, uint32 term, uint40 listingExpiry, bytes32 termsHash);
    event DealFunded(
        uint256 indexed dealId, address indexed lender, uint256 indexed bidId, // bidId 0: funded at the asking price
        uint128 price, uint128 fee, uint128 proceeds, uint40 fundedAt, uint40 expiry, uint40 graceEnd, bytes32 termsHash);
    event DealReclaimed(uint256 indexed dealId, address indexed borrower, address indexed lender, uint128 repaid, uint40 at);
    event DealClaimed(uint256 indexed dealId, address indexed lender, address indexed borrower, uint40 at);
    event DealCancelled(uint256 indexed dealId, address indexed borrower, uint40 at);
    event BidPlaced(uint256 indexed dealId, uint256 indexed bidId, address indexed lender, uint128 price, uint40 expiry, uint40 placedAt, bytes32 termsHash);
    event BidWithdrawn(uint256 indexed dealId, uint256 indexed bidId, address indexed lender, uint128 price, uint40 at);
    event BidAccepted(uint256 indexed dealId, uint256 indexed bidId, address indexed lender, uint128 price, uint40 at);
    // Entity: the account.
    event Credited(address indexed account, address indexed asset, uint256 indexed dealId, BalanceKind kind, uint256 amountOrTokenId, CreditReason reason);
    event Withdrawn(address indexed account, address indexed asset, address indexed to, BalanceKind kind, uint256 amountOrTokenId);
    // Entity: the vault itself.
    event FeeSet(uint16 feeBps, address feeRecipient);
    event RewardsSet(address rewards);

    error DealNotFound(uint256 dealId);
    error TermsChanged(bytes32 expected, bytes32 actual);
    error PriceChanged(uint128 expected, uint128 actual);
    error FeeChanged(uint16 expected, uint16 actual);
    error NotFundable(uint256 dealId, DealState state);
    error ListingExpired(uint256 dealId);
    error BidNotOpen(uint256 bidId);
    error BidExpired(uint256 bidId);
    error GraceNotOver(uint40 graceEnd);
    error GraceOver(uint40 graceEnd);
    error NotBorrower();
    error NotLender();
    error NothingToWithdraw();
    error UnsupportedTerm(uint32 term);
    error AssetNotAllowed(address token);
    error AmountOutOfRange();
    error FeeOnTransfer();
    error InsufficientGas();
    error InvalidRecipient(address to);

    function GRACE() external view returns (uint40);
    function usdg() external view returns (address);
    function registry() external view returns (address);
    function rewards() external view returns (address);
    function feeBps() external view returns (uint16);
    function nextDealId() external view returns (uint256);
    function nextBidId() external view returns (uint256);
    function supportedTerms() external view returns (uint32[] memory);
    function deals(uint256 id) external view returns (Deal memory);
    function bids(uint256 id) external view returns (Bid memory);
    function termsHash(uint256 id) external view returns (bytes32);
    function credits(address account, address asset) external view returns (uint256);
    function nftCredits(address asset, uint256 tokenId) external view returns (address);

    function list(Kind kind, address token, uint256 amountOrTokenId, uint128 cap, uint128 minPrice, uint32 term, uint40 listingExpiry, uint16 expectedFeeBps) external returns (uint256 id);
    function updateTerms(uint256 id, uint128 cap, uint128 minPrice, uint32 term, uint40 listingExpiry) external;
    function cancel(uint256 id, bytes32 expectedTerms) external;
    function fund(uint256 id, bytes32 expectedTerms) external;
    function bid(uint256 id, uint128 price, uint40 expiry, bytes32 expectedTerms) external returns (uint256 bidId);
    function withdrawBid(uint256 bidId, bytes32 expectedTerms, uint128 expectedPrice) external;
    function acceptBid(uint256 bidId, bytes32 expectedTerms, uint128 expectedPrice) external;
    function reclaim(uint256 id, bytes32 expectedTerms) external;
    function claim(uint256 id, bytes32 expectedTerms) external;
    function withdraw(address asset, address to, uint256 amount) external;
    function withdrawNFT(address asset, uint256 tokenId, address to) external;
}

interface IAssetRegistry {
    // Entity: the token.
    event AssetSet(address indexed token, Kind kind, Lane indexed lane, bool allowed, uint8 decimals, uint256 minAmount, uint256 maxDealRaw, uint256 maxOpenRaw, string symbol, string name);
    event OpenRawChanged(address indexed token, uint256 openRaw); // emitted on list and on settle
    // Entity: the pool.
    event PoolSet(bytes32 indexed poolId, bool allowed, uint128 minLiquidity, uint128 maxLiquidity);
    // Entity: the registry itself.
    event VaultSet(address vault);

    error NotVault();
    error InvalidAsset(address token);
    error PoolNotAllowed(bytes32 poolId);
    error PoolHasHooks(bytes32 poolId);
    error PoolFeeDynamic(bytes32 poolId);
    error LiquidityOutOfRange(uint128 liquidity);

    function asset(address token) external view returns (bool allowed, Lane lane, Kind kind, uint256 minAmount, uint256 maxDealRaw, uint256 maxOpenRaw, uint256 openRaw);
    function poolAllowed(bytes32 poolId) external view returns (bool);
    function tokenCount() external view returns (uint256);
    function tokens(uint256 from, uint256 n) external view returns (address[] memory page);
}

interface IEpochController {
    // Entity: the epoch.
    event EpochOpened(uint32 indexed n, uint40 startsAt, uint40 endsAt, uint256 weekly, uint256 dealBudget7, uint256 dealBudget21, uint256 liquidityBudget, uint256 rolledOver);
    event EpochRatesSet(uint32 indexed n, uint256 rate7, uint256 rate21, uint256 priceUSDGPerSTKN, uint16 lenderShareBps);
    event EpochReserved(uint32 indexed n, uint32 term, uint256 granted, uint256 reservedAfter, bool budgetExhausted);
    event EpochReturned(uint32 indexed n, uint32 term, uint256 amount, uint256 reservedAfter);
    event LiquidityReleased(uint32 indexed n, uint256 amount, uint256 releasedAfter);
    event EpochClosed(uint32 indexed n, uint256 released, uint256 rolledOver);
    // Entity: the deal.
    event RewardReserved(uint256 indexed dealId, uint32 indexed n, uint32 term, uint256 wanted, uint256 granted, uint256 lenderAmount, uint256 borrowerAmount, bool budgetExhausted);
    event RewardReturned(uint256 indexed dealId, uint32 indexed n, uint256 amount);

    error NotRewardSource();
    error NoOpenEpoch();
    error EpochNotOver(uint40 endsAt);
    error BudgetExceeded();
    error InvalidRates();
}

interface IRewardDistributor {
    // Entity: the account.
    event DripCreated(address indexed account, uint256 indexed dripId, uint256 indexed dealId, DripSource source, uint256 tokenId, uint32 epoch, uint256 total, uint40 start, uint40 length, uint40 cliff); // length in seconds, cliff a timestamp
    event DripCut(address indexed account, uint256 indexed dripId, uint40 at, uint256 totalAfter, uint256 returned);
    event DripClaimed(address indexed account, uint256 indexed dripId, address to, uint256 amount, uint256 claimedAfter);
    // Entity: the distributor itself.
    event SourceSet(address source, bool allowed);

    error NotSource();
    error InvalidDrip();
    error NotDripOwner(uint256 dripId);
    error NothingToClaim(uint256 dripId);
}

interface ILiquidityStaking {
    // Entity: the pool.
    event PositionStaked(bytes32 indexed poolId, uint256 indexed tokenId, address indexed owner, int24 tickLower, int24 tickUpper, uint128 liquidity, uint256 weight, uint256 totalWeight, bool inRange, bool isSeed, uint40 at);
    event PositionCheckpointed(bytes32 indexed poolId, uint256 indexed tokenId, uint128 liquidity, uint256 weight, uint256 totalWeight, bool inRange, uint256 emissionsEarned, uint256 creatorFeeEarned, uint40 at);
    event PositionUnstaked(bytes32 indexed poolId, uint256 indexed tokenId, address indexed owner, uint256 totalWeight, uint40 at);
    event EmissionsNotified(bytes32 indexed poolId, uint32 indexed epoch, uint256 amount, uint256 ratePerSecond, uint40 periodFinish);
    event CreatorFeesNotified(bytes32 indexed poolId, address indexed from, uint256 amount, uint256 accPerWeightX128);
    event EmissionsClaimed(bytes32 indexed poolId, uint256 indexed tokenId, address indexed owner, uint256 amount, uint256 dripId);
    event CreatorFeeClaimed(bytes32 indexed poolId, uint256 indexed tokenId, address indexed owner, uint256 amount);
    // Entity: the staking contract itself.
    event ControllerSet(address controller);
    event FeesWithdrawn(address indexed account, address to, uint256 amount);
    event EmissionsOwed(address indexed account, uint256 indexed tokenId, uint256 owed); // for which no drip could be made yet

    error NotController();
    error NotPoolManager();
    error NotHook();
    error AmountTooLarge();
    error NothingOwed(uint256 tokenId);
    error InsufficientGas();
    error InvalidPeriod();
    error NoWeight();
    error NoFees();
    error WrongPool(uint256 tokenId);
    error NotStaked(uint256 tokenId);
    error NotStakeOwner(uint256 tokenId);
    error SeedStays(uint256 tokenId);
}

interface IBurner {
    // Entity: the burner's caller.
    event Burned(address indexed caller, uint256 usdgSpent, uint256 tknBought, uint256 stknBurned, uint40 at);

    error NotPoolManager();
    error WrongPools();
    error InvalidAmount();
    error SlippageExceeded(uint256 tknBought, uint256 stknBurned);
}
