// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IERC721} from "@openzeppelin/contracts/token/ERC721/IERC721.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {IPoolManager} from "@uniswap/v4-core/src/interfaces/IPoolManager.sol";
import {StateLibrary} from "@uniswap/v4-core/src/libraries/StateLibrary.sol";
import {PoolId} from "@uniswap/v4-core/src/types/PoolId.sol";
import {PoolKey} from "@uniswap/v4-core/src/types/PoolKey.sol";
import {IPositionManager} from "@uniswap/v4-periphery/src/interfaces/IPositionManager.sol";
import {PositionInfo} from "@uniswap/v4-periphery/src/libraries/PositionInfoLibrary.sol";

import {DripSource, ILiquidityStaking} from "./IMarket.sol";
import {RewardDistributor} from "./RewardDistributor.sol";

/// Shares emissions and creator fees among the staked positions of one pool, by weight.
///
/// A position weighs its liquidity while the pool's tick lies in its range, else nothing, as of its last checkpoint;
/// anybody may checkpoint any position. The seeder's positions weigh nothing and stay for good: they are the floor
/// under the pool's price.
///
/// Invariants:
///  1. totalWeight = the sum of the weights of all stakes.
///  2. Emissions earned <= emissions notified, and creator fees earned <= fees received: each division rounds down.
///  3. Unstaking moves no token but the position: emissions become a drip and fees a credit.
contract LiquidityStaking is ILiquidityStaking, Ownable2Step, ReentrancyGuard {
    using SafeERC20 for IERC20;
    using StateLibrary for IPoolManager;

    struct Stake {
        address owner;
        int24 tickLower;
        int24 tickUpper;
        bool isSeed;
        uint128 liquidity;
        uint128 weight;
        uint256 emissionsPaidX128;
        uint256 feesPaidX128;
        uint256 emissionsEarned;
        uint256 feesEarned;
    }

    uint256 internal constant Q128 = 1 << 128;
    uint40 internal constant DRIP_LENGTH = 7 days;

    IPoolManager public immutable poolManager;
    IPositionManager public immutable positionManager;
    RewardDistributor public immutable distributor;
    IERC20 public immutable feeToken;
    address public immutable seeder;
    PoolId public immutable poolId;

    address public controller;
    uint32 public epoch; // of the last notification
    uint40 public periodFinish;
    uint40 public accruedAt;
    uint256 public ratePerSecond;
    uint256 public undistributed; // accrued while nothing had weight
    uint256 public totalWeight;
    uint256 public emissionsPerWeightX128;
    uint256 public feesPerWeightX128;
    mapping(address account => uint256) public feeCredits;

    mapping(uint256 tokenId => Stake) internal _stakes;

    constructor(
        address owner_,
        IPoolManager poolManager_,
        IPositionManager positionManager_,
        PoolKey memory key,
        RewardDistributor distributor_,
        IERC20 feeToken_,
        address seeder_
    ) Ownable(owner_) {
        poolManager = poolManager_;
        positionManager = positionManager_;
        poolId = key.toId();
        distributor = distributor_;
        feeToken = feeToken_;
        seeder = seeder_;
    }

    function setController(address controller_) external onlyOwner {
        controller = controller_;
    }

    function stakes(uint256 tokenId) external view returns (Stake memory) {
        return _stakes[tokenId];
    }

    // Rewards in

    /// Spreads amount, what is left of the last period and what nobody earned evenly until finish.
    function notifyEmissions(uint32 epoch_, uint256 amount, uint40 finish) external {
        if (msg.sender != controller) revert NotController();
        if (finish <= block.timestamp) revert InvalidPeriod();
        _accrue();
        uint256 left = periodFinish > block.timestamp ? (periodFinish - block.timestamp) * ratePerSecond : 0;
        uint256 total = amount + left + undistributed;
        uint256 length = finish - block.timestamp;
        ratePerSecond = total / length;
        undistributed = total % length; // carried, not lost
        periodFinish = finish;
        epoch = epoch_;
        emit EmissionsNotified(PoolId.unwrap(poolId), epoch_, amount, ratePerSecond, finish);
    }

    /// A gift to the positions in range, from anybody.
    function notifyCreatorFees(uint256 amount) external nonReentrant {
        if (totalWeight == 0) revert NoWeight();
        uint256 before = feeToken.balanceOf(address(this));
        feeToken.safeTransferFrom(msg.sender, address(this), amount);
        uint256 received = feeToken.balanceOf(address(this)) - before;
        feesPerWeightX128 += Math.mulDiv(received, Q128, totalWeight);
        emit CreatorFeesNotified(PoolId.unwrap(poolId), msg.sender, received, feesPerWeightX128);
    }

    // Positions

    function stake(uint256 tokenId) external nonReentrant {
        IERC721(address(positionManager)).transferFrom(msg.sender, address(this), tokenId);
        (PoolKey memory key, PositionInfo info) = positionManager.getPoolAndPositionInfo(tokenId);
        if (PoolId.unwrap(key.toId()) != PoolId.unwrap(poolId)) revert WrongPool(tokenId);
        uint128 liquidity = positionManager.getPositionLiquidity(tokenId);
        if (liquidity == 0) revert NoWeight();
        _accrue();
        Stake storage s = _stakes[tokenId];
        s.owner = msg.sender;
        s.tickLower = info.tickLower();
        s.tickUpper = info.tickUpper();
        s.isSeed = msg.sender == seeder;
        s.liquidity = liquidity;
        s.emissionsPaidX128 = emissionsPerWeightX128;
        s.feesPaidX128 = feesPerWeightX128;
        bool inRange = _reweigh(s);
        emit PositionStaked(
            PoolId.unwrap(poolId), tokenId, msg.sender, s.tickLower, s.tickUpper,
            liquidity, s.weight, totalWeight, inRange, s.isSeed, uint40(block.timestamp)
        );
    }

    function checkpoint(uint256 tokenId) external nonReentrant {
        _checkpoint(tokenId, _stake(tokenId));
    }

    /// Books what the position earned: emissions as a drip, fees as a credit.
    function claim(uint256 tokenId) external nonReentrant {
        Stake storage s = _ownStake(tokenId);
        _checkpoint(tokenId, s);
        _pay(tokenId, s);
    }

    function unstake(uint256 tokenId) external nonReentrant {
        Stake storage s = _ownStake(tokenId);
        if (s.isSeed) revert SeedStays(tokenId);
        _checkpoint(tokenId, s);
        _pay(tokenId, s);
        totalWeight -= s.weight;
        delete _stakes[tokenId];
        emit PositionUnstaked(PoolId.unwrap(poolId), tokenId, msg.sender, totalWeight, uint40(block.timestamp));
        IERC721(address(positionManager)).transferFrom(address(this), msg.sender, tokenId);
    }

    function withdrawFees(address to) external nonReentrant {
        uint256 amount = feeCredits[msg.sender];
        if (amount == 0) revert NoFees();
        delete feeCredits[msg.sender];
        feeToken.safeTransfer(to, amount);
    }

    // Books

    function _stake(uint256 tokenId) internal view returns (Stake storage s) {
        s = _stakes[tokenId];
        if (s.owner == address(0)) revert NotStaked(tokenId);
    }

    function _ownStake(uint256 tokenId) internal view returns (Stake storage s) {
        s = _stake(tokenId);
        if (s.owner != msg.sender) revert NotStakeOwner(tokenId);
    }

    function _accrue() internal {
        uint256 to = Math.min(block.timestamp, periodFinish);
        if (to > accruedAt) {
            uint256 amount = (to - accruedAt) * ratePerSecond;
            if (totalWeight == 0) undistributed += amount;
            else emissionsPerWeightX128 += Math.mulDiv(amount, Q128, totalWeight);
        }
        accruedAt = uint40(block.timestamp);
    }

    /// Earned at the old weight up to now, then weighed anew.
    function _checkpoint(uint256 tokenId, Stake storage s) internal {
        _accrue();
        s.emissionsEarned += Math.mulDiv(s.weight, emissionsPerWeightX128 - s.emissionsPaidX128, Q128);
        s.feesEarned += Math.mulDiv(s.weight, feesPerWeightX128 - s.feesPaidX128, Q128);
        s.emissionsPaidX128 = emissionsPerWeightX128;
        s.feesPaidX128 = feesPerWeightX128;
        bool inRange = _reweigh(s);
        emit PositionCheckpointed(
            PoolId.unwrap(poolId), tokenId, s.liquidity, s.weight, totalWeight,
            inRange, s.emissionsEarned, s.feesEarned, uint40(block.timestamp)
        );
    }

    function _reweigh(Stake storage s) internal returns (bool inRange) {
        (, int24 tick,,) = poolManager.getSlot0(poolId);
        inRange = s.tickLower <= tick && tick < s.tickUpper;
        uint128 weight = inRange && !s.isSeed ? s.liquidity : 0;
        totalWeight = totalWeight - s.weight + weight;
        s.weight = weight;
    }

    function _pay(uint256 tokenId, Stake storage s) internal {
        uint256 emissions = s.emissionsEarned;
        uint256 fees = s.feesEarned;
        if (emissions != 0) {
            s.emissionsEarned = 0;
            uint256 dripId = distributor.create(s.owner, 0, DripSource.LP, tokenId, epoch, emissions, DRIP_LENGTH, 0);
            emit EmissionsClaimed(PoolId.unwrap(poolId), tokenId, s.owner, emissions, dripId);
        }
        if (fees != 0) {
            s.feesEarned = 0;
            feeCredits[s.owner] += fees;
            emit CreatorFeeClaimed(PoolId.unwrap(poolId), tokenId, s.owner, fees);
        }
    }
}
