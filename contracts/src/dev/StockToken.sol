// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";

/// A stock for development chains, after ERC-8056: a split changes how many shares a raw unit shows as,
/// never a raw balance.
contract StockToken is ERC20, Pausable, Ownable {
    uint256 internal _uiMultiplier = 1e18; // in force before effectiveAt
    uint256 public newUIMultiplier = 1e18;
    uint256 public effectiveAt;
    bool public oraclePaused; // its price is not to be used; no event tells, and transfers go on

    event UIMultiplierUpdated(uint256 oldMultiplier, uint256 newMultiplier, uint256 effectiveAt);

    error InvalidMultiplier();

    constructor(address owner_, string memory name_, string memory symbol_) ERC20(name_, symbol_) Ownable(owner_) {}

    /// Shares per raw unit, 1e18 = 1.
    function uiMultiplier() public view returns (uint256) {
        return block.timestamp >= effectiveAt ? newUIMultiplier : _uiMultiplier;
    }

    /// Announces a multiplier; one that was announced before and is not yet in force is replaced.
    function setUIMultiplier(uint256 multiplier, uint256 effectiveAt_) external onlyOwner {
        if (multiplier == 0 || effectiveAt_ < block.timestamp) revert InvalidMultiplier();
        _uiMultiplier = uiMultiplier();
        newUIMultiplier = multiplier;
        effectiveAt = effectiveAt_;
        emit UIMultiplierUpdated(_uiMultiplier, multiplier, effectiveAt_);
    }

    function mint(address to, uint256 amount) external onlyOwner {
        _mint(to, amount);
    }

    function pause() external onlyOwner {
        _pause();
    }

    function unpause() external onlyOwner {
        _unpause();
    }

    function setOraclePaused(bool paused_) external onlyOwner {
        oraclePaused = paused_;
    }

    function _update(address from, address to, uint256 value) internal override whenNotPaused {
        super._update(from, to, value);
    }
}
