// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IPoolManager} from "@uniswap/v4-core/src/interfaces/IPoolManager.sol";
import {IUnlockCallback} from "@uniswap/v4-core/src/interfaces/callback/IUnlockCallback.sol";
import {TickMath} from "@uniswap/v4-core/src/libraries/TickMath.sol";
import {BalanceDelta} from "@uniswap/v4-core/src/types/BalanceDelta.sol";
import {Currency} from "@uniswap/v4-core/src/types/Currency.sol";
import {PoolKey} from "@uniswap/v4-core/src/types/PoolKey.sol";
import {SwapParams} from "@uniswap/v4-core/src/types/PoolOperation.sol";

/// Swaps what its caller has, as any router does, so that a simulation shows whether a token that was bought can be sold
/// again. It is never deployed: eth_simulateV1 creates it, and forgets it.
contract SaleProbe is IUnlockCallback {
    using SafeERC20 for IERC20;

    IPoolManager private immutable _manager;
    /// Of one probe alone, so that no token knows its code's hash.
    bytes32 public immutable salt;

    error NotTheManager();

    constructor(IPoolManager manager, bytes32 salt_) {
        _manager = manager;
        salt = salt_;
    }

    /// Swaps the ether that comes with the call, or one of so many parts of the caller's balance; returns what the pool gave
    /// for it.
    function swap(PoolKey calldata key, bool zeroForOne, uint256 parts) external payable returns (uint256 out) {
        out = abi.decode(_manager.unlock(abi.encode(msg.sender, msg.value, key, zeroForOne, parts)), (uint256));
    }

    function unlockCallback(bytes calldata data) external returns (bytes memory) {
        if (msg.sender != address(_manager)) revert NotTheManager();
        (address caller, uint256 sent, PoolKey memory key, bool zeroForOne, uint256 parts) =
            abi.decode(data, (address, uint256, PoolKey, bool, uint256));
        (Currency from, Currency to) =
            zeroForOne ? (key.currency0, key.currency1) : (key.currency1, key.currency0);
        // What arrives counts: a token may keep a part of each transfer.
        uint256 paid;
        if (from.isAddressZero()) {
            paid = _manager.settle{value: sent}();
        } else {
            IERC20 token = IERC20(Currency.unwrap(from));
            _manager.sync(from);
            token.safeTransferFrom(caller, address(_manager), token.balanceOf(caller) / parts);
            paid = _manager.settle();
        }
        BalanceDelta delta = _manager.swap(
            key,
            SwapParams({
                zeroForOne: zeroForOne,
                amountSpecified: -int256(paid),
                sqrtPriceLimitX96: zeroForOne ? TickMath.MIN_SQRT_PRICE + 1 : TickMath.MAX_SQRT_PRICE - 1
            }),
            ""
        );
        uint256 out = uint256(uint128(zeroForOne ? delta.amount1() : delta.amount0()));
        _manager.take(to, caller, out);
        return abi.encode(out);
    }
}
