// SPDX-License-Identifier: MIT
pragma solidity ^0.8.26;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {TickBitmap} from "@uniswap/v4-core/src/libraries/TickBitmap.sol";

/// What a unit of weight earned inside a range, second by second: the accumulators by which Uniswap shares fees among
/// positions, driven by time instead of swaps. Growth wraps around; only differences of the same range mean something.
///
/// Invariants:
///  1. activeWeight = the sum of the weights of the ranges that tick lies in.
///  2. Moving there and back at one time changes no range's growth.
///  3. _advance never reverts: a pool's every swap calls it.
abstract contract RangeGrowth {
    using TickBitmap for mapping(int16 => uint256);

    /// A tick at which ranges with weight begin or end.
    struct Boundary {
        uint128 gross;
        int128 net; // what becomes active when the tick comes up across it
        uint256 emissionsOutsideX128;
        uint256 feesOutsideX128;
    }

    /// An amount that is spread evenly over time. While no weight is active what flows is kept for later.
    struct Stream {
        uint40 finish;
        uint256 rateX128; // a second
        uint256 keptX128;
    }

    uint256 internal constant Q128 = 1 << 128;

    int24 internal immutable _tickSpacing;

    int24 public tick; // of the pool since the last _advance
    uint40 public accruedAt;
    uint128 public activeWeight;
    uint256 public emissionsPerWeightX128;
    uint256 public feesPerWeightX128;

    Stream internal _emissions;
    Stream internal _fees;
    mapping(int24 tick => Boundary) internal _boundaries;
    mapping(int16 word => uint256) internal _boundaryBits;

    constructor(int24 tickSpacing) {
        _tickSpacing = tickSpacing;
    }

    /// Accrues what flowed at the tick until now, then moves to where the pool is.
    function _advance(int24 to) internal {
        unchecked {
            emissionsPerWeightX128 += _flow(_emissions);
            feesPerWeightX128 += _flow(_fees);
            accruedAt = uint40(block.timestamp);
            _move(to);
        }
    }

    /// Growth per weight since accruedAt.
    function _flow(Stream storage s) private returns (uint256) {
        unchecked {
            uint256 to = Math.min(block.timestamp, s.finish);
            if (to <= accruedAt) return 0;
            uint256 flowedX128 = (to - accruedAt) * s.rateX128;
            if (activeWeight != 0) return flowedX128 / activeWeight;
            s.keptX128 += flowedX128;
            return 0;
        }
    }

    function _move(int24 to) private {
        unchecked {
            int24 at = tick;
            while (at < to) {
                (int24 next, bool found) = _boundaryBits.nextInitializedTickWithinOneWord(at, _tickSpacing, false);
                if (next > to) break;
                if (found) _cross(next, true);
                at = next;
            }
            while (at > to) {
                (int24 next, bool found) = _boundaryBits.nextInitializedTickWithinOneWord(at, _tickSpacing, true);
                if (next <= to) break;
                if (found) _cross(next, false);
                at = next - 1;
            }
            tick = to;
        }
    }

    function _cross(int24 at, bool up) private {
        unchecked {
            Boundary storage b = _boundaries[at];
            b.emissionsOutsideX128 = emissionsPerWeightX128 - b.emissionsOutsideX128;
            b.feesOutsideX128 = feesPerWeightX128 - b.feesOutsideX128;
            int128 net = up ? b.net : -b.net;
            activeWeight = uint128(int128(activeWeight) + net);
        }
    }

    /// Right after _advance.
    function _addWeight(int24 lower, int24 upper, uint128 weight) internal {
        if (weight == 0) return;
        _change(lower, int128(weight), int128(weight));
        _change(upper, int128(weight), -int128(weight));
        if (lower <= tick && tick < upper) activeWeight += weight;
    }

    function _removeWeight(int24 lower, int24 upper, uint128 weight) internal {
        if (weight == 0) return;
        _change(lower, -int128(weight), -int128(weight));
        _change(upper, -int128(weight), int128(weight));
        if (lower <= tick && tick < upper) activeWeight -= weight;
    }

    function _change(int24 at, int128 gross, int128 net) private {
        Boundary storage b = _boundaries[at];
        bool began = b.gross == 0;
        b.gross = uint128(int128(b.gross) + gross);
        b.net += net;
        if (began) {
            _boundaryBits.flipTick(at, _tickSpacing);
            if (at <= tick) {
                b.emissionsOutsideX128 = emissionsPerWeightX128;
                b.feesOutsideX128 = feesPerWeightX128;
            }
        } else if (b.gross == 0) {
            _boundaryBits.flipTick(at, _tickSpacing);
            delete _boundaries[at];
        }
    }

    /// Growth inside a range with weight.
    function _inside(int24 lower, int24 upper) internal view returns (uint256 emissionsX128, uint256 feesX128) {
        unchecked {
            Boundary storage l = _boundaries[lower];
            Boundary storage u = _boundaries[upper];
            emissionsX128 = l.emissionsOutsideX128 - u.emissionsOutsideX128;
            feesX128 = l.feesOutsideX128 - u.feesOutsideX128;
            if (tick >= upper) return (0 - emissionsX128, 0 - feesX128);
            if (tick < lower) return (emissionsX128, feesX128);
            emissionsX128 = emissionsPerWeightX128 - l.emissionsOutsideX128 - u.emissionsOutsideX128;
            feesX128 = feesPerWeightX128 - l.feesOutsideX128 - u.feesOutsideX128;
        }
    }
}
