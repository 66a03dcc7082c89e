package rpc

import (
	"bytes"
	"context"
	"io"
)

// buffer is a response. They are reusable: one to eth_getLogs is megabytes.
type buffer struct {
	bytes.Buffer
	large chan struct{} // whose room it takes; nil: it is not large
}

// buffers are those that are free. A sync.Pool would be cleared by garbage collections, which are more frequent than responses.
var buffers = make(chan *buffer, 4)

const (
	maxKept  = 4 << 20 // the largest that is reused
	maxSmall = 8 << 20 // a range of history, or receipts of as many blocks as are asked for at once, rarely take as much
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

// release frees the memory, and the turn of a large response.
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

// read reads a response of at most so many bytes; one that is longer is errTooBig, and its beginning is here. length is how long it says that
// it is; not positive: it does not. What is beyond maxSmall waits for the turn of the endpoint: whatever it answers, there is one large
// response of it at a time, until it is decoded, and none of another one waits for that.
func (b *buffer) read(ctx context.Context, e *endpoint, from io.Reader, length int64, most int) error {
	if length > 0 && length <= int64(min(most, maxSmall)) {
		b.Grow(int(length) + bytes.MinRead)
	}
	err := b.upTo(min(most, maxSmall), from)
	if err != nil || b.Len() <= min(most, maxSmall) {
		return err
	}
	if most > maxSmall {
		select {
		case e.large <- struct{}{}:
			b.large = e.large
		case <-ctx.Done():
			return ctx.Err()
		}
		b.Grow(most + 1 + bytes.MinRead - b.Len()) // at once, or it would be twice as much
		err = b.upTo(most, from)
	}
	if err == nil && b.Len() > most {
		err = errTooBig
	}
	return err
}

// upTo reads on until it has more than so many bytes.
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
