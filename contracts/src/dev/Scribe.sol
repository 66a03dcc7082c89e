// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

/// Writes whatever logs it is told to, so that a benchmark has years of a market's history in seconds. Calldata is
/// logs one behind another, each: count of topics (1 byte), topics (32 each), length of the data (2), data.
contract Scribe {
    fallback() external {
        assembly ("memory-safe") {
            let memory_ := mload(0x40)
            for { let at := 0 } lt(at, calldatasize()) {} {
                let count := byte(0, calldataload(at))
                let topic := add(at, 1)
                let size := shr(240, calldataload(add(topic, mul(count, 32))))
                let data := add(add(topic, mul(count, 32)), 2)
                calldatacopy(memory_, data, size)
                let t1 := calldataload(topic)
                let t2 := calldataload(add(topic, 32))
                let t3 := calldataload(add(topic, 64))
                switch count
                case 0 { log0(memory_, size) }
                case 1 { log1(memory_, size, t1) }
                case 2 { log2(memory_, size, t1, t2) }
                case 3 { log3(memory_, size, t1, t2, t3) }
                default { log4(memory_, size, t1, t2, t3, calldataload(add(topic, 96))) }
                at := add(data, size)
            }
        }
    }
}
