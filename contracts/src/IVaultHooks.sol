// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Kind, Lane} from "./IMarket.sol";

/// What the vault asks of the registry. A revert of onList refuses the listing; onSettle must never revert,
/// for a deal must always be able to end.
interface IRegistryHook {
    function onList(Kind kind, address token, uint256 amountOrTokenId) external returns (Lane lane);
    function onSettle(Kind kind, address token, uint256 amountOrTokenId) external;
}

/// What the vault tells the token layer. A revert is ignored: rewards never stand between parties and their deal.
interface IRewardHook {
    function onFunded(uint256 dealId, address borrower, address lender, uint128 price, uint32 term) external;
    function onSettled(uint256 dealId) external;
}
