// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// A dollar for development chains with the real one's teeth: 6 decimals, pausable, freezable, and transfers by
/// signature (EIP-3009).
contract USDG is ERC20, EIP712, Pausable, Ownable {
    bytes32 public constant TRANSFER_WITH_AUTHORIZATION_TYPEHASH = keccak256(
        "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
    );
    bytes32 public constant RECEIVE_WITH_AUTHORIZATION_TYPEHASH = keccak256(
        "ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
    );
    bytes32 public constant CANCEL_AUTHORIZATION_TYPEHASH =
        keccak256("CancelAuthorization(address authorizer,bytes32 nonce)");

    mapping(address account => bool) public isFrozen;
    /// True once a nonce was used or cancelled.
    mapping(address authorizer => mapping(bytes32 nonce => bool)) public authorizationState;

    event FreezeAddress(address indexed account);
    event UnfreezeAddress(address indexed account);
    event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce);
    event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce);

    error AddressFrozen(address account);
    error AuthorizationNotYetValid(uint256 validAfter);
    error AuthorizationExpired(uint256 validBefore);
    error AuthorizationUsedOrCanceled(address authorizer, bytes32 nonce);
    error InvalidSignature();
    error CallerMustBePayee(address to);

    constructor(address owner_) ERC20("Global Dollar", "USDG") EIP712("Global Dollar", "1") Ownable(owner_) {}

    function decimals() public pure override returns (uint8) {
        return 6;
    }

    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
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

    function freeze(address account) external onlyOwner {
        isFrozen[account] = true;
        emit FreezeAddress(account);
    }

    function unfreeze(address account) external onlyOwner {
        isFrozen[account] = false;
        emit UnfreezeAddress(account);
    }

    function transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external {
        bytes32 hash = keccak256(
            abi.encode(TRANSFER_WITH_AUTHORIZATION_TYPEHASH, from, to, value, validAfter, validBefore, nonce)
        );
        _authorize(hash, from, validAfter, validBefore, nonce, v, r, s);
        _transfer(from, to, value);
    }

    /// Only the payee may present it: nobody can front-run a contract that pulls its payment.
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external {
        if (to != msg.sender) revert CallerMustBePayee(to);
        bytes32 hash = keccak256(
            abi.encode(RECEIVE_WITH_AUTHORIZATION_TYPEHASH, from, to, value, validAfter, validBefore, nonce)
        );
        _authorize(hash, from, validAfter, validBefore, nonce, v, r, s);
        _transfer(from, to, value);
    }

    function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)
        external
        whenNotPaused
    {
        _useNonce(authorizer, nonce);
        _checkSignature(keccak256(abi.encode(CANCEL_AUTHORIZATION_TYPEHASH, authorizer, nonce)), authorizer, v, r, s);
        emit AuthorizationCanceled(authorizer, nonce);
    }

    function _authorize(
        bytes32 hash,
        address from,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) internal {
        if (block.timestamp <= validAfter) revert AuthorizationNotYetValid(validAfter);
        if (block.timestamp >= validBefore) revert AuthorizationExpired(validBefore);
        _useNonce(from, nonce);
        _checkSignature(hash, from, v, r, s);
        emit AuthorizationUsed(from, nonce);
    }

    function _useNonce(address authorizer, bytes32 nonce) internal {
        if (authorizationState[authorizer][nonce]) revert AuthorizationUsedOrCanceled(authorizer, nonce);
        authorizationState[authorizer][nonce] = true;
    }

    function _checkSignature(bytes32 hash, address signer, uint8 v, bytes32 r, bytes32 s) internal view {
        if (!SignatureChecker.isValidSignatureNow(signer, _hashTypedDataV4(hash), abi.encodePacked(r, s, v))) {
            revert InvalidSignature();
        }
    }

    function _update(address from, address to, uint256 value) internal override whenNotPaused {
        if (isFrozen[from]) revert AddressFrozen(from);
        if (isFrozen[to]) revert AddressFrozen(to);
        if (isFrozen[msg.sender]) revert AddressFrozen(msg.sender);
        super._update(from, to, value);
    }
}
