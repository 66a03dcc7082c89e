package indexer

import (
	"context"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// pipeline shows how far each partition is and who applies it, for people.
func (x *Indexer) pipeline(ctx context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	head, err := x.reader.Head(ctx)
	if err != nil {
		return readError("the head", err)
	}
	x.asOf(res.Header, head.Indexed)
	res.SetHeader("Cache-Control", "no-store")
	res.Body = appendPipeline(res.Body, x.cfg.ChainID, head, x.reader.Holders())
	return nil
}

func appendPipeline(b []byte, chainID uint64, head query.Head, holders []query.Holder) []byte {
	b = appendInteger(append(b, '{'), "chainId", chainID)
	b = appendInteger(b, "latestBlock", latest(head))
	b = appendInteger(b, "observedAt", uint64(max(head.ObservedAt.Unix(), 0)))
	b = appendInteger(b, "lagBlocks", latest(head)-head.Indexed.Number)
	b = appendRef(append(b, `,"indexed":`...), &head.Indexed)
	b = appendList(append(b, `,"partitions":`...), holders, func(b []byte, h *query.Holder) []byte {
		b = appendInteger(append(b, '{'), "partition", h.Partition)
		b = append(b, `,"owner":`...)
		if h.Owner == "" {
			b = append(b, "null"...)
		} else {
			b = httpapi.AppendString(b, h.Owner)
		}
		b = appendInteger(b, "standbys", h.Standbys)
		b = appendInteger(b, "reverts", h.Reverts)
		b = appendRef(append(b, `,"watermark":`...), &h.At)
		return append(b, '}')
	})
	return append(b, '}')
}

func appendRef(b []byte, at *topics.BlockRef) []byte {
	b = appendInteger(append(b, '{'), "number", at.Number)
	b = httpapi.AppendHash(append(b, `,"hash":`...), &at.Hash)
	return append(appendInteger(b, "timestamp", at.Timestamp), '}')
}
