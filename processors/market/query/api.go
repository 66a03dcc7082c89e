package query

import (
	"context"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics"
)

// Types of the engine's read API that the market's API uses, so that its callers need not import the engine.
type (
	Answer[T any] = read.Answer[T]
	Page[T any]   = read.Page[T]
	Head          = read.Head
	Config        = read.Config
	Holder        = read.Holder
	Moment        = read.Moment
	Watermark     = read.Watermark
	Feed          = read.Feed
	Source        = read.Source
)

// DefaultConfig is the configuration of a router of the market, without the partitions and their holders.
func DefaultConfig() Config {
	c := read.DefaultConfig()
	c.Application, c.Shared = topics.AppMarket, true
	return c
}

// How far a node may be behind the chain and still count as healthy, by default.
const (
	DefaultMaxHeadAge   = 30 * time.Second
	DefaultMaxLagBlocks = 300 // 30 s at ten blocks a second
)

// The errors of a read.
var (
	ErrUnavailable = read.ErrUnavailable
	ErrNotFound    = read.ErrNotFound
	ErrStale       = read.ErrStale
)

// WithMinBlock requires reads under the context to be as of this block number or a later one, or fail with
// ErrStale.
func WithMinBlock(ctx context.Context, number uint64) context.Context {
	return read.WithMinBlock(ctx, number)
}

// MinBlock is the block number set by WithMinBlock, or zero.
func MinBlock(ctx context.Context) uint64 { return read.MinBlock(ctx) }
