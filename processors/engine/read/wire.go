package read

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/topics"
)

// Bounds of the messages between nodes.
const (
	maxRequestBytes = 64<<10 + maxPayloadBytes
	maxPayloadBytes = 4 << 20
	maxAnswerBytes  = 64 << 20
	maxNameBytes    = 64
	maxPartitions   = 4096
	maxWatch        = 10 * time.Second
	maxKept         = 64
)

// layout is the first byte of every message: another build's may be another.
const layout = 7

// nodeRequest asks a node for what its partitions of an application hold.
type nodeRequest struct {
	Application string
	Operation   string
	Partitions  []int32
	Pinned      bool            // answer as of the block At, else as of the latest
	At          topics.BlockRef // number and hash
	Payload     []byte          // the encoded query

	// Here:
	op       *Operation
	query    Query
	frontier Moment // At is its block; zero: it is the caller's
	aside    bool   // the answer is only for who named a block beyond the frontier
	owned    bool   // of Request
}

// Code implements wire.Value.
func (r *nodeRequest) Code(c *wire.Coder) {
	codeLayout(c)
	c.Text(&r.Application, maxNameBytes)
	c.Text(&r.Operation, maxNameBytes)
	wire.Slice(c, &r.Partitions, maxPartitions, 1, c.Int32)
	if c.Bool(&r.Pinned); r.Pinned {
		codeBlock(c, &r.At)
	}
	c.Bytes(&r.Payload, maxPayloadBytes)
}

func (r *nodeRequest) validate() error {
	switch {
	case len(r.Partitions) > maxPartitions, r.Operation != watermarks && len(r.Partitions) == 0:
		return fmt.Errorf("%w: %d partitions", ErrBadRequest, len(r.Partitions))
	case r.Operation == "":
		return fmt.Errorf("%w: operation is missing", ErrBadRequest)
	}
	return nil
}

// watch is the query of watermarks: the response may be delayed while they are those that the client has.
type watch struct {
	Seen uint64 // digest of the client's watermarks
	Wait time.Duration
	Keep Point // the moment that the caller answers as of; zero: none
}

// Code implements wire.Value.
func (w *watch) Code(c *wire.Coder) {
	c.Uint64(&w.Seen)
	c.Int64((*int64)(&w.Wait))
	codePoint(c, &w.Keep)
}

// Validate implements Query.
func (w *watch) Validate() error {
	if w.Wait < 0 || w.Wait > maxWatch {
		return fmt.Errorf("wait: %s is out of bounds", w.Wait)
	}
	return nil
}

// Response is the result of an operation over some partitions, as of one block.
type Response struct {
	Moment
	Watermarks []Watermark // taken before the partitions were read: the response is no older
	Items      []Item
}

// Item is an encoded row of a response. Items that are dropped in a merge are never decoded, and local and
// remote responses are handled alike.
type Item struct {
	Key   []byte   // position in the list: bytes ascend
	Row   []byte   // empty: there is none
	Parts [][]byte // more rows that belong to it
}

// Minimum encoded sizes.
const (
	itemBytes = 3
	markBytes = 1 + 1 + 1 + 1 + common.HashLength + 1 + 1 + 1 + 1 + 1 + 1
)

// Code implements wire.Value.
func (r *Response) Code(c *wire.Coder) {
	codeLayout(c)
	codeBlock(c, &r.Block)
	c.Uint64(&r.Reverts)
	wire.Slice(c, &r.Watermarks, maxPartitions, markBytes, func(w *Watermark) { w.code(c) })
	wire.Slice(c, &r.Items, maxAnswerBytes, itemBytes, func(it *Item) {
		c.Bytes(&it.Key, maxAnswerBytes)
		c.Bytes(&it.Row, maxAnswerBytes)
		wire.Slice(c, &it.Parts, maxAnswerBytes, 1, func(part *[]byte) { c.Bytes(part, maxAnswerBytes) })
	})
}

func (w *Watermark) code(c *wire.Coder) {
	c.Int32(&w.Partition)
	standby := w.Role == topics.RoleStandby
	if c.Bool(&standby); c.Decoding() {
		if w.Role = topics.RoleOwner; standby {
			w.Role = topics.RoleStandby
		}
	}
	c.Int64(&w.Incarnation)
	codeBlock(c, &w.At)
	c.Uint64(&w.Latest)
	seconds, nanos := w.ObservedAt.Unix(), uint32(w.ObservedAt.Nanosecond())
	c.Int64(&seconds)
	if c.Uint32(&nanos); c.Decoding() {
		w.ObservedAt = time.Unix(seconds, int64(nanos)).UTC()
	}
	c.Uint64(&w.Reverts)
	wire.Slice(c, &w.Kept, maxKept, 2, func(p *Point) { codePoint(c, p) })
}

func codePoint(c *wire.Coder, p *Point) {
	c.Uint64(&p.Reverts)
	c.Uint64(&p.Number)
}

func codeLayout(c *wire.Coder) {
	v := uint8(layout)
	if c.Uint8(&v); v != layout {
		c.Fail("message layout %d, want %d: the node runs another build", v, layout)
	}
}

func codeBlock(c *wire.Coder, b *topics.BlockRef) {
	c.Uint64(&b.Number)
	c.Fixed(b.Hash[:])
	c.Uint64(&b.Timestamp)
}

func encodeRequest(r *nodeRequest) ([]byte, error) {
	const block, numbers = common.HashLength + 2*binary.MaxVarintLen64, 16
	return wire.Append(make([]byte, 0, len(r.Application)+len(r.Operation)+5*len(r.Partitions)+len(r.Payload)+block+numbers), r)
}

func decodeRequest(raw []byte) (*nodeRequest, error) {
	var r nodeRequest
	if err := wire.Decode(raw, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return &r, r.validate()
}

// appendResponse appends the encoding of a response.
func appendResponse(b []byte, a *Response) ([]byte, error) {
	before := len(b)
	b, err := wire.Append(b, a)
	if err != nil {
		return b, fmt.Errorf("encode response: %w", err)
	}
	if n := len(b) - before; n > maxAnswerBytes {
		return b, fmt.Errorf("response of %d bytes is too large", n)
	}
	return b, nil
}

// decodeResponse decodes a response, which keeps raw.
func decodeResponse(raw []byte) (*Response, error) {
	if len(raw) > maxAnswerBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrMalformed, maxAnswerBytes)
	}
	var a Response
	if err := wire.Decode(raw, &a); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return &a, nil
}
