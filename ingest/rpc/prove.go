package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
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
	// ProofSparse is ProofTip without the headers of empty final blocks: only another endpoint can show that logs
	// of history were omitted.
	ProofSparse Proof = "sparse"
	// ProofOff verifies nothing, not even the hashes of headers: for chains with another header format, and for
	// nodes without eth_getBlockReceipts. Responses of endpoints are still compared.
	ProofOff Proof = "off"
)

// ErrNoProof: no endpoint supports eth_getBlockReceipts, or those that have a block's transactions in signed form do
// not answer.
var ErrNoProof = errors.New("no endpoint that answers can prove logs (eth_getBlockReceipts): add one that can, or trust the endpoints with --rpc-proof=off")

// proved fetches the wanted logs of blocks from their receipts.
func (c *Client) proved(ctx context.Context, headers []follow.Header) ([]topics.Log, error) {
	return c.provedIn(ctx, newAttempt(), headers)
}

func (c *Client) provedIn(ctx context.Context, a *attempt, headers []follow.Header) ([]topics.Log, error) {
	if len(headers) > 0 && len(headers) <= c.cfg.ReceiptsBatch {
		return c.provedAtOnce(ctx, a, headers)
	}
	blocks := make([][]topics.Log, len(headers))
	var has held
	for from := 0; from < len(headers); {
		to := min(len(headers), from+c.cfg.ReceiptsBatch) // so that little is wasted if there are too many
		err := c.eachProved(ctx, headers[from:to], true, func(i int, logs []topics.Log) { blocks[from+i] = copyLogs(logs) })
		if err != nil {
			return nil, err
		}
		for _, logs := range blocks[from:to] {
			has.add(logs)
		}
		if c.dense(has, len(headers) > 1) {
			return nil, fmt.Errorf("verify blocks %d-%d: %w", headers[from].Number, headers[to-1].Number, ErrDense)
		}
		from = to
	}
	return slices.Concat(blocks...), nil
}

// provedAtOnce is proved for blocks that fit one request, as at the tip, where a slow endpoint must not be waited for.
func (c *Client) provedAtOnce(ctx context.Context, a *attempt, headers []follow.Header) ([]topics.Log, error) {
	first, last := headers[0].Number, headers[len(headers)-1].Number
	type answer struct {
		logs   []topics.Log
		claims []hashClaim
	}
	for {
		got, by, err := hedged(ctx, c, choice{receipts: true, block: last}, func(ctx context.Context, e *endpoint) (answer, error) {
			blocks := make([][]topics.Log, len(headers))
			claims, err := e.wanted(ctx, c, headers, c.ahead(e), a, func(i int, logs []topics.Log) { blocks[i] = copyLogs(logs) })
			return answer{slices.Concat(blocks...), claims}, err
		})
		again := false
		var has held
		if has.add(got.logs); err == nil {
			again, err = c.settle(ctx, by, got.claims, a)
		}
		if err == nil && !again && c.dense(has, len(headers) > 1) {
			err = ErrDense
		}
		if err != nil {
			return nil, fmt.Errorf("verify blocks %d-%d: %w", first, last, err)
		}
		if !again {
			c.metrics.proved.Add(float64(len(headers)))
			return got.logs, nil
		}
	}
}

// copyLogs copies logs, so that they keep no larger memory alive.
func copyLogs(logs []topics.Log) []topics.Log {
	hashes, bytes := 0, 0
	for i := range logs {
		hashes += len(logs[i].Topics)
		bytes += len(logs[i].Data)
	}
	all, words, data := slices.Clone(logs), make([]common.Hash, 0, hashes), make([]byte, 0, bytes)
	for i := range all {
		l := &all[i]
		words, data = append(words, l.Topics...), append(data, l.Data...)
		l.Topics = words[len(words)-len(l.Topics) : len(words) : len(words)]
		l.Data = data[len(data)-len(l.Data) : len(data) : len(data)]
	}
	return all
}

