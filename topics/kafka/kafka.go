// Package kafka is the only package that talks to brokers: transactions, read-committed readers, group
// membership and provisioning. It must not know what is in a record, apart from the schema ID.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is a Kafka record; other packages do not import the client.
type Record = kgo.Record

// Header is a header of a Record.
type Header = kgo.RecordHeader

var (
	// ErrFenced: another producer took the transactional ID. Stop, and do not take it back unless told so.
	ErrFenced = errors.New("fenced: another producer holds the transactional ID")

	// ErrUnknown: whether the transaction was committed is unknown. Drop everything based on it and read the
	// topic's end.
	ErrUnknown = errors.New("outcome of the transaction is unknown")

	// ErrOutOfRange: the offset is no longer, or not yet, in the partition. Restore from elsewhere.
	ErrOutOfRange = errors.New("offset out of range")

	// ErrKilled: Kill was called.
	ErrKilled = errors.New("killed")
)

// classify wraps an error of the client in the sentinel that it means.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		return fmt.Errorf("%w: %w", ErrFenced, err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return fmt.Errorf("%w: %w", ErrOutOfRange, err)
	}
	return err
}

// supervise runs f and waits until it returns or ctx is done: the client's calls may ignore their context when
// the broker is dead. The goroutine ends with f, at the latest when the client is closed.
func supervise(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// If both are ready, prefer the result: a commit that succeeded at the last moment succeeded.
	select {
	case err := <-done:
		return err
	default:
		return context.Cause(ctx)
	}
}

// closeTimeout bounds how long closing a client may take.
const closeTimeout = 2 * time.Second

// closeClient closes a client in bounded time. Cutting its connections first leaves nothing to wait for.
func closeClient(cl *kgo.Client, conns *dialer) {
	conns.kill()
	done := make(chan struct{})
	go func() { defer close(done); cl.Close() }()
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
