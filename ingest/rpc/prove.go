package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// Proof says which blocks' logs are verified against the receipts root of their headers.
type Proof string

// The policies. All but ProofOff verify suspicious blocks.
const (
	// ProofTip verifies every block that may concern us and is not final; of final blocks the ends of ranges,
	// samples and suspicious ones.
	ProofTip Proof = "tip"
	// ProofAll verifies every block that may concern us.
	ProofAll Proof = "all"
	// ProofSparse is ProofTip without the headers of empty final blocks, so that logs omitted from history are
	// detected by another endpoint or not at all.
	ProofSparse Proof = "sparse"
	// ProofOff verifies nothing, not even the hashes of headers: for chains with another header format, and for
	// nodes without eth_getBlockReceipts. Responses of endpoints are still compared.
	ProofOff Proof = "off"
)

// ErrNoProof: no endpoint supports eth_getBlockReceipts.
var ErrNoProof = errors.New("no endpoint supports eth_getBlockReceipts, so logs cannot be verified: add one that does, or trust the endpoints with --rpc-proof=off")

// proved fetches the wanted logs of blocks from their receipts. If the receipts do not match the header's root,
// the response is a lie, so no log can be omitted, added or changed. Only transaction hashes are not covered by
// the root.
func (c *Client) proved(ctx context.Context, headers []follow.Header) ([]topics.Log, error) {
	var all []topics.Log
	for len(headers) > 0 {
		var part []follow.Header
		var logs []topics.Log
		err := c.try(ctx, choice{receipts: true, block: headers[len(headers)-1].Number}, func(ctx context.Context, e *endpoint) (err error) {
			part = headers[:min(len(headers), e.client.cfg.ReceiptsBatch)]
			logs, err = e.receipts(ctx, part)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("verify blocks %d-%d: %w", headers[0].Number, headers[len(headers)-1].Number, err)
		}
		c.metrics.proved.Add(float64(len(part)))
		all = append(all, logs...)
		headers = headers[len(part):]
	}
	return all, nil
}

// receipts fetches the receipts of blocks in one request, and returns the wanted logs.
func (e *endpoint) receipts(ctx context.Context, headers []follow.Header) ([]topics.Log, error) {
	answers := make([]receipts, len(headers))
	calls := make([]call, len(headers))
	for i := range headers {
		calls[i] = call{
			method: "eth_getBlockReceipts", params: append(appendHex([]byte{'['}, headers[i].Hash[:]), ']'),
			result: answers[i].decode,
		}
	}
	err := e.do(ctx, calls)
	e.noReceipts.Store(err != nil && classify(err) == classMethod)
	if err != nil {
		return nil, err
	}
	var all []topics.Log
	for i := range answers {
		logs, err := answers[i].of(&headers[i])
		if err != nil {
			return nil, err
		}
		for k := range logs {
			if _, byAddress, byTopic := e.client.filter.wanted(&logs[k], &headers[i]); byAddress || byTopic {
				l := logs[k] // a copy, since most logs in the slabs are not ours
				l.Topics, l.Data = slices.Clone(l.Topics), slices.Clone(l.Data)
				all = append(all, l)
			}
		}
	}
	e.client.metrics.logs.Add(float64(len(all)))
	return all, nil
}

// of returns the block's logs after checking them against the header.
func (r *receipts) of(h *follow.Header) ([]topics.Log, error) {
	if root := r.root(); root != h.Receipts {
		return nil, lied("receipts_root", "receipts of block %d have root %s, the header %s", h.Number, root, h.Receipts)
	}
	at := 0
	for tx, end := range r.upTo {
		for ; at < end; at++ {
			l := &r.logs.logs[at]
			switch {
			case l.Block.Number != h.Number || l.Block.Hash != h.Hash:
				return nil, lied("block_hash", "log %d of block %d has block hash %s, the header %s", l.LogIndex, h.Number, l.Block.Hash, h.Hash)
			case int(l.LogIndex) != at || int(l.TxIndex) != tx || l.TxHash != r.hashes[tx]:
				return nil, lied("position", "log %d of block %d claims to be log %d of transaction %d %s", at, h.Number, l.LogIndex, l.TxIndex, l.TxHash)
			}
		}
	}
	return r.logs.logs, nil
}

// wanted returns the headers of blocks that may concern us.
func (c *Client) wanted(headers []follow.Header) (wanted []follow.Header) {
	for i := range headers {
		if c.cfg.NoBloom || c.filter.wants(&headers[i]) {
			wanted = append(wanted, headers[i])
		}
	}
	return wanted
}

// Survey checks what every endpoint can prove, and reports in the log and in metrics what it cannot. It returns
// a line for each endpoint that cannot prove what the policy requires.
func (c *Client) Survey(ctx context.Context) (lacks []string) {
	if c.cfg.Proof == ProofOff {
		c.log.Warn("headers and logs are not verified: --rpc-proof=off")
		return []string{"headers and logs are not verified: --rpc-proof=off"}
	}
	errs := make([]error, len(c.endpoints))
	var g errgroup.Group
	for i, e := range c.endpoints {
		g.Go(func() error {
			errs[i] = e.survey(ctx)
			return nil
		})
	}
	_ = g.Wait()
	if c.cfg.Proof == ProofSparse && len(c.endpoints) == 1 {
		c.log.Warn("only one endpoint says which blocks of history have logs: --rpc-proof=sparse needs two")
		lacks = append(lacks, "only one endpoint says which blocks of history have logs: --rpc-proof=sparse needs two")
	}
	for i, e := range c.endpoints {
		switch c := classify(errs[i]); {
		case errs[i] == nil:
			e.client.metrics.proves.WithLabelValues(e.name).Set(1)
		case c == classLie || c == classMethod:
			e.client.metrics.proves.WithLabelValues(e.name).Set(0)
			lacks = append(lacks, fmt.Sprintf("%s: %v", e.name, errs[i]))
			e.client.log.Warn("endpoint cannot prove headers or logs", zap.String("endpoint", e.name), zap.Error(errs[i]))
		default: // unavailable, which says nothing
		}
	}
	return lacks
}

// survey verifies an endpoint's newest block.
func (e *endpoint) survey(ctx context.Context) error {
	h, err := e.header(ctx, `"latest"`)
	if err != nil {
		return fmt.Errorf("prove a header: %w", err)
	}
	if _, err := e.receipts(ctx, []follow.Header{h}); err != nil {
		return fmt.Errorf("prove the logs of a block: %w", err)
	}
	return nil
}
