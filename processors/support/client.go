package support

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Sender writes a command; kafka.Producer is one.
type Sender interface {
	Send(ctx context.Context, r *kafka.Record) (offset int64, err error)
}

// Found is the desk of a wallet, and one of its payments.
type Found struct {
	Applied uint64 // number of the partition's commands that the answer includes
	Desk    *Desk
	Payment *Payment // nil: there is none
	Report  []byte   // encrypted
}

// Reads is the read API of the desk, one partition at a time.
type Reads interface {
	// Find reads a payment and the desk of its wallet.
	Find(ctx context.Context, partition int32, wallet common.Address, nonce common.Hash) (Found, error)
	// List reads payments in key order, after a key: undecided ones, or all.
	List(ctx context.Context, partition int32, undecided bool, after []byte, limit int) (found []*Payment, next []byte, err error)
}

// Client sends commands to the desk and reads it.
type Client struct {
	sender    Sender
	reads     Reads
	catalogue topics.Catalogue
}

// NewClient makes a client.
func NewClient(sender Sender, reads Reads, catalogue topics.Catalogue) *Client {
	return &Client{sender: sender, reads: reads, catalogue: catalogue}
}

// ErrUnavailable: the desk could not be reached, or gave no outcome. The command may have been applied; it may
// be sent again with the same ID.
var ErrUnavailable = errors.New("the support desk did not respond")

const (
	firstLook = 2 * time.Millisecond
	longLook  = 50 * time.Millisecond
	tries     = 3 // attempts to send
)

// NewID returns the ID of a new command.
func NewID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return hex.EncodeToString(raw[:])
}

// Partition is the partition of a wallet's rows.
func (c *Client) Partition(wallet common.Address) int32 {
	return topics.Partition(wallet[:], c.catalogue.Partitions)
}

// Partitions is the number of partitions.
func (c *Client) Partitions() int32 { return c.catalogue.Partitions }

// Do sends a command and waits until it is applied.
func (c *Client) Do(ctx context.Context, key common.Address, cmd *Command) (Outcome, Found, error) {
	if cmd.ID == "" {
		cmd.ID = NewID()
	}
	value, err := EncodeCommand(cmd)
	if err != nil {
		return "", Found{}, err
	}
	var sent uint64 // number of the partition's commands up to this one
	for try := 1; ; try++ {
		offset, err := c.sender.Send(ctx, &kafka.Record{
			Topic: c.catalogue.Commands(topics.AppSupport), Partition: c.Partition(key), Key: key[:], Value: value,
		})
		if err == nil {
			sent = uint64(offset) + 1
			break
		}
		if ctx.Err() != nil || try == tries {
			return "", Found{}, fmt.Errorf("%w: send %s: %w", ErrUnavailable, cmd.Kind, err)
		}
	}
	for wait := firstLook; ; wait = min(2*wait, longLook) {
		found, err := c.reads.Find(read.WithMinBlock(ctx, sent), c.Partition(key), key, cmd.Nonce)
		if err == nil && found.Applied >= sent {
			if outcome, known := found.Desk.outcome(cmd.ID); known {
				return outcome, found, nil
			}
			return "", found, fmt.Errorf("%w: the outcome of %s was evicted", ErrUnavailable, cmd.Kind)
		}
		select {
		case <-ctx.Done():
			return "", Found{}, fmt.Errorf("%w: wait for %s: %w", ErrUnavailable, cmd.Kind, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// Find reads a payment.
func (c *Client) Find(ctx context.Context, wallet common.Address, nonce common.Hash) (Found, error) {
	found, err := c.reads.Find(ctx, c.Partition(wallet), wallet, nonce)
	if err != nil {
		return Found{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return found, nil
}

// List reads payments of a partition.
func (c *Client) List(ctx context.Context, partition int32, undecided bool, after []byte, limit int) ([]*Payment, []byte, error) {
	found, next, err := c.reads.List(ctx, partition, undecided, after, limit)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return found, next, nil
}
