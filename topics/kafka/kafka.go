// Package kafka is the one place that talks to a broker: transactions, read-committed readers, group
// membership and provisioning. It must not know what is in a record, beyond the ID of its schema.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is a Kafka record, so that nobody else imports the client.
type Record = kgo.Record

// Header is a header of a Record.
type Header = kgo.RecordHeader

var (
	// ErrFenced means that another holder took the transactional ID: stop, do not open it again
	// unless you have been told that it is yours.
	ErrFenced = errors.New("fenced: another producer holds the transactional ID")

	// ErrUnknown means that nobody knows whether the transaction was committed: drop everything that
	// was built on it and read back what the topic holds.
	ErrUnknown = errors.New("outcome of the transaction is unknown")

	// ErrOutOfRange means that the offset is no longer, or not yet, in the partition: what the reader
	// stood on is gone. Restore from elsewhere.
	ErrOutOfRange = errors.New("offset out of range")

	// ErrKilled means that Kill was called.
	ErrKilled = errors.New("killed")
)

// classify turns an error of the client into one of the sentinels where it means one, and keeps it.
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

// supervise runs f and waits for it no longer than ctx: the client's calls may ignore their context when
// the broker is dead. The goroutine ends when f does, at the latest when the client is closed.
func supervise(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// Prefer the answer where both are there: a commit that succeeded at the last moment succeeded.
	select {
	case err := <-done:
		return err
	default:
		return context.Cause(ctx)
	}
}

// closeTimeout bounds how long a client that is closed may linger.
const closeTimeout = 2 * time.Second

// closeClient closes a client in bounded time. Cutting its connections first leaves it nothing to wait
// for.
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
