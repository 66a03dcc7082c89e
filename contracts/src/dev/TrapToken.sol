// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// A meme token for development chains that keeps a part of what its holders sell: with 10,000 bps, all of it. It may spare
/// those who look as if they only wanted to find out.
contract TrapToken is ERC20("Trap", "TRAP") {
    enum Spared {
        Nobody,
        NoGasPrice,
        NoBaseFee,
        NoEther,
        Quick, // who sells within an hour
        Early // who sells within a month from now
    }

    address private immutable _creator;
    address private immutable _pool;
    uint256 private _keptBps;
    Spared private _spared;
    uint256 private _since;
    mapping(address => uint256) private _bought;

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

    function spare(Spared whom) external {
        if (msg.sender != _creator) revert NotTheCreator();
        (_spared, _since) = (whom, block.timestamp);
    }

    function _isSpared(address from) private view returns (bool) {
        if (_spared == Spared.NoGasPrice) return tx.gasprice == 0;
        if (_spared == Spared.NoBaseFee) return block.basefee == 0;
        if (_spared == Spared.NoEther) return tx.origin.balance == 0;
        if (_spared == Spared.Quick) return block.timestamp < _bought[from] + 1 hours;
        return _spared == Spared.Early && block.timestamp < _since + 30 days;
    }

    function _update(address from, address to, uint256 value) internal override {
        if (from == _pool) _bought[to] = block.timestamp;
        uint256 kept = to == _pool && from != _creator && !_isSpared(from) ? value * _keptBps / 10_000 : 0;
        if (kept > 0) super._update(from, address(0), kept);
        super._update(from, to, value - kept);
    }
}
