package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// response is the logs of some blocks, ascending, as one endpoint returned them; they fit the headers.
type response struct {
	headers []follow.Header
	logs    []topics.Log
}

// errLeftOut: every endpoint omits logs that another one has.
var errLeftOut = errors.New("every endpoint omits logs")

// confirmed calls ask until the response is plausible: it omits no logs that the bloom filters suggest and another
// endpoint has, and the configured number of different endpoints agree; with a single endpoint, as many responses of it.
// If two differ, or too few answer, receipts decide.
func (c *Client) confirmed(ctx context.Context, ask func(context.Context, *endpoint) (response, error)) ([]topics.Log, error) {
	var (
		former   response
		formerBy *endpoint   // the endpoint that returned it; nil: none
		agreed   []*endpoint // that returned it
	)
	for doubts := 0; doubts <= 2*len(c.endpoints); doubts++ {
		var got response
		var by *endpoint
		want := choice{avoid: formerBy, logs: true}
		if len(agreed) > 0 && !c.only() {
			// Of several whose logs can be proved, as many as configured must agree.
			if c.decides(agreed...) && (len(agreed) == 1 || c.cfg.Proof == ProofOff) {
				return former.logs, nil
			}
			want = choice{not: agreed, logs: true}
		}
		err := c.try(ctx, want, func(ctx context.Context, e *endpoint) (err error) {
			by = e
			got, err = ask(ctx, e)
			return err
		})
		switch {
		case err == nil:
		case len(agreed) == 0:
			return nil, err
		case c.cfg.Proof != ProofOff && (errors.Is(err, errNobodyElse) || errors.Is(err, errNoLogs)):
			return nil, errLeftOut // as below
		case errors.Is(err, errNobodyElse), errors.Is(err, errNoLogs):
			return nil, fmt.Errorf("%w: logs that %s has: %w", ErrSplit, formerBy.name, err)
		default:
			return nil, err
		}
		same := len(agreed) > 0 && sameLogs(former.logs, got.logs)
		var left error
		if !same { // else it is known what the bloom filters suggest
			if left, err = c.leftOut(ctx, by, got); err != nil {
				return nil, err
			}
		}
		switch {
		case left != nil:
			by.failed(&lie{kind: "missing_logs", err: left})
			if c.cfg.Proof != ProofOff {
				return nil, errLeftOut // verified logs need no confirmation
			}
			if len(agreed) > 0 && contains(former.logs, got.logs) {
				return former.logs, nil // as below, where two responses disagree
			}
			agreed = nil
		case len(agreed) > 0 && !same && c.cfg.Proof != ProofOff:
			return c.decided(ctx, &former, formerBy, &got, by)
		case len(agreed) > 0 && !same:
			less, n, m := by, len(got.logs), len(former.logs)
			if m < n {
				less, n, m = formerBy, m, n
			}
			less.failed(lied("disagreement", "%d logs, but another endpoint returned %d", n, m))
			agreed = []*endpoint{by}
			// Nodes omit logs more often than they invent some that fit the headers, and nothing is proved here. So
			// if one response contains the other, it is used; a node that always omits some must not block.
			switch {
			case contains(got.logs, former.logs):
				return got.logs, nil
			case contains(former.logs, got.logs):
				return former.logs, nil
			}
		default:
			agreed = append(agreed, by)
		}
		if len(agreed) >= c.cfg.Confirm {
			return got.logs, nil
		}
		former, formerBy = got, by
	}
	return nil, fmt.Errorf("%w: %w", ErrGone, errLeftOut)
}

// decided returns the logs of two responses. Where they differ, the receipts decide.
func (c *Client) decided(ctx context.Context, a *response, byA *endpoint, b *response, byB *endpoint) ([]topics.Log, error) {
	var (
		all    []topics.Log
		differ []follow.Header
	)
	for _, h := range mergeHeaders(a.headers, b.headers) {
		switch ofA, ofB := a.of(h.Number), b.of(h.Number); {
		case sameLogs(ofA, ofB):
			all = append(all, ofA...)
		default:
			differ = append(differ, h)
		}
	}
	proved := make([][]topics.Log, len(differ))
	if err := c.eachProved(ctx, differ, false, func(i int, logs []topics.Log) { proved[i] = copyLogs(logs) }); err != nil {
		return nil, err
	}
	for e, said := range map[*endpoint]*response{byA: a, byB: b} {
		for i := range differ {
			if n := differ[i].Number; !sameLogs(said.of(n), proved[i]) {
				e.failed(lied("disagreement", "the %d logs of block %d do not match its receipts, which have %d", len(said.of(n)), n, len(proved[i])))
				break
			}
		}
	}
	return merge(all, slices.Concat(proved...)), nil
}

// mergeHeaders joins two ascending lists without duplicates.
func mergeHeaders(a, b []follow.Header) []follow.Header {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y follow.Header) int { return cmp.Compare(x.Number, y.Number) })
	return slices.CompactFunc(all, func(x, y follow.Header) bool { return x.Number == y.Number })
}

