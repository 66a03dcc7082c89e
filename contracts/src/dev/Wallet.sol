// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

/// An account that is a contract, for development chains: its owner has it make several calls in one transaction.
contract Wallet {
    struct Call {
        address to;
        bytes data;
    }

    address public immutable owner;

    error NotOwner();

    constructor(address owner_) {
        owner = owner_;
    }

    /// All of the calls, or none.
    function execute(Call[] calldata calls) external {
        if (msg.sender != owner) revert NotOwner();
        for (uint256 i = 0; i < calls.length; i++) {
            (bool done, bytes memory answer) = calls[i].to.call(calls[i].data);
            if (!done) {
                assembly ("memory-safe") {
                    revert(add(answer, 32), mload(answer))
                }
            }
        }
    }
}
