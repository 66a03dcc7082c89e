package hotcache

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// The overview of the pool is one value under one key:
//
//	 0..31  reverts and number, 16 hexadecimal digits each: what pool.lua compares
//	32..63  hash
//	64..71  timestamp
//	72      how many earlier lowest watermarks follow, of the same count of reverts: number (8), hash (32)
//	then    the overview
//
// It expires unless it is rewritten, so that the value of an abandoned chain or branch does not outrank the
// current one for long.
const (
	poolOrderBytes = 32
	poolHeadBytes  = poolOrderBytes + common.HashLength + 8 + 1
	barrierBytes   = 8 + common.HashLength
	poolAncestors  = 32      // a reader may be some seconds of blocks behind
	maxPoolBytes   = 8 << 10 // the overview is below 4 KiB, the ancestors 1.3
)

// overview is the header of the pool's value.
type overview struct {
	page
	earlier []byte // barriers
}

// encodeOverview encodes the value. before are the earlier lowest watermarks.
func encodeOverview(wm query.Watermark, before []seenBlock, v *query.PoolOverview) ([]byte, error) {
	b := fmt.Appendf(make([]byte, 0, 4<<10), "%016x%016x", wm.Reverts, wm.At.Number)
	b = append(b, wm.At.Hash[:]...)
	b = binary.BigEndian.AppendUint64(b, wm.At.Timestamp)
	before = before[max(0, len(before)-poolAncestors):]
	b = append(b, byte(len(before)))
	for _, s := range before {
		b = append(b, barrier(s.block)...)
	}
	b, err := wire.Append(b, v)
	if err == nil && len(b) > maxPoolBytes {
		err = fmt.Errorf("pool overview has %d bytes", len(b))
	}
	return b, err
}

// decodeOverviewHead decodes the header, and returns the rest.
func decodeOverviewHead(b []byte) (o overview, rest []byte, err error) {
	if len(b) < poolHeadBytes {
		return o, nil, errMalformed
	}
	var order [poolOrderBytes / 2]byte
	if _, err := hex.Decode(order[:], b[:poolOrderBytes]); err != nil {
		return o, nil, errMalformed
	}
	o.reverts, o.at.Number = binary.BigEndian.Uint64(order[:]), binary.BigEndian.Uint64(order[8:])
	o.at.Hash = common.Hash(b[poolOrderBytes : poolOrderBytes+common.HashLength])
	o.at.Timestamp = binary.BigEndian.Uint64(b[poolOrderBytes+common.HashLength:])
	size := int(b[poolHeadBytes-1]) * barrierBytes
	if b = b[poolHeadBytes:]; len(b) < size {
		return o, nil, errMalformed
	}
	o.earlier = b[:size]
	return o, b[size:], nil
}

// descends reports whether a block was the lowest watermark before the value's block.
func (o *overview) descends(from topics.BlockRef) bool {
	want := barrier(from)
	for b := o.earlier; len(b) > 0; b = b[barrierBytes:] {
		if string(b[:barrierBytes]) == want {
			return true
		}
	}
	return false
}

// decodeOverview reads the overview itself.
func decodeOverview(b []byte) (v query.PoolOverview, err error) {
	if err := wire.Decode(b, &v); err != nil {
		return query.PoolOverview{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return v, nil
}