// leftOut checks the blocks whose logs may be incomplete, and returns an error naming the first missing log.
// Depending on Proof it verifies these blocks and a sample, or asks another endpoint than by.
func (c *Client) leftOut(ctx context.Context, by *endpoint, got response) (missing, err error) {
	suspects := c.suspects(got)
	c.metrics.suspects.Add(float64(len(suspects)))
	if c.cfg.Proof != ProofOff {
		return c.refute(ctx, got, c.sample(got, suspects))
	}
	for len(suspects) > 0 {
		part := suspects[:min(len(suspects), c.cfg.MaxBatch)]
		suspects = suspects[len(part):]
		var logs []topics.Log
		err := c.try(ctx, choice{avoid: by, logs: true}, func(ctx context.Context, e *endpoint) (err error) {
			if logs, err = e.logs(ctx, c.filter.byHash(part), 0); err != nil {
				return err
			}
			return c.filter.match(part, logs)
		})
		if err != nil {
			return nil, err
		}
		for i := range logs {
			if !contains(got.logs, logs[i:i+1]) {
				return fmt.Errorf("log %d of block %d was omitted", logs[i].LogIndex, logs[i].Block.Number), nil
			}
		}
	}
	return nil, nil
}

// sampleRanges: one in this many ranges has a random block verified.
const sampleRanges = 4

// sample adds to suspects the last block with logs, where a truncated response ends, and in some ranges a random one,
// so that an endpoint that sometimes omits, adds or changes logs is soon noticed.
func (c *Client) sample(a response, suspects []follow.Header) []follow.Header {
	if len(a.logs) == 0 {
		return suspects
	}
	sampled := []int{len(a.logs) - 1}
	if rand.IntN(sampleRanges) == 0 {
		sampled = append(sampled, rand.IntN(len(a.logs)))
	}
	for _, at := range sampled {
		k, found := slices.BinarySearchFunc(a.headers, a.logs[at].Block.Number, byNumber)
		if found && !slices.ContainsFunc(suspects, func(h follow.Header) bool { return h.Number == a.headers[k].Number }) {
			suspects = append(suspects, a.headers[k])
		}
	}
	slices.SortFunc(suspects, func(a, b follow.Header) int { return cmp.Compare(a.Number, b.Number) })
	return suspects
}

func byNumber(h follow.Header, n uint64) int { return cmp.Compare(h.Number, n) }

// refute verifies blocks and returns an error naming the first wrong one.
func (c *Client) refute(ctx context.Context, got response, blocks []follow.Header) (wrong, err error) {
	all := make([]error, len(blocks))
	err = c.eachProved(ctx, blocks, false, func(i int, is []topics.Log) {
		n := blocks[i].Number
		said := got.of(n)
		switch {
		case len(said) < len(is):
			all[i] = fmt.Errorf("block %d has %d logs, %d of them were omitted", n, len(is), len(is)-len(said))
		case !sameLogs(said, is):
			all[i] = fmt.Errorf("the logs of block %d do not match its receipts", n)
		default:
			all[i] = nil
		}
	})
	if err != nil {
		return nil, err
	}
	return cmp.Or(all...), nil
}

// of returns the logs of a block.
func (r *response) of(number uint64) []topics.Log {
	byBlock := func(l topics.Log, n uint64) int { return cmp.Compare(l.Block.Number, n) }
	from, _ := slices.BinarySearchFunc(r.logs, number, byBlock)
	to, _ := slices.BinarySearchFunc(r.logs, number+1, byBlock)
	return r.logs[from:to]
}

// suspects are the blocks without a log of our addresses, or of the wanted topics, although their bloom filter
// matches one. Without bloom filters, which may have turned out while the range was fetched, it is each block that may have logs.
func (c *Client) suspects(a response) []follow.Header {
	var all []follow.Header
	if c.noBloom.Load() {
		if c.cfg.Proof != ProofTip {
			return nil
		}
		for i := range a.headers {
			if c.mayHaveLogs(&a.headers[i]) {
				all = append(all, a.headers[i])
			}
		}
		return all
	}
	at := 0
	for i := range a.headers {
		h := &a.headers[i]
		ours, others := false, false
		for ; at < len(a.logs) && a.logs[at].Block.Number == h.Number; at++ {
			_, byAddress, byTopic := c.filter.wanted(&a.logs[at], h)
			ours, others = ours || byAddress, others || byTopic
		}
		hitOurs, hitOthers := c.filter.hits(h)
		if hitOurs && !ours || hitOthers && !others {
			all = append(all, *h)
		}
	}
	if all == nil {
		return c.oddOf(a.headers)
	}
	return all
}

// contains reports whether all, which ascends, has every log of part.
func contains(all, part []topics.Log) bool {
	for i := range part {
		at, ok := slices.BinarySearchFunc(all, part[i], func(a, b topics.Log) int { return compare(&a, &b) })
		if !ok || !sameLogs(all[at:at+1], part[i:i+1]) {
			return false
		}
	}
	return true
}

// sameLogs compares two responses.
func sameLogs(a, b []topics.Log) bool {
	return slices.EqualFunc(a, b, func(x, y topics.Log) bool {
		return x.Block.Hash == y.Block.Hash && x.LogIndex == y.LogIndex && x.TxIndex == y.TxIndex && x.TxHash == y.TxHash && x.Address == y.Address &&
			slices.Equal(x.Topics, y.Topics) && string(x.Data) == string(y.Data)
	})
}
