// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Scribe} from "./Scribe.sol";

/// A token in name alone, for tests: it writes whatever logs it is told to.
contract Forger is Scribe {
    string public constant name = "Forger";
    string public constant symbol = "FORGE";
    uint8 public constant decimals = 18;
}
