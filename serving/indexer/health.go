package indexer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// health has the same shape whether healthy or not. Only if no partition is known it is an ordinary error.
func (x *Indexer) health(ctx context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	head, err := x.reader.Head(ctx)
	if err != nil {
		return readError("the head", err)
	}
	x.asOf(res.Header, head.Indexed)
	ok := x.stale(head) == nil
	if !ok {
		res.Status = http.StatusServiceUnavailable
		res.RetryAfter(time.Second)
	}
	res.SetHeader("Cache-Control", "no-store")
	b := strconv.AppendBool(append(res.Body, `{"ok":`...), ok)
	b = strconv.AppendUint(append(b, `,"chainId":`...), x.cfg.ChainID, 10)
	b = strconv.AppendUint(append(b, `,"latestBlock":`...), latest(head), 10)
	b = strconv.AppendUint(append(b, `,"indexedBlock":`...), head.Indexed.Number, 10)
	b = strconv.AppendUint(append(b, `,"lagBlocks":`...), latest(head)-head.Indexed.Number, 10)
	res.Body = append(b, '}')
	return nil
}

// latest is the chain's head; it is never behind the indexed block, even if it was last seen earlier.
func latest(head query.Head) uint64 { return max(head.Latest, head.Indexed.Number) }

// stale returns an error for the first exceeded limit of the configuration, or nil.
func (x *Indexer) stale(head query.Head) error {
	now := time.Now()
	if err := x.behind(head); err != nil {
		return err
	}
	if age := now.Sub(head.ObservedAt); age > x.cfg.MaxHeadAge {
		return fmt.Errorf("the chain was last seen %s ago", age.Round(time.Second))
	}
	if x.cfg.MaxBlockAge > 0 {
		if age := now.Unix() - int64(head.Indexed.Timestamp); age > int64(x.cfg.MaxBlockAge/time.Second) {
			return fmt.Errorf("indexed block %d is %d s old", head.Indexed.Number, age)
		}
	}
	return nil
}

// behind returns an error if nothing is indexed, or too little of the chain. No clock has a say in it.
func (x *Indexer) behind(head query.Head) error {
	if head.Indexed.Hash == (common.Hash{}) {
		return errors.New("no block is indexed yet")
	}
	if lag := latest(head) - head.Indexed.Number; lag > x.cfg.MaxLagBlocks {
		return fmt.Errorf("indexed block %d is %d blocks behind", head.Indexed.Number, lag)
	}
	return nil
}
