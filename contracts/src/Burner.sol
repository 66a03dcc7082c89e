// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IPoolManager} from "@uniswap/v4-core/src/interfaces/IPoolManager.sol";
import {IUnlockCallback} from "@uniswap/v4-core/src/interfaces/callback/IUnlockCallback.sol";
import {TickMath} from "@uniswap/v4-core/src/libraries/TickMath.sol";
import {BalanceDelta} from "@uniswap/v4-core/src/types/BalanceDelta.sol";
import {Currency} from "@uniswap/v4-core/src/types/Currency.sol";
import {PoolKey} from "@uniswap/v4-core/src/types/PoolKey.sol";
import {SwapParams} from "@uniswap/v4-core/src/types/PoolOperation.sol";

import {IBurner, IDealVault} from "./IMarket.sol";

/// Turns USDG into burned sTKN: USDG buys TKN in one v4 pool, TKN buys sTKN in another, the sTKN is burned. The market's
/// fees end here; anybody may burn USDG of their own as well.
contract Burner is IBurner, IUnlockCallback, Ownable2Step {
    using SafeERC20 for IERC20;

    IPoolManager public immutable poolManager;
    IDealVault public immutable vault;
    IERC20 public immutable usdg;
    address public immutable tkn;
    ERC20Burnable public immutable stkn;

    PoolKey internal _usdgPool;
    PoolKey internal _stknPool;

    constructor(
        address owner_,
        IPoolManager poolManager_,
        IDealVault vault_,
        address tkn_,
        ERC20Burnable stkn_,
        PoolKey memory usdgPool_,
        PoolKey memory stknPool_
    ) Ownable(owner_) {
        poolManager = poolManager_;
        vault = vault_;
        usdg = IERC20(vault_.usdg());
        tkn = tkn_;
        stkn = stkn_;
        _usdgPool = usdgPool_;
        _stknPool = stknPool_;
        if (!_pairs(usdgPool_, address(usdg), tkn_) || !_pairs(stknPool_, tkn_, address(stkn_))) revert WrongPools();
    }

    /// Draws the fees that the vault owes this contract.
    function collect() external {
        vault.withdraw(address(usdg), address(this), vault.credits(address(this), address(usdg)));
    }

    /// Burns the caller's USDG. The minimums are what protects it from being traded against.
    function burn(uint256 usdgIn, uint256 minTKN, uint256 minSTKN) external returns (uint256 burned) {
        usdg.safeTransferFrom(msg.sender, address(this), usdgIn);
        return _burn(usdgIn, minTKN, minSTKN);
    }

    /// Burns collected fees: the owner's alone, or anybody could pass poor minimums and trade against the swap.
    function burnFees(uint256 usdgIn, uint256 minTKN, uint256 minSTKN) external onlyOwner returns (uint256 burned) {
        return _burn(usdgIn, minTKN, minSTKN);
    }

    function _burn(uint256 usdgIn, uint256 minTKN, uint256 minSTKN) internal returns (uint256 burned) {
        uint256 bought;
        (bought, burned) = abi.decode(poolManager.unlock(abi.encode(usdgIn)), (uint256, uint256));
        if (bought < minTKN || burned < minSTKN) revert SlippageExceeded(bought, burned);
        stkn.burn(burned);
        emit Burned(msg.sender, usdgIn, bought, burned, uint40(block.timestamp));
    }

    /// Swaps through both pools; the TKN in between never leaves the PoolManager.
    function unlockCallback(bytes calldata data) external returns (bytes memory) {
        if (msg.sender != address(poolManager)) revert NotPoolManager();
        uint256 usdgIn = abi.decode(data, (uint256));
        uint256 bought = _swap(_usdgPool, address(usdg), usdgIn);
        uint256 out = _swap(_stknPool, tkn, bought);
        poolManager.sync(Currency.wrap(address(usdg)));
        usdg.safeTransfer(address(poolManager), usdgIn);
        poolManager.settle();
        poolManager.take(Currency.wrap(address(stkn)), address(this), out);
        return abi.encode(bought, out);
    }

    /// Sells exactly amountIn: a pool too thin to take it all refuses the burn.
    function _swap(PoolKey memory key, address tokenIn, uint256 amountIn) internal returns (uint256) {
        bool zeroForOne = Currency.unwrap(key.currency0) == tokenIn;
        uint160 limit = zeroForOne ? TickMath.MIN_SQRT_PRICE + 1 : TickMath.MAX_SQRT_PRICE - 1;
        if (amountIn == 0 || amountIn > uint128(type(int128).max)) revert InvalidAmount();
        BalanceDelta delta = poolManager.swap(key, SwapParams(zeroForOne, -int256(amountIn), limit), "");
        (int128 paid, int128 got) =
            zeroForOne ? (delta.amount0(), delta.amount1()) : (delta.amount1(), delta.amount0());
        if (uint128(-paid) != amountIn) revert InvalidAmount();
        return uint128(got);
    }

    function _pairs(PoolKey memory key, address a, address b) internal pure returns (bool) {
        (address low, address high) = a < b ? (a, b) : (b, a);
        return Currency.unwrap(key.currency0) == low && Currency.unwrap(key.currency1) == high;
    }
}
