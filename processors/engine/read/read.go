// Package read is the read API of an application of the engine: the handler that a node serves, and the router
// that a serving node uses. Within one process the router calls the node directly. It must not write state, and
// knows nothing about an application but its name and operations.
package read

import (
	"errors"
	"time"

	"github.com/lienstream/lienstream/topics"
)

// ErrUnavailable: no node can answer now; try again later.
var ErrUnavailable = errors.New("no processor node can answer for the partition")

// ErrNotFound: the entity does not exist as of the answer's block.
var ErrNotFound = errors.New("not found")

// ErrStale: no node reached the requested minimum block within a second.
var ErrStale = errors.New("requested block is not applied yet")

// ErrExpired: a node no longer has what is requested, so a retry is useless. An operation that returns it
// documents what to request instead.
var ErrExpired = errors.New("no longer available")

// ErrBadRequest: the request is invalid.
var ErrBadRequest = errors.New("bad request")

// ErrMalformed: the response does not decode as the operation's result.
var ErrMalformed = errors.New("malformed response")

// Answer is a value and the block that it is as of.
type Answer[T any] struct {
	At    topics.BlockRef
	Value T
	From  []int32 // the partitions that it was read from; nil: all
}

// Page is a part of a list. Next is the position of its last item if more may follow, else nil.
type Page[T any] struct {
	Items []T
	Next  []byte
}

// Head is the chain's head as the processors know it, and how far they are.
type Head struct {
	Indexed    topics.BlockRef // what is read is as of it: the frontier, or the lowest watermark of all partitions
	Reverts    uint64          // blocks that were ever reverted before Indexed
	Latest     uint64          // the chain's head as the ingester last saw it
	ObservedAt time.Time       // when the ingester last saw the chain (the lowest of all partitions)
}
