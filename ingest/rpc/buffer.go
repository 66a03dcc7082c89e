package rpc

import (
	"bytes"
	"context"
	"io"
)

// buffer is a response. Buffers are reused: a response to eth_getLogs takes megabytes.
type buffer struct {
	bytes.Buffer
	large chan struct{} // where it occupies the slot for a large response; nil: it is not large
}

// buffers are the free ones. A sync.Pool would be cleared by garbage collections, which are more frequent than
// responses.
var buffers = make(chan *buffer, 4)

const (
	maxKept  = 4 << 20 // the largest that is reused
	maxSmall = 8 << 20 // responses are rarely larger
)

func newBuffer() *buffer {
	select {
	case b := <-buffers:
		b.Reset()
		return b
	default:
		return new(buffer)
	}
}

// release frees the memory, and the slot of a large response.
func (b *buffer) release() {
	if b.large != nil {
		<-b.large
		b.large = nil
	}
	if b.Cap() > maxKept {
		b.Buffer = bytes.Buffer{}
		return
	}
	select {
	case buffers <- b:
	default:
	}
}

// read reads at most `most` bytes; errTooBig beyond, with the beginning kept. length is the size that the response
// claims, or not positive; it only sizes the memory. Up to maxSmall it reads at once; a larger response waits until
// the endpoint's previous large one is decoded.
func (b *buffer) read(ctx context.Context, e *endpoint, from io.Reader, length int64, most int) error {
	small := min(most, maxSmall)
	if length > 0 {
		b.Grow(int(min(length, int64(small))) + 1 + bytes.MinRead)
	}
	err := b.upTo(small, from)
	switch {
	case err != nil || b.Len() <= small:
		return err
	case small == most || length > int64(most):
		return errTooBig
	}
	select {
	case e.large <- struct{}{}:
		b.large = e.large
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, end := range []int{int(length), most} {
		if end < b.Len() {
			continue
		}
		b.room(end)
		if err := b.upTo(end, from); err != nil || b.Len() <= end {
			return err
		}
	}
	return errTooBig
}

// room makes room for this many bytes, and one more that shows an excess. Grow would double the memory.
func (b *buffer) room(most int) {
	grown := make([]byte, b.Len(), most+1+bytes.MinRead)
	copy(grown, b.Bytes())
	b.Buffer = *bytes.NewBuffer(grown)
}

// upTo reads on until it has more than this many bytes, or all.
func (b *buffer) upTo(most int, from io.Reader) error {
	_, err := b.ReadFrom(io.LimitReader(from, int64(most)+1-int64(b.Len())))
	return err
}

// bound is the maximum size of the response to calls: hex plus JSON syntax.
func (e *endpoint) bound(calls []call) int {
	const around = 4 << 10
	sum := 0
	for _, c := range calls {
		if c.bytes == 0 {
			return e.client.cfg.MaxBody
		}
		sum += 2*c.bytes + around
	}
	return min(sum, e.client.cfg.MaxBody)
}
