// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable, Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IERC721} from "@openzeppelin/contracts/token/ERC721/IERC721.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";

import {
    BalanceKind, Bid, BidState, CreditReason, Deal, DealState, IDealVault, Kind
} from "./IMarket.sol";
import {IRegistryHook, IRewardHook} from "./IVaultHooks.sol";

/// Escrow of collateralized deals: a borrower lists collateral, a lender funds it at a price, and the borrower buys it
/// back for the cap within term and grace, or the lender claims it.
///
/// Invariants:
///  1. For every ERC20 the vault holds at least the collateral of its LISTED and FUNDED deals, plus its OPEN bids
///     (USDG), plus all credits. It never pays out but against a credit.
///  2. A position in escrow is owned by the vault, and is either the collateral of one LISTED or FUNDED deal or
///     the NFT credit of one account.
///  3. Nothing that a token, the reward hook or the owner does keeps a deal from ending: settlement only
///     books credits, and pausing stops list, fund, bid and accept alone.
///  4. Whoever acts on a deal or a bid says which he means, not only its number: where the block that it was made in is
///     reorganised away, its number becomes another's. So all but the editing of one's own terms name the terms' hash,
///     and what is about a bid its price as well.
contract DealVault is IDealVault, Ownable2Step, Pausable, ReentrancyGuard {
    using SafeERC20 for IERC20;

    bytes32 public constant TERMS_TYPEHASH = keccak256(
        "DealTerms(uint256 chainId,address vault,uint256 dealId,address borrower,uint8 kind,address token,uint256 amountOrTokenId,uint256 cap,uint256 minPrice,uint256 term,uint256 listingExpiry,uint256 feeBps,uint256 grace,address usdg)"
    );
    uint32 internal constant SHORT_TERM = 7 days;
    uint32 internal constant LONG_TERM = 21 days;
    uint40 internal constant MAX_GRACE = 30 days;
    uint16 internal constant MAX_FEE_BPS = 1_000;

    /// Gas that the reward hook gets, always: the caller can neither starve the hook nor can the hook burn more.
    uint256 public constant HOOK_GAS = 800_000;
    /// What must be left before the hook's call so that 63/64 of it is at least HOOK_GAS and the call itself is paid.
    uint256 internal constant HOOK_GAS_NEEDED = HOOK_GAS + HOOK_GAS / 63 + 20_000;

    uint40 public immutable GRACE;
    address public immutable usdg;
    address public immutable registry;

    address public rewards; // 0 until the token layer is deployed
    uint16 public feeBps;
    address public feeRecipient;
    uint256 public nextDealId = 1;
    uint256 public nextBidId = 1; // 0 means "no bid" in DealFunded
    mapping(address account => mapping(address asset => uint256)) public credits;
    mapping(address asset => mapping(uint256 tokenId => address)) public nftCredits;

    mapping(uint256 id => Deal) internal _deals;
    mapping(uint256 id => Bid) internal _bids;

    constructor(address owner_, address usdg_, address registry_, uint40 grace_, uint16 feeBps_, address feeRecipient_)
        Ownable(owner_)
    {
        if (grace_ > MAX_GRACE) revert AmountOutOfRange();
        usdg = usdg_;
        registry = registry_;
        GRACE = grace_;
        _setFee(feeBps_, feeRecipient_);
    }

    // Owner

    /// The hook must be a contract: a call to an address without code would revert outside the try.
    function setRewards(address rewards_) external onlyOwner {
        if (rewards_ != address(0) && rewards_.code.length == 0) revert InvalidRecipient(rewards_);
        rewards = rewards_;
        emit RewardsSet(rewards_);
    }

    /// Applies to deals listed from now on; the recipient also to open ones.
    function setFee(uint16 feeBps_, address feeRecipient_) external onlyOwner {
        _setFee(feeBps_, feeRecipient_);
    }

    function pause() external onlyOwner {
        _pause();
    }

    function unpause() external onlyOwner {
        _unpause();
    }

    // Views

    function supportedTerms() external pure returns (uint32[] memory terms) {
        terms = new uint32[](2);
        terms[0] = SHORT_TERM;
        terms[1] = LONG_TERM;
    }

    function deals(uint256 id) external view returns (Deal memory) {
        return _deals[id];
    }

    function bids(uint256 id) external view returns (Bid memory) {
        return _bids[id];
    }

    /// What a party agrees to: whoever acts on a deal names this hash, so terms edited in the meantime refuse it.
    function termsHash(uint256 id) public view returns (bytes32) {
        Deal storage d = _deal(id);
        return keccak256(
            abi.encode(
                TERMS_TYPEHASH, block.chainid, address(this), id, d.borrower, d.kind, d.token, d.amountOrTokenId,
                d.cap, d.minPrice, d.term, d.listingExpiry, d.feeBps, GRACE, usdg
            )
        );
    }

    // Borrower

    function list(
        Kind kind,
        address token,
        uint256 amountOrTokenId,
        uint128 cap,
        uint128 minPrice,
        uint32 term,
        uint40 listingExpiry,
        uint16 expectedFeeBps
    ) external nonReentrant whenNotPaused returns (uint256 id) {
        if (feeBps != expectedFeeBps) revert FeeChanged(expectedFeeBps, feeBps);
        id = nextDealId++;
        _checkTerms(id, cap, minPrice, term, listingExpiry);
        if (token == usdg) revert AssetNotAllowed(token); // collateral and cash must stay apart in the credits

        Deal storage d = _deals[id];
        d.borrower = msg.sender;
        d.listedAt = uint40(block.timestamp);
        d.term = term;
        d.kind = kind;
        d.feeBps = feeBps;
        d.token = token;
        d.listingExpiry = listingExpiry;
        d.amountOrTokenId = amountOrTokenId;
        d.cap = cap;
        d.minPrice = minPrice;

        // The registry speaks last: it judges a position that its owner can no longer change.
        if (kind == Kind.ERC20) _pull(token, amountOrTokenId);
        else IERC721(token).transferFrom(msg.sender, address(this), amountOrTokenId);
        d.lane = IRegistryHook(registry).onList(kind, token, amountOrTokenId);

        emit DealListed(
            id, msg.sender, token, kind, d.lane, amountOrTokenId, cap, minPrice,
            term, listingExpiry, d.listedAt, d.feeBps, termsHash(id)
        );
    }

    function updateTerms(uint256 id, uint128 cap, uint128 minPrice, uint32 term, uint40 listingExpiry)
        external
        nonReentrant
    {
        Deal storage d = _ownListing(id);
        _checkTerms(id, cap, minPrice, term, listingExpiry);
        d.cap = cap;
        d.minPrice = minPrice;
        d.term = term;
        d.listingExpiry = listingExpiry;
        emit DealTermsUpdated(id, cap, minPrice, term, listingExpiry, termsHash(id));
    }

    function cancel(uint256 id, bytes32 expectedTerms) external nonReentrant {
        Deal storage d = _ownListing(id);
        _checkTermsHash(id, expectedTerms);
        d.state = DealState.CANCELLED;
        emit DealCancelled(id, d.borrower, uint40(block.timestamp));
        _release(id, d, d.borrower, CreditReason.COLLATERAL_RETURN);
    }

    function acceptBid(uint256 bidId, bytes32 expectedTerms, uint128 expectedPrice)
        external
        nonReentrant
        whenNotPaused
    {
        Bid storage b = _openBid(bidId, expectedTerms, expectedPrice);
        Deal storage d = _deal(b.dealId);
        if (msg.sender != d.borrower) revert NotBorrower();
        _checkTermsHash(b.dealId, b.termsHash);
        _checkFundable(b.dealId, d);
        if (block.timestamp >= b.expiry) revert BidExpired(bidId);
        b.state = BidState.ACCEPTED;
        emit BidAccepted(b.dealId, bidId, b.lender, b.price, uint40(block.timestamp));
        _fund(b.dealId, d, b.lender, b.price, bidId, b.termsHash);
    }

    /// Anybody may pay: the collateral is the borrower's all the same, whose account may be frozen.
    function reclaim(uint256 id, bytes32 expectedTerms) external nonReentrant {
        Deal storage d = _deal(id);
        _checkTermsHash(id, expectedTerms);
        if (d.state != DealState.FUNDED) revert NotFundable(id, d.state);
        uint40 graceEnd = d.fundedAt + d.term + GRACE;
        if (block.timestamp > graceEnd) revert GraceOver(graceEnd);
        d.state = DealState.RECLAIMED;
        _pull(usdg, d.cap);
        emit DealReclaimed(id, d.borrower, d.lender, d.cap, uint40(block.timestamp));
        _credit(d.lender, usdg, id, BalanceKind.USDG, d.cap, CreditReason.REPAYMENT);
        _release(id, d, d.borrower, CreditReason.COLLATERAL_RETURN);
        _notifySettled(id);
    }

    // Lender

    function fund(uint256 id, bytes32 expectedTerms) external nonReentrant whenNotPaused {
        Deal storage d = _deal(id);
        _checkTermsHash(id, expectedTerms);
        _checkFundable(id, d);
        if (msg.sender == d.borrower) revert NotLender();
        _pull(usdg, d.minPrice);
        _fund(id, d, msg.sender, d.minPrice, 0, expectedTerms);
    }

    /// An offer at any price up to the cap, the money in escrow until it is accepted or withdrawn.
    function bid(uint256 id, uint128 price, uint40 expiry, bytes32 expectedTerms)
        external
        nonReentrant
        whenNotPaused
        returns (uint256 bidId)
    {
        Deal storage d = _deal(id);
        _checkTermsHash(id, expectedTerms);
        _checkFundable(id, d);
        if (msg.sender == d.borrower) revert NotLender();
        if (price == 0 || price > d.cap) revert AmountOutOfRange();
        bidId = nextBidId++;
        if (expiry <= block.timestamp) revert BidExpired(bidId);
        _bids[bidId] = Bid({
            dealId: id,
            lender: msg.sender,
            expiry: expiry,
            placedAt: uint40(block.timestamp),
            state: BidState.OPEN,
            price: price,
            termsHash: expectedTerms
        });
        _pull(usdg, price);
        emit BidPlaced(id, bidId, msg.sender, price, expiry, uint40(block.timestamp), expectedTerms);
    }

    function withdrawBid(uint256 bidId, bytes32 expectedTerms, uint128 expectedPrice) external nonReentrant {
        Bid storage b = _openBid(bidId, expectedTerms, expectedPrice);
        if (msg.sender != b.lender) revert NotLender();
        b.state = BidState.WITHDRAWN;
        emit BidWithdrawn(b.dealId, bidId, b.lender, b.price, uint40(block.timestamp));
        _credit(b.lender, usdg, b.dealId, BalanceKind.USDG, b.price, CreditReason.BID_REFUND);
    }

    function claim(uint256 id, bytes32 expectedTerms) external nonReentrant {
        Deal storage d = _deal(id);
        _checkTermsHash(id, expectedTerms);
        if (d.state != DealState.FUNDED) revert NotFundable(id, d.state);
        if (msg.sender != d.lender) revert NotLender();
        uint40 graceEnd = d.fundedAt + d.term + GRACE;
        if (block.timestamp <= graceEnd) revert GraceNotOver(graceEnd);
        d.state = DealState.CLAIMED;
        emit DealClaimed(id, d.lender, d.borrower, uint40(block.timestamp));
        _release(id, d, d.lender, CreditReason.COLLATERAL_CLAIM);
        _notifySettled(id);
    }

    // Credits: pulled by their owner, so that a frozen account or a paused token holds up nobody else.

    /// Pays out exactly the amount: a credit that has grown meanwhile keeps the rest.
    function withdraw(address asset, address to, uint256 amount) external nonReentrant {
        uint256 credit = credits[msg.sender][asset];
        if (amount == 0 || amount > credit) revert NothingToWithdraw();
        _checkRecipient(to);
        credits[msg.sender][asset] = credit - amount;
        emit Withdrawn(msg.sender, asset, to, asset == usdg ? BalanceKind.USDG : BalanceKind.ERC20, amount);
        IERC20(asset).safeTransfer(to, amount);
    }

    function withdrawNFT(address asset, uint256 tokenId, address to) external nonReentrant {
        if (nftCredits[asset][tokenId] != msg.sender) revert NothingToWithdraw();
        _checkRecipient(to);
        delete nftCredits[asset][tokenId];
        emit Withdrawn(msg.sender, asset, to, BalanceKind.NFT, tokenId);
        IERC721(asset).transferFrom(address(this), to, tokenId);
    }

    // Checks

    function _deal(uint256 id) internal view returns (Deal storage d) {
        d = _deals[id];
        if (d.borrower == address(0)) revert DealNotFound(id);
    }

    function _ownListing(uint256 id) internal view returns (Deal storage d) {
        d = _deal(id);
        if (msg.sender != d.borrower) revert NotBorrower();
        if (d.state != DealState.LISTED) revert NotFundable(id, d.state);
    }

    function _openBid(uint256 bidId, bytes32 expectedTerms, uint128 expectedPrice)
        internal
        view
        returns (Bid storage b)
    {
        b = _bids[bidId];
        if (b.lender == address(0) || b.state != BidState.OPEN) revert BidNotOpen(bidId);
        if (b.termsHash != expectedTerms) revert TermsChanged(expectedTerms, b.termsHash);
        if (b.price != expectedPrice) revert PriceChanged(expectedPrice, b.price);
    }

    function _checkTerms(uint256 id, uint128 cap, uint128 minPrice, uint32 term, uint40 listingExpiry) internal view {
        if (term != SHORT_TERM && term != LONG_TERM) revert UnsupportedTerm(term);
        if (minPrice == 0 || cap < minPrice) revert AmountOutOfRange();
        if (listingExpiry != 0 && listingExpiry <= block.timestamp) revert ListingExpired(id);
    }

    function _checkTermsHash(uint256 id, bytes32 expected) internal view {
        bytes32 actual = termsHash(id);
        if (actual != expected) revert TermsChanged(expected, actual);
    }

    function _checkFundable(uint256 id, Deal storage d) internal view {
        if (d.state != DealState.LISTED) revert NotFundable(id, d.state);
        if (d.listingExpiry != 0 && block.timestamp > d.listingExpiry) revert ListingExpired(id);
    }

    /// A credit paid to the vault itself would be lost to everybody.
    function _checkRecipient(address to) internal view {
        if (to == address(0) || to == address(this)) revert InvalidRecipient(to);
    }

    // Effects

    function _setFee(uint16 feeBps_, address feeRecipient_) internal {
        if (feeBps_ > MAX_FEE_BPS) revert AmountOutOfRange();
        if (feeRecipient_ == address(0) || feeRecipient_ == address(this)) revert InvalidRecipient(feeRecipient_);
        feeBps = feeBps_;
        feeRecipient = feeRecipient_;
        emit FeeSet(feeBps_, feeRecipient_);
    }

    function _pull(address token, uint256 amount) internal {
        uint256 before = IERC20(token).balanceOf(address(this));
        IERC20(token).safeTransferFrom(msg.sender, address(this), amount);
        if (IERC20(token).balanceOf(address(this)) - before != amount) revert FeeOnTransfer();
    }

    function _fund(uint256 id, Deal storage d, address lender, uint128 price, uint256 bidId, bytes32 hash) internal {
        uint128 fee = uint128(uint256(price) * d.feeBps / 10_000); // below price: feeBps <= MAX_FEE_BPS
        d.state = DealState.FUNDED;
        d.lender = lender;
        d.price = price;
        d.fee = fee;
        d.fundedAt = uint40(block.timestamp);
        uint40 expiry = d.fundedAt + d.term;
        emit DealFunded(id, lender, bidId, price, fee, price - fee, d.fundedAt, expiry, expiry + GRACE, hash);
        _credit(d.borrower, usdg, id, BalanceKind.USDG, price - fee, CreditReason.PROCEEDS);
        if (fee != 0) _credit(feeRecipient, usdg, id, BalanceKind.USDG, fee, CreditReason.FEE);
        if (rewards != address(0)) {
            if (gasleft() < HOOK_GAS_NEEDED) revert InsufficientGas();
            try IRewardHook(rewards).onFunded{gas: HOOK_GAS}(id, d.borrower, lender, price, d.term) {} catch {}
        }
    }

    function _notifySettled(uint256 id) internal {
        if (rewards == address(0)) return;
        if (gasleft() < HOOK_GAS_NEEDED) revert InsufficientGas();
        try IRewardHook(rewards).onSettled{gas: HOOK_GAS}(id) {} catch {}
    }

    function _credit(address account, address asset, uint256 id, BalanceKind kind, uint256 amount, CreditReason reason)
        internal
    {
        credits[account][asset] += amount;
        emit Credited(account, asset, id, kind, amount, reason);
    }

    function _release(uint256 id, Deal storage d, address to, CreditReason reason) internal {
        if (d.kind == Kind.ERC20) {
            _credit(to, d.token, id, BalanceKind.ERC20, d.amountOrTokenId, reason);
        } else {
            nftCredits[d.token][d.amountOrTokenId] = to;
            emit Credited(to, d.token, id, BalanceKind.NFT, d.amountOrTokenId, reason);
        }
        IRegistryHook(registry).onSettle(d.kind, d.token, d.amountOrTokenId);
    }
}
