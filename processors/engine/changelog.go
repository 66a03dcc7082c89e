package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Records of a changelog. A key with a first byte of 0 is the engine's own; any other key is the state's.
// A value is an envelope:
//
//	version(1) | uvarint generation | payload | crc32c(4) of key and everything before
//
// The generation is counted up by each rebuild; records of an older generation are ignored. A tombstone has no value and
// therefore no generation: it only deletes what was written before it.
const changelogVersion = 1

// jointVersion is that of progress that names a Writer: a build that does not know of it must not own the partition.
const jointVersion = 2

var (
	keyProgress = []byte{0, 'p'} // last record of every commit
	keyOpen     = []byte{0, 'o'} // first record of an owner: its offset is the incarnation; the value names the owner, for people
)

// errChangelog: a changelog record cannot be decoded.
var errChangelog = errors.New("changelog record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal appends the envelope of a payload to b.
func seal(b, key []byte, generation uint64, payload []byte) []byte {
	return sealAs(b, changelogVersion, key, generation, payload)
}

func sealAs(b []byte, version byte, key []byte, generation uint64, payload []byte) []byte {
	from := len(b)
	b = append(b, version)
	b = binary.AppendUvarint(b, generation)
	b = append(b, payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, b[from:]))
}

// sealProgress is the value of a progress record whose commit is on top of the records below an offset; 0: that is not known.
func sealProgress(generation uint64, p progress, above int64) []byte {
	version := byte(changelogVersion)
	b := p.append(nil)
	if p.Writer != "" {
		version = jointVersion
	} else {
		b = append(b, 0)
	}
	return sealAs(nil, version, keyProgress, generation, binary.AppendVarint(b, above))
}

// unseal returns the payload of an envelope; it aliases value. Every version has the generation in the same place, and progress in
// every version begins with the fields of this one, so that a build that cannot read the rest can begin the next generation: with
// state.ErrNewer come both.
func unseal(key, value []byte) (generation uint64, payload []byte, err error) {
	if len(value) < 2+crc32.Size {
		return 0, nil, fmt.Errorf("%w: key %x: truncated", errChangelog, key)
	}
	version, whole := value[0], sealed(key, value)
	switch newer := version > jointVersion; {
	case version < changelogVersion, newer && !whole:
		return 0, nil, fmt.Errorf("%w: key %x: version %d, want %d", errChangelog, key, version, changelogVersion)
	case !whole:
		return 0, nil, fmt.Errorf("%w: key %x: checksum", errChangelog, key)
	case newer:
		err = fmt.Errorf("changelog record: key %x: %w: version %d", key, state.ErrNewer, version)
	}
	body := value[1 : len(value)-crc32.Size]
	generation, n := binary.Uvarint(body)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: key %x: generation", errChangelog, key)
	}
	return generation, body[n:], err
}

// sealed reports whether a value's checksum is valid; every version ends with the same checksum.
func sealed(key, value []byte) bool {
	body, sum := value[:len(value)-crc32.Size], value[len(value)-crc32.Size:]
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body) == binary.BigEndian.Uint32(sum)
}

// progress is how far a task has come, as of a commit.
type progress struct {
	Input       int64 // next offset of the raw topic; kafka.Start: nothing was read yet
	At          topics.BlockRef
	Reverts     uint64 // number of blocks ever reverted
	Floor       uint64 // blocks up to it are final and have no undo records
	Head        uint64 // the chain's head as the ingester saw it
	ObservedMs  int64  // when the ingester saw it
	Incarnation int64
	Records     uint64 // changelog records of this commit before this one
	Rebuild     rebuild

	Raw         kafka.TopicID // the raw topic that Input is an offset of; zero in early commits, which lack it
	LeaderEpoch int32         // leader epoch of the last record before Input
	App         uint32        // version of the application that made the commit

	// Writer is the transactional ID under which the owner may write next besides the partition's own; empty: none.
	Writer string
}

// rebuild is what a task that reprocesses the raw topic must know of the previous generation.
type rebuild struct {
	Begin     int64  // changelog offset below which all records are of older generations
	Published int64  // events of input below this offset are already published
	Settled   uint64 // events of blocks up to this one are already published as final
	KeepFrom  uint64 // undo records are kept from this block on
	KeepUntil int64  // below this offset undo records are kept even of final blocks: they are reverted there
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
	b = binary.AppendVarint(b, p.Rebuild.KeepUntil)
	b = append(b, p.Raw[:]...)
	b = binary.AppendVarint(b, int64(p.LeaderEpoch))
	b = binary.AppendUvarint(b, uint64(p.App))
	if p.Writer != "" {
		b = append(binary.AppendUvarint(b, uint64(len(p.Writer))), p.Writer...)
	}
	return b
}

