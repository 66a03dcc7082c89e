package hotcache

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// The overview of the pool is one value under one key:
//
//	 0..31  reverts and number, 16 hexadecimal digits each: what pool.lua compares
//	32..63  hash
//	64..71  timestamp
//	72      how many earlier lowest watermarks follow, of the same count of reverts: number (8), hash (32)
//	then    the overview, as frames behind their lengths
//
// It expires unless it is written again, so that what a chain or a history that is no more left behind does
// not outrank the present for long.
const (
	poolOrderBytes = 32
	poolHeadBytes  = poolOrderBytes + common.HashLength + 8 + 1
	barrierBytes   = 8 + common.HashLength
	poolAncestors  = 32      // some seconds of blocks that a reader may be behind
	maxPoolBytes   = 8 << 10 // a page of burns and the rest are below 4 KiB, the ancestors 1.3
)

// The frames of an overview. What is nil is empty, with all that belongs to it.
const (
	framePool = iota
	framePriceNum
	framePriceDen
	frameWeight
	frameDepth
	frameEpoch
	frameBurned
	frameEmissions
	frameFloorTick
	frameFloorNum
	frameFloorDen
	frameBurns // and on: one each

	maxPoolBurns  = 20
	maxPoolFrames = frameBurns + maxPoolBurns
)

// overview is the head of a value under the pool's key.
type overview struct {
	page
	earlier []byte // barriers
}

// encodeOverview makes the value. The blocks before it are those that were the lowest watermark.
func encodeOverview(wm query.Watermark, before []seenBlock, v *query.PoolOverview) ([]byte, error) {
	b := fmt.Appendf(make([]byte, 0, 4<<10), "%016x%016x", wm.Reverts, wm.At.Number)
	b = append(b, wm.At.Hash[:]...)
	b = binary.BigEndian.AppendUint64(b, wm.At.Timestamp)
	before = before[max(0, len(before)-poolAncestors):]
	b = append(b, byte(len(before)))
	for _, s := range before {
		b = append(b, barrier(s.block)...)
	}
	var (
		frames [maxPoolFrames][]byte
		errs   []error
	)
	row := func(at int, encode func([]byte) ([]byte, error)) {
		raw, err := encode(nil)
		frames[at], errs = raw, append(errs, err)
	}
	word := func(at int, n *uint256.Int) {
		if n != nil {
			raw := n.Bytes32()
			frames[at] = raw[:]
		}
	}
	price := func(at int, p query.Price) {
		frames[at], frames[at+1] = p.Num.Bytes(), p.Den.Bytes()
	}
	if p := v.Pool; p != nil {
		row(framePool, p.AppendBinary)
		price(framePriceNum, p.PriceSTKNinTKN)
		word(frameWeight, &p.TotalWeight)
		word(frameDepth, &p.DepthTKN)
	}
	if v.Epoch != nil {
		row(frameEpoch, v.Epoch.AppendBinary)
	}
	word(frameBurned, v.BurnedThisWeek)
	word(frameEmissions, v.EmissionsRatePerSecond)
	if f := v.Floor; f != nil {
		frames[frameFloorTick] = binary.BigEndian.AppendUint32(nil, uint32(f.Tick))
		price(frameFloorNum, f.PriceSTKNinTKN)
	}
	if len(v.Burns) > maxPoolBurns {
		return nil, fmt.Errorf("%d burns in an overview", len(v.Burns))
	}
	for i := range v.Burns {
		row(frameBurns+i, v.Burns[i].AppendBinary)
	}
	for _, f := range frames[:frameBurns+len(v.Burns)] {
		b = append(binary.AppendUvarint(b, uint64(len(f))), f...)
	}
	if len(b) > maxPoolBytes {
		errs = append(errs, fmt.Errorf("overview of %d bytes", len(b)))
	}
	return b, errors.Join(errs...)
}

// decodeOverviewHead reads which block a value is of, and returns what follows.
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

// descends says that the block was the lowest watermark before the value's.
func (o *overview) descends(from topics.BlockRef) bool {
	want := barrier(from)
	for b := o.earlier; len(b) > 0; b = b[barrierBytes:] {
		if string(b[:barrierBytes]) == want {
			return true
		}
	}
	return false
}

// decodeFrames reads the overview itself.
func decodeFrames(b []byte) (v query.PoolOverview, err error) {
	var frames [][]byte
	for len(b) > 0 {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) || len(frames) == maxPoolFrames {
			return v, errMalformed
		}
		frames = append(frames, b[n:n+int(size)])
		b = b[n+int(size):]
	}
	if len(frames) < frameBurns {
		return v, errMalformed
	}
	d := frameDecoder{frames: frames}
	if d.has(framePool) {
		v.Pool = &query.PoolSummary{PriceSTKNinTKN: d.price(framePriceNum)}
		d.row(framePool, v.Pool.UnmarshalBinary)
		v.Pool.TotalWeight, v.Pool.DepthTKN = *d.word(frameWeight), *d.word(frameDepth)
	}
	if d.has(frameEpoch) {
		v.Epoch = new(topics.Epoch)
		d.row(frameEpoch, v.Epoch.UnmarshalBinary)
	}
	if d.has(frameBurned) {
		v.BurnedThisWeek = d.word(frameBurned)
	}
	if d.has(frameEmissions) {
		v.EmissionsRatePerSecond = d.word(frameEmissions)
	}
	if d.has(frameFloorTick) {
		if len(frames[frameFloorTick]) != 4 {
			return v, errMalformed
		}
		tick := int32(binary.BigEndian.Uint32(frames[frameFloorTick]))
		v.Floor = &query.Floor{Tick: tick, PriceSTKNinTKN: d.price(frameFloorNum)}
	}
	for i := frameBurns; i < len(frames); i++ {
		var burn topics.Burn
		d.row(i, burn.UnmarshalBinary)
		v.Burns = append(v.Burns, burn)
	}
	if d.err != nil {
		return query.PoolOverview{}, d.err
	}
	return v, nil
}

// frameDecoder keeps the first error.
type frameDecoder struct {
	frames [][]byte
	err    error
}

func (d *frameDecoder) has(at int) bool { return len(d.frames[at]) > 0 }

func (d *frameDecoder) fail(err error) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %w", errMalformed, err)
	}
}

func (d *frameDecoder) row(at int, decode func([]byte) error) {
	if err := decode(d.frames[at]); err != nil {
		d.fail(err)
	}
}

func (d *frameDecoder) word(at int) *uint256.Int {
	if len(d.frames[at]) != 32 {
		d.fail(fmt.Errorf("word of %d bytes", len(d.frames[at])))
	}
	return new(uint256.Int).SetBytes(d.frames[at])
}

func (d *frameDecoder) price(at int) query.Price {
	p := query.Price{Num: new(big.Int).SetBytes(d.frames[at]), Den: new(big.Int).SetBytes(d.frames[at+1])}
	if p.Den.Sign() == 0 {
		d.fail(errors.New("price over zero"))
	}
	return p
}
