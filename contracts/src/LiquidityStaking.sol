// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IERC721} from "@openzeppelin/contracts/token/ERC721/IERC721.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {IPoolManager} from "@uniswap/v4-core/src/interfaces/IPoolManager.sol";
import {IHooks} from "@uniswap/v4-core/src/interfaces/IHooks.sol";
import {Hooks} from "@uniswap/v4-core/src/libraries/Hooks.sol";
import {StateLibrary} from "@uniswap/v4-core/src/libraries/StateLibrary.sol";
import {BalanceDelta} from "@uniswap/v4-core/src/types/BalanceDelta.sol";
import {PoolId} from "@uniswap/v4-core/src/types/PoolId.sol";
import {PoolKey} from "@uniswap/v4-core/src/types/PoolKey.sol";
import {SwapParams} from "@uniswap/v4-core/src/types/PoolOperation.sol";
import {IPositionManager} from "@uniswap/v4-periphery/src/interfaces/IPositionManager.sol";
import {PositionInfo} from "@uniswap/v4-periphery/src/libraries/PositionInfoLibrary.sol";

import {DripSource, ILiquidityStaking} from "./IMarket.sol";
import {RangeGrowth} from "./RangeGrowth.sol";
import {RewardDistributor} from "./RewardDistributor.sol";