// eachProved calls use with the wanted logs of each block, from its receipts. If the receipts do not match the
// header's root, the response is a lie, so no log can be omitted, added or changed. That root does not cover the
// hashes of transactions: these must be those of the transactions that match their own root, if any endpoint has them.
//
// The logs must not be kept, nor used before all are proved. The order is the endpoint's, and a block may come again.
func (c *Client) eachProved(ctx context.Context, headers []follow.Header, ahead bool, use func(i int, logs []topics.Log)) error {
	a := newAttempt()
	for from := 0; from < len(headers); {
		var (
			part   []follow.Header
			claims []hashClaim
			by     *endpoint
			again  bool
		)
		err := c.try(ctx, choice{receipts: true, block: headers[len(headers)-1].Number}, func(ctx context.Context, e *endpoint) (err error) {
			part, by = headers[from:min(len(headers), from+e.client.cfg.ReceiptsBatch)], e
			claims, err = e.wanted(ctx, c, part, ahead && c.ahead(e), a, func(i int, logs []topics.Log) { use(from+i, logs) })
			return err
		})
		if err == nil {
			again, err = c.settle(ctx, by, claims, a)
		}
		if err != nil {
			return fmt.Errorf("verify blocks %d-%d: %w", headers[from].Number, headers[len(headers)-1].Number, err)
		}
		if again {
			continue
		}
		c.metrics.proved.Add(float64(len(part)))
		from += len(part)
		a = newAttempt()
	}
	return nil
}

// ahead reports whether the transactions of blocks are fetched together with their receipts.
func (c *Client) ahead(e *endpoint) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return c.hits.often() && e.failures == 0 && time.Now().After(e.separateUntil)
}

// wanted calls use with the wanted logs of blocks: see eachProved. Only blocks with such logs need their transactions.
// With ahead these come with the receipts, else after them. It returns the hashes that the endpoint claims and cannot
// prove.
func (e *endpoint) wanted(ctx context.Context, c *Client, headers []follow.Header, ahead bool, a *attempt, use func(i int, logs []topics.Log)) (claims []hashClaim, err error) {
	blocks, asked := make([]*described, len(headers)), []*described(nil)
	if ahead {
		asked = blocks
	}
	named, counts := make([][]namedTransaction, len(headers)), make([]int, len(headers))
	err = e.receipts(ctx, &c.filter, a, headers, asked, func(i int, logs []topics.Log, transactions int) {
		rename(logs, a.known[headers[i].Hash])
		c.learn(&headers[i], logs)
		named[i], counts[i] = appendNamed(named[i][:0], logs), transactions
		use(i, logs)
	})
	if err != nil {
		return nil, err
	}
	e.creditCalls(headers)
	var missing []follow.Header
	var at []int
	for i := range headers {
		c.hits.add(len(named[i]) > 0)
		if a.known[headers[i].Hash] != nil {
			named[i] = nil
		}
		if len(named[i]) > 0 && blocks[i] == nil {
			missing, at = append(missing, headers[i]), append(at, i)
		}
	}
	if len(missing) > 0 {
		others, err := e.blocks(ctx, missing)
		if err != nil && !a.lacks(ctx, e, err) {
			return nil, err
		}
		for k, i := range at {
			blocks[i] = others[k]
		}
	}
	for i := range headers {
		if len(named[i]) == 0 {
			continue
		}
		hashes, err := e.hashes(ctx, &headers[i], blocks[i], counts[i], false)
		switch {
		case err == nil:
			if err := same(&headers[i], named[i], hashes); err != nil {
				return nil, err
			}
		case a.lacks(ctx, e, err):
			claims = append(claims, hashClaim{headers[i], named[i], counts[i], blocks[i], err})
		default:
			return nil, err
		}
	}
	return claims, nil
}

