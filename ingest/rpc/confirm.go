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

// answer is what an endpoint said of some blocks, ascending; it fits their headers.
type answer struct {
	headers []follow.Header
	logs    []topics.Log
}

// errLeftOut: every endpoint left out logs that another has.
var errLeftOut = errors.New("every endpoint omits logs")

// confirmed runs ask until nothing speaks against its answer: no block for which the bloom filter
// promises logs that another endpoint has, and as many answers alike as are configured.
func (c *Client) confirmed(ctx context.Context, ask func(context.Context, *endpoint) (answer, error)) ([]topics.Log, error) {
	var (
		former   answer
		formerBy *endpoint // who gave it; nil: none
		agreed   int
	)
	for doubts := 0; doubts <= 2*len(c.endpoints); doubts++ {
		var got answer
		var by *endpoint
		err := c.try(ctx, choice{avoid: formerBy}, func(ctx context.Context, e *endpoint) (err error) {
			by = e
			got, err = ask(ctx, e)
			return err
		})
		if err != nil {
			return nil, err
		}
		left, err := c.leftOut(ctx, by, got)
		switch {
		case err != nil:
			return nil, err
		case left != nil:
			by.failed(&lie{kind: "missing_logs", err: left})
			if c.cfg.Proof != ProofOff {
				return nil, errLeftOut // what is proved needs no second opinion
			}
			if agreed > 0 && contains(former.logs, got.logs) {
				return former.logs, nil // as where two answers disagree, below
			}
			agreed = 0
		case agreed > 0 && !sameLogs(former.logs, got.logs):
			less, n, m := by, len(got.logs), len(former.logs)
			if m < n {
				less, n, m = formerBy, m, n
			}
			less.failed(lied("disagreement", "%d logs, but another endpoint returned %d", n, m))
			agreed = 1
			// Nodes leave out logs; they do not invent such as fit the headers. An answer that has all of
			// the other and more is believed, or a node that always leaves out some would stop everything.
			switch {
			case contains(got.logs, former.logs):
				return got.logs, nil
			case contains(former.logs, got.logs):
				return former.logs, nil
			}
		default:
			agreed++
		}
		if agreed >= c.cfg.Confirm {
			return got.logs, nil
		}
		former, formerBy = got, by
	}
	return nil, fmt.Errorf("%w: %w", ErrGone, errLeftOut)
}

// leftOut looks at the blocks whose logs may have been left out, and returns an error that names the first log that
// is missing. By policy it has them proved, and samples with them; or it asks another endpoint than by.
func (c *Client) leftOut(ctx context.Context, by *endpoint, got answer) (missing, err error) {
	suspects := c.suspects(got)
	c.metrics.suspects.Add(float64(len(suspects)))
	if c.cfg.Proof != ProofOff {
		return c.refute(ctx, got, c.sample(got, suspects))
	}
	for len(suspects) > 0 {
		part := suspects[:min(len(suspects), c.cfg.HeaderBatch)]
		suspects = suspects[len(part):]
		var logs []topics.Log
		err := c.try(ctx, choice{avoid: by}, func(ctx context.Context, e *endpoint) (err error) {
			if logs, err = e.logs(ctx, c.filter.byHash(part)); err != nil {
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

// sample adds to suspects the last block of which there are logs, where an answer that was cut ends, and one at
// random: whoever leaves out, adds or changes logs now and then is found out soon.
func (c *Client) sample(a answer, suspects []follow.Header) []follow.Header {
	if len(a.logs) == 0 {
		return suspects
	}
	for _, at := range []int{len(a.logs) - 1, rand.IntN(len(a.logs))} {
		k, found := slices.BinarySearchFunc(a.headers, a.logs[at].Block.Number, byNumber)
		if found && !slices.ContainsFunc(suspects, func(h follow.Header) bool { return h.Number == a.headers[k].Number }) {
			suspects = append(suspects, a.headers[k])
		}
	}
	slices.SortFunc(suspects, func(a, b follow.Header) int { return cmp.Compare(a.Number, b.Number) })
	return suspects
}

func byNumber(h follow.Header, n uint64) int { return cmp.Compare(h.Number, n) }

// refute has blocks proved and names the first log in which the answer differs.
func (c *Client) refute(ctx context.Context, got answer, blocks []follow.Header) (wrong, err error) {
	proved, err := c.proved(ctx, blocks)
	if err != nil {
		return nil, err
	}
	of := func(logs []topics.Log, n uint64) []topics.Log {
		from, _ := slices.BinarySearchFunc(logs, n, func(l topics.Log, n uint64) int { return cmp.Compare(l.Block.Number, n) })
		to, _ := slices.BinarySearchFunc(logs, n+1, func(l topics.Log, n uint64) int { return cmp.Compare(l.Block.Number, n) })
		return logs[from:to]
	}
	for i := range blocks {
		n := blocks[i].Number
		said, is := of(got.logs, n), of(proved, n)
		switch {
		case len(said) < len(is):
			return fmt.Errorf("block %d has %d logs, %d of them were omitted", n, len(is), len(is)-len(said)), nil
		case !sameLogs(said, is):
			return fmt.Errorf("the logs of block %d do not match its receipts", n), nil
		}
	}
	return nil, nil
}

// suspects are blocks without a log of our addresses whose bloom filter has one of them, or without a log
// of the wanted topics where it has one.
func (c *Client) suspects(a answer) []follow.Header {
	if c.cfg.NoBloom {
		return nil
	}
	var all []follow.Header
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
	return all
}

// contains says whether all, which ascends, has every log of part.
func contains(all, part []topics.Log) bool {
	for i := range part {
		at, ok := slices.BinarySearchFunc(all, part[i], func(a, b topics.Log) int { return compare(&a, &b) })
		if !ok || !sameLogs(all[at:at+1], part[i:i+1]) {
			return false
		}
	}
	return true
}

// sameLogs compares two answers by what identifies a log; where it lies follows from the block's hash.
func sameLogs(a, b []topics.Log) bool {
	return slices.EqualFunc(a, b, func(x, y topics.Log) bool {
		return x.Block.Hash == y.Block.Hash && x.LogIndex == y.LogIndex && x.TxIndex == y.TxIndex && x.Address == y.Address &&
			slices.Equal(x.Topics, y.Topics) && string(x.Data) == string(y.Data)
	})
}
