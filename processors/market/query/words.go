package query

import (
	"context"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
)

// The words of the engine's read API that an answer of the market has, for those who know the market alone.
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

// How far a node may be behind the chain and count as healthy, where nothing says otherwise.
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

// WithMinBlock makes reads under the context be as of a block of that number or a later one, or ErrStale.
func WithMinBlock(ctx context.Context, number uint64) context.Context {
	return read.WithMinBlock(ctx, number)
}

// MinBlock is what WithMinBlock asked for, zero where nothing was.
func MinBlock(ctx context.Context) uint64 { return read.MinBlock(ctx) }