/// Shares emissions and creator fees among the staked positions of one pool, by liquidity and time in range.
///
/// It is the pool's hook, told of each swap after it: so it knows for how long the price stood where, and a price that
/// is moved and moved back within a transaction changes nothing. Its address says that it is called after swaps, and
/// for nothing else. The seeder's positions weigh nothing and stay for good: they are the floor under the pool's price.
///
/// Invariants:
///  1. totalWeight = the sum of the weights of all stakes, in range or not.
///  2. Emissions earned <= emissions notified, and creator fees earned <= fees received: each division rounds down.
///  3. Unstaking moves no token but the position, and nothing refuses it: emissions become a drip, or a debt if the
///     distributor makes none, and fees a credit. A claim pays fees whatever the distributor does.
contract LiquidityStaking is ILiquidityStaking, RangeGrowth, Ownable2Step, ReentrancyGuard {
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

    uint40 internal constant DRIP_LENGTH = 7 days;
    /// Creator fees flow for so long, so that whoever comes for a moment gets what flows in a moment.
    uint40 internal constant FEES_LENGTH = 7 days;
    /// Of one notification: a sum of thousands times 2^128 is still below 2^256.
    uint256 internal constant MAX_AMOUNT = type(uint112).max;
    /// Gas for a drip when unstaking or claiming.
    uint256 internal constant DRIP_GAS = 500_000;
    /// What must be left before a claim's drip so that 63/64 of it is at least DRIP_GAS: else the least gas that a wallet finds
    /// to pass would be too little for the drip.
    uint256 internal constant DRIP_GAS_NEEDED = DRIP_GAS + DRIP_GAS / 63 + 20_000;

    IPoolManager public immutable poolManager;
    IPositionManager public immutable positionManager;
    RewardDistributor public immutable distributor;
    IERC20 public immutable feeToken;
    address public immutable seeder;
    PoolId public immutable poolId;

    address public controller;
    uint32 public epoch; // of the last notification
    uint256 public totalWeight;
    mapping(address account => uint256) public feeCredits;
    mapping(address account => mapping(uint256 tokenId => uint256)) public owed; // emissions without a drip yet

    mapping(uint256 tokenId => Stake) internal _stakes;

    constructor(
        address owner_,
        IPoolManager poolManager_,
        IPositionManager positionManager_,
        PoolKey memory key,
        RewardDistributor distributor_,
        IERC20 feeToken_,
        address seeder_
    ) RangeGrowth(key.tickSpacing) Ownable(owner_) {
        if (uint160(address(this)) & Hooks.ALL_HOOK_MASK != Hooks.AFTER_SWAP_FLAG) revert NotHook();
        key.hooks = IHooks(address(this));
        poolManager = poolManager_;
        positionManager = positionManager_;
        poolId = key.toId();
        distributor = distributor_;
        feeToken = feeToken_;
        seeder = seeder_;
    }

    function setController(address controller_) external onlyOwner {
        controller = controller_;
        emit ControllerSet(controller_);
    }

    function stakes(uint256 tokenId) external view returns (Stake memory) {
        return _stakes[tokenId];
    }

    function periodFinish() external view returns (uint40) {
        return _emissions.finish;
    }

    function ratePerSecond() external view returns (uint256) {
        return _emissions.rateX128 / Q128;
    }

    /// Emissions that flowed while no stake was in range.
    function undistributed() external view returns (uint256) {
        return _emissions.keptX128 / Q128;
    }

    function feesFinish() external view returns (uint40) {
        return _fees.finish;
    }

    /// Called after each swap of the pool. Other pools may name this hook; they are not ours.
    function afterSwap(address, PoolKey calldata key, SwapParams calldata, BalanceDelta, bytes calldata)
        external
        returns (bytes4, int128)
    {
        if (msg.sender != address(poolManager)) revert NotPoolManager();
        if (PoolId.unwrap(key.toId()) == PoolId.unwrap(poolId)) _sync();
        return (IHooks.afterSwap.selector, 0);
    }

    // Rewards in

    /// Spreads amount, what is left of the last period and what nobody earned evenly until finish. All of it flows to who is
    /// in range by then: a release late in an epoch is one to few.
    function notifyEmissions(uint32 epoch_, uint256 amount, uint40 finish) external {
        if (msg.sender != controller) revert NotController();
        if (finish <= block.timestamp) revert InvalidPeriod();
        if (amount > MAX_AMOUNT) revert AmountTooLarge();
        _sync();
        _spread(_emissions, amount, finish);
        epoch = epoch_;
        emit EmissionsNotified(PoolId.unwrap(poolId), epoch_, amount, _emissions.rateX128 / Q128, finish);
    }

    /// A gift to the positions in range from now on, from anybody. What still flows and what comes end together, later
    /// the more comes: a tiny gift prolongs nothing. What was kept comes again with it, and counts as if it were given now:
    /// else it would all flow in the last moments of what still flows, to whoever is there.
    function notifyCreatorFees(uint256 amount) external nonReentrant {
        if (totalWeight == 0) revert NoWeight();
        uint256 before = feeToken.balanceOf(address(this));
        feeToken.safeTransferFrom(msg.sender, address(this), amount);
        uint256 received = feeToken.balanceOf(address(this)) - before;
        if (received == 0) revert NoFees();
        if (received > MAX_AMOUNT) revert AmountTooLarge();
        _sync();
        uint256 remaining = _fees.finish > block.timestamp ? _fees.finish - block.timestamp : 0;
        uint256 left = remaining * _fees.rateX128 / Q128;
        uint256 comes = received + _fees.keptX128 / Q128;
        uint256 length = (left * remaining + comes * FEES_LENGTH) / (left + comes);
        _spread(_fees, received, uint40(block.timestamp + Math.max(length, 1)));
        emit CreatorFeesNotified(PoolId.unwrap(poolId), msg.sender, received, feesPerWeightX128);
    }

    function _spread(Stream storage s, uint256 amount, uint40 finish) internal {
        uint256 leftX128 = s.finish > block.timestamp ? (s.finish - block.timestamp) * s.rateX128 : 0;
        uint256 totalX128 = leftX128 + s.keptX128 + amount * Q128;
        uint256 length = finish - block.timestamp;
        s.rateX128 = totalX128 / length;
        s.keptX128 = totalX128 % length; // carried, not lost
        s.finish = finish;
    }

    // Positions

    function stake(uint256 tokenId) external nonReentrant {
        IERC721(address(positionManager)).transferFrom(msg.sender, address(this), tokenId);
        (PoolKey memory key, PositionInfo info) = positionManager.getPoolAndPositionInfo(tokenId);
        if (PoolId.unwrap(key.toId()) != PoolId.unwrap(poolId)) revert WrongPool(tokenId);
        uint128 liquidity = positionManager.getPositionLiquidity(tokenId);
        if (liquidity == 0) revert NoWeight();
        _sync();
        Stake storage s = _stakes[tokenId];
        s.owner = msg.sender;
        s.tickLower = info.tickLower();
        s.tickUpper = info.tickUpper();
        s.isSeed = msg.sender == seeder;
        s.liquidity = liquidity;
        s.weight = s.isSeed ? 0 : liquidity;
        totalWeight += s.weight;
        _addWeight(s.tickLower, s.tickUpper, s.weight);
        (s.emissionsPaidX128, s.feesPaidX128) = _inside(s.tickLower, s.tickUpper);
        emit PositionStaked(
            PoolId.unwrap(poolId), tokenId, msg.sender, s.tickLower, s.tickUpper,
            liquidity, s.weight, totalWeight, _inRange(s), s.isSeed, uint40(block.timestamp)
        );
    }

    function checkpoint(uint256 tokenId) external nonReentrant {
        _checkpoint(tokenId, _stake(tokenId));
    }

    /// Books what the position earned: emissions as a drip, fees as a credit. Emissions that the distributor makes no drip of
    /// stay earned.
    function claim(uint256 tokenId) external nonReentrant {
        Stake storage s = _ownStake(tokenId);
        _checkpoint(tokenId, s);
        _payFees(tokenId, s);
        uint256 emissions = s.emissionsEarned;
        if (emissions == 0) return;
        if (gasleft() < DRIP_GAS_NEEDED) revert InsufficientGas();
        s.emissionsEarned = 0;
        if (!_tryDrip(tokenId, emissions)) s.emissionsEarned = emissions;
    }

    function unstake(uint256 tokenId) external nonReentrant {
        Stake storage s = _ownStake(tokenId);
        if (s.isSeed) revert SeedStays(tokenId);
        _checkpoint(tokenId, s);
        _payFees(tokenId, s);
        uint256 emissions = s.emissionsEarned;
        if (!_tryDrip(tokenId, emissions)) _owe(tokenId, emissions);
        _removeWeight(s.tickLower, s.tickUpper, s.weight);
        totalWeight -= s.weight;
        delete _stakes[tokenId];
        emit PositionUnstaked(PoolId.unwrap(poolId), tokenId, msg.sender, totalWeight, uint40(block.timestamp));
        IERC721(address(positionManager)).transferFrom(address(this), msg.sender, tokenId);
    }

    /// Makes the drip that could not be made when the position was unstaked.
    function collectOwed(uint256 tokenId) external nonReentrant {
        uint256 amount = owed[msg.sender][tokenId];
        if (amount == 0) revert NothingOwed(tokenId);
        delete owed[msg.sender][tokenId];
        distributor.create(msg.sender, 0, DripSource.LP, tokenId, epoch, amount, DRIP_LENGTH, 0);
        emit EmissionsOwed(msg.sender, tokenId, 0);
    }

    function withdrawFees(address to) external nonReentrant {
        uint256 amount = feeCredits[msg.sender];
        if (amount == 0) revert NoFees();
        delete feeCredits[msg.sender];
        emit FeesWithdrawn(msg.sender, to, amount);
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

    /// Brings the growth up to now and to where the pool's price is.
    function _sync() internal {
        (, int24 now_,,) = poolManager.getSlot0(poolId);
        _advance(now_);
    }

    function _inRange(Stake storage s) internal view returns (bool) {
        return s.tickLower <= tick && tick < s.tickUpper;
    }

    /// Books what the position earned up to now.
    function _checkpoint(uint256 tokenId, Stake storage s) internal {
        _sync();
        if (s.weight != 0) {
            (uint256 emissionsX128, uint256 feesX128) = _inside(s.tickLower, s.tickUpper);
            unchecked {
                s.emissionsEarned += Math.mulDiv(s.weight, emissionsX128 - s.emissionsPaidX128, Q128);
                s.feesEarned += Math.mulDiv(s.weight, feesX128 - s.feesPaidX128, Q128);
            }
            (s.emissionsPaidX128, s.feesPaidX128) = (emissionsX128, feesX128);
        }
        emit PositionCheckpointed(
            PoolId.unwrap(poolId), tokenId, s.liquidity, s.weight, totalWeight,
            _inRange(s), s.emissionsEarned, s.feesEarned, uint40(block.timestamp)
        );
    }

    /// False where the distributor makes no drip.
    function _tryDrip(uint256 tokenId, uint256 amount) internal returns (bool) {
        if (amount == 0) return true;
        try distributor.create{gas: DRIP_GAS}(msg.sender, 0, DripSource.LP, tokenId, epoch, amount, DRIP_LENGTH, 0)
            returns (uint256 dripId)
        {
            emit EmissionsClaimed(PoolId.unwrap(poolId), tokenId, msg.sender, amount, dripId);
            return true;
        } catch {
            return false;
        }
    }

    function _owe(uint256 tokenId, uint256 amount) internal {
        uint256 all = owed[msg.sender][tokenId] + amount;
        owed[msg.sender][tokenId] = all;
        emit EmissionsOwed(msg.sender, tokenId, all);
    }

    function _payFees(uint256 tokenId, Stake storage s) internal {
        uint256 fees = s.feesEarned;
        if (fees == 0) return;
        s.feesEarned = 0;
        feeCredits[s.owner] += fees;
        emit CreatorFeeClaimed(PoolId.unwrap(poolId), tokenId, s.owner, fees);
    }
}
