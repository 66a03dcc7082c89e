package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
)

// Records of a changelog. A key with a first byte of 0 is the engine's own; any other key is the state's.
// A value is an envelope:
//
//	version(1) | uvarint epoch | payload | crc32c(4) of key and everything before
//
// An epoch is a life of the changelog: a rebuild begins a new one, and what an older one wrote before it
// means nothing any more. A tombstone has no value and so no epoch: it can only take away what came
// before it.
const changelogVersion = 1

var (
	keyProgress = []byte{0, 'p'} // last record of every commit
	keyOpen     = []byte{0, 'o'} // an owner begins: its offset is the incarnation; the value, who, is for people
)

// errChangelog means that a record of the changelog cannot be read.
var errChangelog = errors.New("changelog record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal appends a value to b.
func seal(b, key []byte, epoch uint64, payload []byte) []byte {
	from := len(b)
	b = append(b, changelogVersion)
	b = binary.AppendUvarint(b, epoch)
	b = append(b, payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, b[from:]))
}

// unseal returns the payload; it aliases value.
func unseal(key, value []byte) (epoch uint64, payload []byte, err error) {
	if len(value) < 2+crc32.Size {
		return 0, nil, fmt.Errorf("%w: key %x: torn", errChangelog, key)
	}
	if value[0] != changelogVersion {
		return 0, nil, fmt.Errorf("%w: key %x: version %d, want %d", errChangelog, key, value[0], changelogVersion)
	}
	body, sum := value[:len(value)-crc32.Size], value[len(value)-crc32.Size:]
	if crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body) != binary.BigEndian.Uint32(sum) {
		return 0, nil, fmt.Errorf("%w: key %x: checksum", errChangelog, key)
	}
	epoch, n := binary.Uvarint(body[1:])
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: key %x: epoch", errChangelog, key)
	}
	return epoch, body[1+n:], nil
}

// progress is how far a task has come, as of a commit.
type progress struct {
	Input       int64 // next offset of the raw topic; kafka.Start: none yet
	At          topics.BlockRef
	Reverts     uint64 // blocks ever reverted
	Floor       uint64 // blocks up to it are final: no undo
	Head        uint64 // the chain's, as the ingester saw it
	ObservedMs  int64  // when it saw it
	Incarnation int64
	Records     uint64 // of the changelog, in this commit, before this one
	Rebuild     rebuild
}

// rebuild is what a task that applies the raw topic again must know of the life before.
type rebuild struct {
	Begin     int64  // offset in the changelog before which everything is of older epochs
	Published int64  // events of input below this offset were published
	Settled   uint64 // and those of blocks up to this one as final too
	KeepFrom  uint64 // undo of blocks from this one on is kept
	KeepUntil int64  // below this offset, whatever the chain called final: they are reverted there
}

func (p progress) append(b []byte) []byte {
	b = binary.AppendVarint(b, p.Input)
	b = binary.AppendUvarint(b, p.At.Number)
	b = append(b, p.At.Hash[:]...)
	for _, v := range []uint64{p.At.Timestamp, p.Reverts, p.Floor, p.Head} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendVarint(b, p.ObservedMs)
	b = binary.AppendVarint(b, p.Incarnation)
	b = binary.AppendUvarint(b, p.Records)
	b = binary.AppendVarint(b, p.Rebuild.Begin)
	b = binary.AppendVarint(b, p.Rebuild.Published)
	b = binary.AppendUvarint(b, p.Rebuild.Settled)
	b = binary.AppendUvarint(b, p.Rebuild.KeepFrom)
	return binary.AppendVarint(b, p.Rebuild.KeepUntil)
}

// fields takes numbers off a slice; the first fault sticks.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) uint() uint64 {
	v, n := binary.Uvarint(f.b)
	if f.bad || n <= 0 {
		f.bad = true
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) int() int64 {
	v, n := binary.Varint(f.b)
	if f.bad || n <= 0 {
		f.bad = true
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) hash() (h common.Hash) {
	if f.bad || len(f.b) < len(h) {
		f.bad = true
		return h
	}
	f.b = f.b[copy(h[:], f.b):]
	return h
}

func (f *fields) progress() progress {
	return progress{
		Input:   f.int(),
		At:      topics.BlockRef{Number: f.uint(), Hash: f.hash(), Timestamp: f.uint()},
		Reverts: f.uint(), Floor: f.uint(), Head: f.uint(), ObservedMs: f.int(),
		Incarnation: f.int(), Records: f.uint(),
		Rebuild: rebuild{Begin: f.int(), Published: f.int(), Settled: f.uint(), KeepFrom: f.uint(), KeepUntil: f.int()},
	}
}

func decodeProgress(b []byte) (progress, error) {
	f := fields{b: b}
	p := f.progress()
	if f.bad || len(f.b) > 0 {
		return progress{}, fmt.Errorf("%w: progress", errChangelog)
	}
	return p, nil
}

// position is the meta that a store keeps with its rows: where they are in the logs.
type position struct {
	Epoch     uint64
	Changelog int64 // next offset to apply
	WrittenMs int64 // of the newest record applied: older than the changelog's tombstones is not resumed
	Progress  progress
}

const positionVersion = 1

func (p position) encode() []byte {
	b := append(make([]byte, 0, 160), positionVersion)
	b = binary.AppendUvarint(b, p.Epoch)
	b = binary.AppendVarint(b, p.Changelog)
	b = binary.AppendVarint(b, p.WrittenMs)
	return p.Progress.append(b)
}

func decodePosition(b []byte) (position, error) {
	if len(b) == 0 || b[0] != positionVersion {
		return position{}, fmt.Errorf("%w: position", errChangelog)
	}
	f := fields{b: b[1:]}
	p := position{Epoch: f.uint(), Changelog: f.int(), WrittenMs: f.int(), Progress: f.progress()}
	if f.bad || len(f.b) > 0 {
		return position{}, fmt.Errorf("%w: position", errChangelog)
	}
	return p, nil
}

// startOffset is the first record that a partition still has.
const startOffset = -2

// unopened is the position of an empty store.
func unopened() position {
	return position{Changelog: startOffset, Progress: progress{Input: startOffset}}
}
