package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/follow"
)

// Without headers nothing shows which logs an answer leaves out (sparse.go). Some nodes answer with an empty list for blocks that
// they do not have yet, or whose logs they have not indexed, and two of them agree. So an endpoint's answer counts only for blocks
// whose logs it was found to have.

// errNotIndexed: the endpoint has a block with logs, but returns none. It counts as a lie, although it may be a late index.
var errNotIndexed = errors.New("it does not have the logs of its own blocks")

// indexed are the blocks between two of which an endpoint has the logs.
type indexed struct {
	from, upTo uint64
	at         time.Time
}

const (
	indexedFor    = 10 * time.Minute // how long one that has the logs of blocks is not asked again
	indexedBlocks = 32               // of so many below its head, and beside the first block, one with logs is asked for
)

// indexes checks that the endpoint has the logs of blocks from one to another: by a later block of its own, and one
// beside the first, whose bloom filters show that they have logs. A node indexes from its head down, too. Where the
// chain has no such blocks there, or the endpoint refuses to say, that it has the blocks is enough.
func (e *endpoint) indexes(ctx context.Context, from, last uint64) error {
	e.mu.Lock()
	known := e.indexed
	e.mu.Unlock()
	fresh := time.Since(known.at) < indexedFor
	if fresh && known.from <= from && known.upTo >= last {
		return nil
	}
	head, err := e.header(ctx, `"latest"`)
	if err != nil {
		return err
	}
	if head.Number < last {
		return fmt.Errorf("block %d, its head is %d: %w", last, head.Number, errNoBlock)
	}
	if !fresh || known.from > from {
		known.from, known.at = from, time.Now()
		if _, err := e.indexedOne(ctx, above(from, indexedBlocks-1), min(last, from+indexedBlocks-1)); err != nil {
			return err
		}
	}
	if known.upTo, err = e.indexedOne(ctx, max(last, above(head.Number, indexedBlocks-1)), head.Number); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.indexed = known
	return nil
}

// indexedOne checks that the endpoint has the logs of the first of these blocks that has any, and returns its number;
// of the last if none has.
func (e *endpoint) indexedOne(ctx context.Context, first, last uint64) (uint64, error) {
	headers := make([]follow.Header, last-first+1)
	if err := e.headers(ctx, consecutive(first, len(headers)), headers); err != nil {
		return 0, err
	}
	at := slices.IndexFunc(headers, func(h follow.Header) bool { return h.Bloom != types.Bloom{} })
	if at < 0 {
		return last, nil
	}
	number := headers[at].Number
	params := appendQuantity([]byte(`[{"fromBlock":`), number)
	params = append(appendQuantity(append(params, `,"toBlock":`...), number), "}]"...)
	sent := time.Now()
	logs, err := e.logs(ctx, [][]byte{params}, 0)
	switch {
	case err == nil && len(logs) == 0:
		return 0, fmt.Errorf("%w: %w", errNotIndexed, lied("missing_logs", "the bloom filter of block %d has logs, the endpoint none", number))
	case err == nil:
		e.indexRefusals.end()
	case !e.refusesIndex(err, sent):
		return 0, err
	}
	return number, nil
}

// refusesIndex reports whether an endpoint refuses to show all logs of a block. One that says "limit exceeded" may be
// throttling, or mean that they are too many: it refuses if it says that again and again.
func (e *endpoint) refusesIndex(err error, sent time.Time) bool {
	if !isAnswer(err) {
		return false
	}
	return e.indexRefusals.add(sent, 0) >= persistent || classify(err) != classRate
}