// fields reads numbers from a slice; the first error sticks.
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

func (f *fields) topicID() (id kafka.TopicID) {
	if f.bad || len(f.b) < len(id) {
		f.bad = true
		return id
	}
	f.b = f.b[copy(id[:], f.b):]
	return id
}

func (f *fields) text() string {
	n := f.uint()
	if f.bad || n > uint64(len(f.b)) {
		f.bad = true
		return ""
	}
	s := string(f.b[:n])
	f.b = f.b[n:]
	return s
}

// progress reads the remaining fields: those that an early commit lacks stay zero, those of a later version are
// skipped.
func (f *fields) progress() progress {
	p := progress{
		Input:   f.int(),
		At:      topics.BlockRef{Number: f.uint(), Hash: f.hash(), Timestamp: f.uint()},
		Reverts: f.uint(), Floor: f.uint(), Head: f.uint(), ObservedMs: f.int(),
		Incarnation: f.int(), Records: f.uint(),
		Rebuild: rebuild{Begin: f.int(), Published: f.int(), Settled: f.uint(), KeepFrom: f.uint(), KeepUntil: f.int()},
	}
	if len(f.b) > 0 {
		p.Raw, p.LeaderEpoch, p.App = f.topicID(), int32(f.int()), uint32(f.uint())
	}
	if len(f.b) > 0 {
		p.Writer = f.text()
	}
	return p
}

func decodeProgress(b []byte) (p progress, above int64, err error) {
	f := fields{b: b}
	p = f.progress()
	if len(f.b) > 0 { // a commit of an earlier build does not say
		above = f.int()
	}
	if f.bad {
		return progress{}, 0, fmt.Errorf("%w: progress", errChangelog)
	}
	return p, above, nil
}

// position is what a store keeps as meta with its rows: how far they have come in the logs.
type position struct {
	Generation uint64
	Changelog  int64         // next offset to apply
	WrittenMs  int64         // as of when the changelog is applied, at least: a store older than its tombstones cannot be resumed
	Log        kafka.TopicID // the changelog that Changelog is an offset of; zero: unknown
	Since      int64         // offset after the record of Progress: no owner after that one's has begun below it
	Progress   progress

	// The records below Read, which was the end of what was read, were written up to a leader epoch; 0: that is not known. An owner
	// does not learn the epochs of what it writes.
	Read  int64
	Epoch int32
}

// The first version lacks the changelog's topic ID, and the second one the progress's Writer, and what is after that. Every later one
// begins as they do, up to that ID, so that a build that cannot read the rest knows whether a rebuild of that topic has ended it.
const (
	positionVersionBefore = 1
	positionVersionLog    = 2
	positionVersion       = 3
)

func (p position) encode() []byte {
	b := append(make([]byte, 0, 256), positionVersion)
	b = binary.AppendUvarint(b, p.Generation)
	b = binary.AppendVarint(b, p.Changelog)
	b = binary.AppendVarint(b, p.WrittenMs)
	b = append(b, p.Log[:]...)
	if b = p.Progress.append(b); p.Progress.Writer == "" {
		b = append(b, 0)
	}
	b = binary.AppendVarint(b, p.Since)
	return binary.AppendVarint(binary.AppendVarint(b, p.Read), int64(p.Epoch))
}

// decodePosition is the reverse. With state.ErrNewer comes what every version begins with, and nothing else.
func decodePosition(b []byte) (position, error) {
	if len(b) == 0 || b[0] < positionVersionBefore {
		return position{}, fmt.Errorf("%w: position", errChangelog)
	}
	f := fields{b: b[1:]}
	p := position{Generation: f.uint(), Changelog: f.int(), WrittenMs: f.int()}
	if b[0] >= positionVersionLog {
		p.Log = f.topicID()
	}
	if b[0] > positionVersion && !f.bad {
		return p, fmt.Errorf("position: %w: version %d", state.ErrNewer, b[0])
	}
	p.Progress = f.progress()
	if p.Since = p.Progress.Incarnation + 1; len(f.b) > 0 { // a position of an earlier build lacks it: its owner began before it at least
		p.Since = f.int()
	}
	if len(f.b) > 0 { // so may it lack these
		p.Read, p.Epoch = f.int(), int32(f.int())
	}
	if f.bad {
		return position{}, fmt.Errorf("%w: position", errChangelog)
	}
	return p, nil
}

// startOffset stands for the first record that a partition still has.
const startOffset = -2

// unopened is the position of an empty store.
func unopened() position {
	return position{Changelog: startOffset, Progress: progress{Input: startOffset}}
}
