// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {IERC20Metadata} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Metadata.sol";
import {LPFeeLibrary} from "@uniswap/v4-core/src/libraries/LPFeeLibrary.sol";
import {PoolId} from "@uniswap/v4-core/src/types/PoolId.sol";
import {PoolKey} from "@uniswap/v4-core/src/types/PoolKey.sol";
import {IPositionManager} from "@uniswap/v4-periphery/src/interfaces/IPositionManager.sol";

import {IAssetRegistry, IDealVault, Kind, Lane} from "./IMarket.sol";
import {IRegistryHook} from "./IVaultHooks.sol";

/// What may be listed, and how much of it may be open at once.
///
/// Invariants:
///  1. openRaw of a token = the raw amounts of its LISTED and FUNDED deals (positions count one each).
///  2. onSettle never reverts for what onList let in: limits and permissions bind new deals only, the vault is
///     fixed, and a token's kind cannot change while any of it is open.
///  3. The limits of a known token depend on nothing that it does: it may turn hostile.
contract AssetRegistry is IAssetRegistry, IRegistryHook, Ownable2Step {
    using LPFeeLibrary for uint24;

    struct Limits {
        bool allowed;
        Kind kind;
        Lane lane;
        uint256 minAmount;
        uint256 maxDealRaw;
        uint256 maxOpenRaw;
    }

    struct Pool {
        bool allowed;
        uint128 minLiquidity;
        uint128 maxLiquidity;
    }

    /// As the token last told it.
    struct Metadata {
        uint8 decimals;
        string symbol;
        string name;
    }

    uint256 internal constant MAX_NAME_BYTES = 128;
    /// Gas for all that a token is asked: it bounds how long its answers can be, too.
    uint256 internal constant METADATA_GAS = 300_000;

    IPositionManager public immutable positionManager;
    address public vault;
    mapping(bytes32 poolId => Pool) public pools;

    mapping(address token => Limits) internal _limits;
    mapping(address token => Metadata) internal _metadata;
    mapping(address token => uint256) internal _openRaw;
    address[] internal _tokens; // that have ever had limits, in that order

    constructor(address owner_, IPositionManager positionManager_) Ownable(owner_) {
        positionManager = positionManager_;
    }

    modifier onlyVault() {
        if (msg.sender != vault) revert NotVault();
        _;
    }

    /// Once: another vault could not settle the deals of the first.
    function setVault(address vault_) external onlyOwner {
        if (vault != address(0) || vault_ == address(0)) revert NotVault();
        vault = vault_;
        emit VaultSet(vault_);
    }

    /// Name, symbol and decimals are the token's own. A known one keeps those of before when it is disallowed, which asks it
    /// nothing, and where it does not answer.
    function setAsset(address token, Limits calldata limits) external onlyOwner {
        bool position = limits.kind == Kind.AMMV4_POSITION;
        if (position != (token == address(positionManager)) || position != (limits.lane == Lane.POSITION)) {
            revert InvalidAsset(token);
        }
        if (limits.minAmount == 0 || limits.minAmount > limits.maxDealRaw || limits.maxDealRaw > limits.maxOpenRaw) {
            revert InvalidAsset(token);
        }
        bool known = _limits[token].minAmount != 0;
        if (!known) _tokens.push(token);
        _limits[token] = limits;

        if (!known || limits.allowed) {
            try this.askMetadata{gas: METADATA_GAS}(token) returns (Metadata memory told) {
                _metadata[token] = told;
            } catch {
                if (!known) revert InvalidAsset(token);
            }
        }
        Metadata memory m = _metadata[token];
        emit AssetSet(
            token, limits.kind, limits.lane, limits.allowed, m.decimals,
            limits.minAmount, limits.maxDealRaw, limits.maxOpenRaw, m.symbol, m.name
        );
    }

    /// What a token says of itself now. A call of its own, so that one without a sane answer fails alone.
    function askMetadata(address token) external view returns (Metadata memory told) {
        told.symbol = IERC20Metadata(token).symbol();
        told.name = IERC20Metadata(token).name();
        if (bytes(told.symbol).length > MAX_NAME_BYTES || bytes(told.name).length > MAX_NAME_BYTES) {
            revert InvalidAsset(token);
        }
        if (token != address(positionManager)) told.decimals = IERC20Metadata(token).decimals();
    }

    /// Positions of a pool may be listed when their liquidity lies within [minLiquidity, maxLiquidity].
    function setPool(bytes32 poolId, bool allowed, uint128 minLiquidity, uint128 maxLiquidity) external onlyOwner {
        if (minLiquidity == 0 || minLiquidity > maxLiquidity) revert LiquidityOutOfRange(minLiquidity);
        pools[poolId] = Pool(allowed, minLiquidity, maxLiquidity);
        emit PoolSet(poolId, allowed, minLiquidity, maxLiquidity);
    }

    function asset(address token)
        external
        view
        returns (
            bool allowed, Lane lane, Kind kind, uint256 minAmount, uint256 maxDealRaw, uint256 maxOpenRaw, uint256 openRaw
        )
    {
        Limits storage l = _limits[token];
        return (l.allowed, l.lane, l.kind, l.minAmount, l.maxDealRaw, l.maxOpenRaw, _openRaw[token]);
    }

    function tokenCount() external view returns (uint256) {
        return _tokens.length;
    }

    /// At most n tokens that have limits, allowed or not, from a position on.
    function tokens(uint256 from, uint256 n) external view returns (address[] memory page) {
        uint256 count = _tokens.length;
        if (from >= count) return page;
        if (n > count - from) n = count - from;
        page = new address[](n);
        for (uint256 i; i < n; ++i) page[i] = _tokens[from + i];
    }

    function poolAllowed(bytes32 poolId) external view returns (bool) {
        return pools[poolId].allowed;
    }

    function onList(Kind kind, address token, uint256 amountOrTokenId) external onlyVault returns (Lane) {
        Limits storage l = _limits[token];
        if (!l.allowed || l.kind != kind) revert IDealVault.AssetNotAllowed(token);
        uint256 amount = amountOrTokenId;
        if (kind == Kind.AMMV4_POSITION) {
            _checkPosition(amountOrTokenId);
            amount = 1;
        }
        uint256 open = _openRaw[token];
        if (amount < l.minAmount || amount > l.maxDealRaw || open > l.maxOpenRaw || amount > l.maxOpenRaw - open) {
            revert IDealVault.AmountOutOfRange();
        }
        _setOpenRaw(token, open + amount);
        return l.lane;
    }

    function onSettle(Kind kind, address token, uint256 amountOrTokenId) external onlyVault {
        _setOpenRaw(token, _openRaw[token] - (kind == Kind.ERC20 ? amountOrTokenId : 1));
    }

    function _setOpenRaw(address token, uint256 openRaw) internal {
        _openRaw[token] = openRaw;
        emit OpenRawChanged(token, openRaw);
    }

    /// Hooks and dynamic fees are judged here too, not only by whoever allows a pool: either could take
    /// the value out of a position in escrow.
    function _checkPosition(uint256 tokenId) internal view {
        (PoolKey memory key,) = positionManager.getPoolAndPositionInfo(tokenId);
        bytes32 poolId = PoolId.unwrap(key.toId());
        Pool storage pool = pools[poolId];
        if (!pool.allowed) revert PoolNotAllowed(poolId);
        if (key.fee.isDynamicFee()) revert PoolFeeDynamic(poolId);
        if (address(key.hooks) != address(0)) revert PoolHasHooks(poolId);
        uint128 liquidity = positionManager.getPositionLiquidity(tokenId);
        if (liquidity < pool.minLiquidity || liquidity > pool.maxLiquidity) revert LiquidityOutOfRange(liquidity);
    }
}
