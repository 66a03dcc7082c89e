// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";

/// Says whether a contract wallet signed a hash, deployed or not yet (ERC-1271, ERC-6492). It is never deployed: an
/// eth_call of its creation code answers one byte, 1 for yes. So what the wallet's factory does is forgotten.
contract SignatureProbe {
    /// The end of a signature of a wallet that is not deployed yet.
    bytes32 private constant WRAPPED = 0x6492649264926492649264926492649264926492649264926492649264926492;

    constructor(address wallet, bytes32 hash, bytes memory signature) {
        bool signed = ask(wallet, hash, signature);
        assembly ("memory-safe") {
            mstore(0, signed)
            return(31, 1)
        }
    }

    function ask(address wallet, bytes32 hash, bytes memory signature) private returns (bool) {
        if (signature.length >= 32 && ending(signature) == WRAPPED) {
            address factory;
            bytes memory deploy;
            (factory, deploy, signature) = unwrap(signature);
            if (wallet.code.length == 0) {
                (bool done,) = factory.call(deploy);
                if (!done) return false;
            }
        }
        if (wallet.code.length == 0) return false;
        (bool answered, bytes memory said) = wallet.staticcall(abi.encodeCall(IERC1271.isValidSignature, (hash, signature)));
        return answered && said.length >= 32 && abi.decode(said, (bytes32)) == bytes32(IERC1271.isValidSignature.selector);
    }

    function ending(bytes memory signature) private pure returns (bytes32 last) {
        assembly ("memory-safe") {
            last := mload(add(signature, mload(signature)))
        }
    }

    /// What is wrapped is the factory, its call and the signature, ABI-encoded, and the ending.
    function unwrap(bytes memory signature) private pure returns (address, bytes memory, bytes memory) {
        assembly ("memory-safe") {
            mstore(signature, sub(mload(signature), 32))
        }
        return abi.decode(signature, (address, bytes, bytes));
    }
}
