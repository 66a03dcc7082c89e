// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

import {DripSource, IEpochController} from "./IMarket.sol";
import {IRewardHook} from "./IVaultHooks.sol";
import {LiquidityStaking} from "./LiquidityStaking.sol";
import {RewardDistributor} from "./RewardDistributor.sol";

/// The weekly budgets of sTKN: grants to the parties of a funded deal, and releases to liquidity.
///
/// A deal's price is what its parties say, both may be one, and the lender's money comes back to him the moment he withdraws
/// it as the borrower: so a grant costs one person the vault's fee and nothing else. A rate above the fee is a subsidy that
/// he can take alone, as far as the budget goes: at a fee of 0.5 % and a rate of 10 % a budget worth 5,000 USDG for 250. No
/// contract can tell such a deal from another. With rates up to the fee nobody gains by it.
///
/// Invariants:
///  1. In each epoch reserved7 <= dealBudget7, reserved21 <= dealBudget21 and released <= liquidityBudget, and the
///     three budgets together are at most weekly + rolledOver.
///  2. What an epoch did not spend, and what comes back to it after its close, rolls over exactly once:
///     the sum of all reserved and released never exceeds the sum of all weekly.
contract EpochController is IEpochController, IRewardHook, Ownable2Step {
    struct Epoch {
        uint40 startsAt;
        uint40 endsAt;
        bool closed;
        uint16 lenderShareBps;
        uint256 weekly;
        uint256 rolledOver; // into this epoch
        uint256 dealBudget7;
        uint256 dealBudget21;
        uint256 liquidityBudget;
        uint256 reserved7;
        uint256 reserved21;
        uint256 released;
        uint256 rate7; // value of the reward per value of the price, 1e18 = 1
        uint256 rate21;
        uint256 priceUSDGPerSTKN; // of a whole sTKN, 1e18 = 1 USDG; 0 until rates are set
    }

    /// What a deal was granted; the drips that carry it, 0 for a share of nothing.
    struct Grant {
        uint32 n;
        uint32 term;
        uint40 fundedAt;
        uint256 lenderDrip;
        uint256 borrowerDrip;
    }

    uint40 public constant EPOCH_LENGTH = 7 days;
    /// Nothing of a grant is unlocked before this share of the deal's term: 1/7, a day of seven.
    uint40 internal constant CLIFF_DIVISOR = 7;
    uint32 internal constant SHORT_TERM = 7 days;
    uint256 internal constant USDG_TO_18 = 1e12;

    address public immutable vault;
    RewardDistributor public immutable distributor;
    LiquidityStaking public immutable staking;

    uint32 public current; // 0 before the first epoch
    uint256 public carried; // unspent by closed epochs, for the next one
    mapping(uint32 n => Epoch) internal _epochs;
    mapping(uint256 dealId => Grant) internal _grants;

    constructor(address owner_, address vault_, RewardDistributor distributor_, LiquidityStaking staking_)
        Ownable(owner_)
    {
        vault = vault_;
        distributor = distributor_;
        staking = staking_;
    }

    modifier onlyVault() {
        if (msg.sender != vault) revert NotRewardSource();
        _;
    }

    function epochs(uint32 n) external view returns (Epoch memory) {
        return _epochs[n];
    }

    function grants(uint256 dealId) external view returns (Grant memory) {
        return _grants[dealId];
    }

    // Epochs

    /// Opens the next epoch, closing an ended one first.
    function openEpoch(uint256 weekly, uint256 dealBudget7, uint256 dealBudget21, uint256 liquidityBudget)
        external
        onlyOwner
    {
        if (current != 0 && !_epochs[current].closed) closeEpoch();
        uint256 rolledOver = carried;
        carried = 0;
        if (dealBudget7 + dealBudget21 + liquidityBudget > weekly + rolledOver) revert BudgetExceeded();

        uint32 n = ++current;
        Epoch storage e = _epochs[n];
        e.startsAt = uint40(block.timestamp);
        e.endsAt = e.startsAt + EPOCH_LENGTH;
        e.weekly = weekly;
        e.rolledOver = rolledOver;
        e.dealBudget7 = dealBudget7;
        e.dealBudget21 = dealBudget21;
        e.liquidityBudget = liquidityBudget;
        emit EpochOpened(
            n, e.startsAt, e.endsAt, weekly, dealBudget7, dealBudget21, liquidityBudget, rolledOver
        );
    }

    /// Anybody may close an epoch that has ended.
    function closeEpoch() public {
        uint32 n = current;
        Epoch storage e = _epochs[n];
        if (n == 0 || e.closed) revert NoOpenEpoch();
        if (block.timestamp < e.endsAt) revert EpochNotOver(e.endsAt);
        e.closed = true;
        uint256 unspent = e.weekly + e.rolledOver - e.reserved7 - e.reserved21 - e.released;
        carried += unspent;
        emit EpochClosed(n, e.released, unspent);
    }

    /// Until rates are set, an epoch grants nothing. What a rate above the vault's fee invites is said at the top.
    function setRates(uint256 rate7, uint256 rate21, uint256 priceUSDGPerSTKN, uint16 lenderShareBps)
        external
        onlyOwner
    {
        (uint32 n, Epoch storage e) = _running();
        if (priceUSDGPerSTKN == 0 || lenderShareBps > 10_000) revert InvalidRates();
        e.rate7 = rate7;
        e.rate21 = rate21;
        e.priceUSDGPerSTKN = priceUSDGPerSTKN;
        e.lenderShareBps = lenderShareBps;
        emit EpochRatesSet(n, rate7, rate21, priceUSDGPerSTKN, lenderShareBps);
    }

    /// Emits part of the liquidity budget evenly until the end of the epoch.
    function releaseLiquidity(uint256 amount) external onlyOwner {
        (uint32 n, Epoch storage e) = _running();
        if (amount == 0 || amount > e.liquidityBudget - e.released) revert BudgetExceeded();
        e.released += amount;
        emit LiquidityReleased(n, amount, e.released);
        staking.notifyEmissions(n, amount, e.endsAt);
    }

    // Deals

    /// Grants what the epoch still has, up to the rate; no running epoch or no rates: nothing.
    function onFunded(uint256 dealId, address borrower, address lender, uint128 price, uint32 term)
        external
        onlyVault
    {
        uint32 n = current;
        Epoch storage e = _epochs[n];
        if (e.priceUSDGPerSTKN == 0 || block.timestamp >= e.endsAt) return;
        bool short = term == SHORT_TERM;
        uint256 wanted = Math.mulDiv(uint256(price) * USDG_TO_18, short ? e.rate7 : e.rate21, e.priceUSDGPerSTKN);
        if (wanted == 0) return;

        uint256 left = short ? e.dealBudget7 - e.reserved7 : e.dealBudget21 - e.reserved21;
        uint256 granted = Math.min(wanted, left);
        bool exhausted = granted < wanted;
        uint256 reservedAfter = short ? (e.reserved7 += granted) : (e.reserved21 += granted);
        uint256 lenderAmount = Math.mulDiv(granted, e.lenderShareBps, 10_000);
        uint256 borrowerAmount = granted - lenderAmount;
        emit EpochReserved(n, term, granted, reservedAfter, exhausted);
        emit RewardReserved(dealId, n, term, wanted, granted, lenderAmount, borrowerAmount, exhausted);

        _grants[dealId] = Grant({
            n: n,
            term: term,
            fundedAt: uint40(block.timestamp),
            lenderDrip: _drip(lender, dealId, n, lenderAmount, term),
            borrowerDrip: _drip(borrower, dealId, n, borrowerAmount, term)
        });
    }

    /// A deal that ends before its term returns what it has not yet earned.
    function onSettled(uint256 dealId) external onlyVault {
        Grant storage g = _grants[dealId];
        if (g.n == 0 || block.timestamp >= g.fundedAt + g.term) return;
        uint256 returned = _cut(g.lenderDrip) + _cut(g.borrowerDrip);
        if (returned == 0) return;
        Epoch storage e = _epochs[g.n];
        uint256 reservedAfter =
            g.term == SHORT_TERM ? (e.reserved7 -= returned) : (e.reserved21 -= returned);
        if (e.closed) carried += returned;
        emit RewardReturned(dealId, g.n, returned);
        emit EpochReturned(g.n, g.term, returned, reservedAfter);
    }

    function _running() internal view returns (uint32 n, Epoch storage e) {
        n = current;
        e = _epochs[n];
        if (n == 0 || e.closed || block.timestamp >= e.endsAt) revert NoOpenEpoch();
    }

    function _drip(address account, uint256 dealId, uint32 n, uint256 amount, uint32 term)
        internal
        returns (uint256)
    {
        if (amount == 0) return 0;
        return distributor.create(account, dealId, DripSource.DEAL, 0, n, amount, term, term / CLIFF_DIVISOR);
    }

    function _cut(uint256 dripId) internal returns (uint256) {
        return dripId == 0 ? 0 : distributor.cut(dripId);
    }
}
