package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/follow"
)

// Where no headers show which logs an answer leaves out (sparse.go), whoever has not the blocks yet would say that they have none, and so
// would one that has not indexed their logs: some nodes answer with an empty list, and two of them agree. So nobody's answer counts for
// blocks above those whose logs it was found to have.

// errNotIndexed: the endpoint has a block with logs, and says that it has none. It counts as a lie, and may be none.
var errNotIndexed = errors.New("it does not have the logs of its own blocks")

// indexed is a block up to which an endpoint has the logs.
type indexed struct {
	block uint64
	at    time.Time
}

const (
	indexedFor    = 10 * time.Minute // how long one that has logs up to a block is not asked again
	indexedBlocks = 32               // of so many below its head the first with logs is asked for
)

// indexes checks that the endpoint has the logs of blocks up to one: by a later block of its own, whose bloom filter shows that it has
// logs. Where the chain has no such block of late, or the endpoint refuses to say, that it has the blocks is enough.
func (e *endpoint) indexes(ctx context.Context, last uint64) error {
	e.mu.Lock()
	known := e.indexed.block >= last && time.Since(e.indexed.at) < indexedFor
	e.mu.Unlock()
	if known {
		return nil
	}
	head, err := e.header(ctx, `"latest"`)
	if err != nil {
		return err
	}
	if head.Number < last {
		return fmt.Errorf("block %d, its head is %d: %w", last, head.Number, errNoBlock)
	}
	first := max(last, above(head.Number, indexedBlocks-1))
	headers := make([]follow.Header, head.Number-first+1)
	if err := e.headers(ctx, consecutive(first, len(headers)), headers); err != nil {
		return err
	}
	upTo := head.Number
	for i := range headers {
		if headers[i].Bloom == (types.Bloom{}) {
			continue
		}
		upTo = headers[i].Number
		params := appendQuantity([]byte(`[{"fromBlock":`), upTo)
		params = append(appendQuantity(append(params, `,"toBlock":`...), upTo), "}]"...)
		logs, err := e.logs(ctx, [][]byte{params}, 0)
		if err == nil && len(logs) == 0 {
			return fmt.Errorf("%w: %w", errNotIndexed, lied("missing_logs", "the bloom filter of block %d has logs, the endpoint none", upTo))
		}
		if err != nil && (!isAnswer(err) || classify(err) == classRate) {
			return err
		}
		break
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.indexed = indexed{upTo, time.Now()}
	return nil
}
