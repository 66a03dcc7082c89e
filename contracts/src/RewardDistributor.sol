// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

import {DripSource, IRewardDistributor} from "./IMarket.sol";

/// The staked token as its emission sees it.
interface IMintable {
    function mint(address to, uint256 amount) external;
}

/// Streams of sTKN: minted when claimed, never before.
///
/// Invariants, for each drip:
///  1. claimed <= unlocked(now) <= total, and unlocked never shrinks, a cut included.
///  2. sTKN minted here = the sum of claimed.
contract RewardDistributor is IRewardDistributor, Ownable2Step {
    struct Drip {
        address account;
        uint40 start;
        uint40 length; // seconds
        uint40 cliff; // timestamp before which nothing is unlocked
        uint40 cutAt; // 0: not cut; else all of total is unlocked
        uint256 total;
        uint256 claimed;
    }

    IMintable public immutable stkn;
    uint256 public nextDripId = 1;
    mapping(address source => bool) public isSource;

    mapping(uint256 dripId => Drip) internal _drips;

    constructor(address owner_, IMintable stkn_) Ownable(owner_) {
        stkn = stkn_;
    }

    modifier onlySource() {
        if (!isSource[msg.sender]) revert NotSource();
        _;
    }

    function setSource(address source, bool allowed) external onlyOwner {
        isSource[source] = allowed;
        emit SourceSet(source, allowed);
    }

    function drips(uint256 dripId) external view returns (Drip memory) {
        return _drips[dripId];
    }

    /// Linear from start over length; nothing before the cliff.
    function unlocked(uint256 dripId) public view returns (uint256) {
        Drip storage d = _drips[dripId];
        if (d.cutAt != 0) return d.total;
        if (block.timestamp < d.cliff || d.length == 0) return 0;
        uint256 elapsed = block.timestamp - d.start;
        return elapsed >= d.length ? d.total : Math.mulDiv(d.total, elapsed, d.length);
    }

    /// A stream that starts now; cliff is in seconds from now and at most length.
    function create(
        address account,
        uint256 dealId,
        DripSource source,
        uint256 tokenId,
        uint32 epoch,
        uint256 total,
        uint40 length,
        uint40 cliff
    ) external onlySource returns (uint256 dripId) {
        if (account == address(0) || total == 0 || length == 0 || cliff > length) revert InvalidDrip();
        dripId = nextDripId++;
        uint40 start = uint40(block.timestamp);
        _drips[dripId] = Drip({
            account: account, start: start, length: length, cliff: start + cliff, cutAt: 0, total: total, claimed: 0
        });
        emit DripCreated(account, dripId, dealId, source, tokenId, epoch, total, start, length, start + cliff);
    }

    /// Ends a stream: what is unlocked stays its account's, the rest is returned to the caller's books.
    function cut(uint256 dripId) external onlySource returns (uint256 returned) {
        Drip storage d = _drips[dripId];
        if (d.account == address(0) || d.cutAt != 0) revert InvalidDrip();
        uint256 kept = unlocked(dripId);
        returned = d.total - kept;
        if (returned == 0) return 0; // it has run its course
        d.total = kept;
        d.cutAt = uint40(block.timestamp);
        emit DripCut(d.account, dripId, d.cutAt, kept, returned);
    }

    function claim(uint256[] calldata dripIds, address to) external {
        for (uint256 i; i < dripIds.length; ++i) {
            Drip storage d = _drips[dripIds[i]];
            if (d.account != msg.sender) revert NotDripOwner(dripIds[i]);
            uint256 amount = unlocked(dripIds[i]) - d.claimed;
            if (amount == 0) revert NothingToClaim(dripIds[i]);
            d.claimed += amount;
            emit DripClaimed(msg.sender, dripIds[i], to, amount, d.claimed);
            stkn.mint(to, amount);
        }
    }
}