// receipts fetches the receipts of blocks in one request: see eachProved. If a block's are too large for one response,
// others are asked first (rawreceipts.go), where a is not nil. Unless blocks is nil, the transactions are fetched with
// them into it.
func (e *endpoint) receipts(ctx context.Context, f *filter, a *attempt, headers []follow.Header, blocks []*described, use func(i int, logs []topics.Log, transactions int)) error {
	if len(headers) == 1 && e.pausedEach(&headers[0]) {
		return fmt.Errorf("receipts of block %d: %w: %w", headers[0].Number, errPaused, errTooBig)
	}
	r := newReceipts()
	defer releaseReceipts(r)
	calls, done := make([]call, len(headers)), make([]bool, len(headers))
	n := 0
	proved := func(i int) error {
		h := &headers[i]
		logs, err := r.of(h)
		if err != nil {
			return err
		}
		wanted := logs[:0]
		for k := range logs {
			if _, byAddress, byTopic := f.wanted(&logs[k], h); byAddress || byTopic {
				wanted = append(wanted, logs[k])
			}
		}
		n += len(wanted)
		done[i] = true
		use(i, wanted, len(r.upTo))
		return nil
	}
	for i := range headers {
		calls[i] = call{
			method: "eth_getBlockReceipts", params: append(appendHex([]byte{'['}, headers[i].Hash[:]), ']'),
			result: func(s *scanner) error {
				r.reset()
				if err := r.decode(s); err != nil {
					return err
				}
				return proved(i)
			},
		}
	}
	for i := range blocks {
		calls = append(calls, blockCall(&headers[i], &blocks[i]))
	}
	var err error
	sent := time.Now()
	if blocks == nil {
		err = e.do(ctx, calls)
	} else if err = e.atOnce(ctx, calls); err != nil && ctx.Err() == nil && (e.tooMany(err, calls) || classify(err) == classMethod) {
		clear(blocks)
		return e.receipts(ctx, f, a, headers, nil, use)
	}
	lacks := err != nil && classify(err) == classMethod
	e.noReceipts.Store(lacks)
	if lacks {
		return fmt.Errorf("%w: %w", errNoReceipts, err)
	}
	big, err := e.tooBig(ctx, headers, done, sent, err)
	if big {
		failed := err
		err = nil
		for i := range headers {
			if done[i] || err != nil {
				continue
			}
			if len(headers) > 1 {
				err = e.receipts(ctx, f, a, headers[i:i+1], nil, func(_ int, logs []topics.Log, transactions int) { use(i, logs, transactions) })
			} else if e.deferToOthers(a) {
				return fmt.Errorf("receipts of block %d: %w", headers[i].Number, errTooBig)
			} else if err = e.receiptsEach(ctx, &headers[i], r); err == nil {
				err = proved(i)
			} else if c := classify(err); ctx.Err() == nil && c != classLie && c != classRange && classify(failed) != classRange {
				err = failed // that they are too large was only a guess
			}
		}
	}
	if err == nil {
		e.client.metrics.logs.Add(float64(n))
	}
	return err
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
		h := &headers[i]
		if c.noBloom.Load() && c.mayHaveLogs(h) || c.filter.wants(h) || c.unsure() && c.odd(h) {
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
	c.bloomed.forget()
	errs, saw := make([]error, len(c.endpoints)), make([]blooms, len(c.endpoints))
	var g errgroup.Group
	for i, e := range c.endpoints {
		g.Go(func() error {
			saw[i], errs[i] = e.survey(ctx)
			return nil
		})
	}
	_ = g.Wait()
	c.judge(saw)
	if c.cfg.Proof == ProofSparse && c.only() {
		c.log.Warn("a single endpoint decides which blocks of history have logs: --rpc-proof=sparse needs two")
		lacks = append(lacks, "a single endpoint decides which blocks of history have logs: --rpc-proof=sparse needs two")
	}
	for i, e := range c.endpoints {
		switch c := classify(errs[i]); {
		case errs[i] == nil:
			e.client.metrics.proves.WithLabelValues(e.name).Set(1)
		case c == classLie || c == classMethod || c == classUnsigned:
			logs := 0.0
			if c == classUnsigned || errors.Is(errs[i], errNoLogs) {
				logs = 1
			}
			e.client.metrics.proves.WithLabelValues(e.name).Set(logs)
			lacks = append(lacks, fmt.Sprintf("%s: %v", e.name, errs[i]))
			e.client.log.Warn("endpoint cannot prove headers, logs or transactions", zap.String("endpoint", e.name), zap.Error(errs[i]))
		default: // unavailable: nothing is known
		}
	}
	return lacks
}

// survey verifies an endpoint's newest block, and where that has no log those below it.
func (e *endpoint) survey(ctx context.Context) (saw blooms, err error) {
	h, err := e.header(ctx, `"latest"`)
	if err != nil {
		return saw, fmt.Errorf("prove a header: %w", err)
	}
	if saw, err = e.bloomsOf(ctx, &h); err != nil {
		return saw, fmt.Errorf("prove the logs of a block: %w", err)
	}
	if err := e.hasRaw(ctx); err != nil {
		return saw, fmt.Errorf("prove transactions that nodes describe in different ways: %w", err)
	}
	if _, err := e.logs(ctx, e.client.filter.byHash([]follow.Header{h})[:1], 0); errors.Is(err, errNoLogs) {
		return saw, fmt.Errorf("the logs of history come from the receipts of each block: %w", err)
	}
	return saw, nil
}
