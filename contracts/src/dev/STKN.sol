// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// Staked TKN on development chains. Staking is one to one and one way: emissions are minted without TKN behind them,
/// so the way back is the pool, at its price.
contract STKN is ERC20("Staked Lienstream Token", "sTKN"), ERC20Burnable, Ownable {
    using SafeERC20 for IERC20;

    IERC20 public immutable tkn;
    mapping(address account => bool) public isMinter;

    error NotMinter();

    constructor(address owner_, IERC20 tkn_) Ownable(owner_) {
        tkn = tkn_;
    }

    function setMinter(address minter, bool allowed) external onlyOwner {
        isMinter[minter] = allowed;
    }

    function mint(address to, uint256 amount) external {
        if (!isMinter[msg.sender]) revert NotMinter();
        _mint(to, amount);
    }

    function stake(uint256 amount) external {
        tkn.safeTransferFrom(msg.sender, address(this), amount);
        _mint(msg.sender, amount);
    }
}
