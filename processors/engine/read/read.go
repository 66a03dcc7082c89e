// Package read is how an application of the engine is read, both ends: the handler that a node serves and
// the router that a serving node asks. In one process the router calls the node directly. It must not write
// state, and knows of an application nothing but its name and its operations.
package read

import (
	"errors"
	"time"

	"github.com/lienstream/lienstream/topics"
)

// ErrUnavailable means that no node can answer now: ask again later.
var ErrUnavailable = errors.New("no processor node can answer for the partition")

// ErrNotFound means that the entity does not exist as of the answer's block.
var ErrNotFound = errors.New("not found")

// ErrStale means that nobody is at the block yet that the caller asked for at least, nor was within a second.
var ErrStale = errors.New("requested block is not applied yet")

// ErrExpired means that a node no longer knows what is asked for: asking again is of no use. An operation
// that answers so says what its caller should ask instead.
var ErrExpired = errors.New("no longer available")

// ErrBadRequest means that a question breaks its own rules.
var ErrBadRequest = errors.New("bad request")

// ErrMalformed means that an answer is not what its operation gives.
var ErrMalformed = errors.New("malformed response")

// Answer is a value and the block that it is true as of.
type Answer[T any] struct {
	At    topics.BlockRef
	Value T
	From  []int32 // the partitions that it was read from; nil: all
}

// Page is a part of a list. Next is the position of its last item where more may follow, else nil.
type Page[T any] struct {
	Items []T
	Next  []byte
}

// Head is what the processors know of the chain and of themselves.
type Head struct {
	Indexed    topics.BlockRef // the lowest watermark of all partitions
	Latest     uint64          // the chain's head as the ingester last saw it
	ObservedAt time.Time       // when the ingester last saw the chain (the lowest of all partitions)
}
