package rpc

import (
	"context"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// verdict is what is known of a reported log.
type verdict uint8

const (
	verdictFalse verdict = iota // the chain does not have it
	verdictOpen                 // nothing decides: no endpoint proves the block's logs, or they do not agree on the block
	verdictTrue
)

// search judges the logs that endpoints report in one search.
//
// Invariant: a log costs requests only while an endpoint that reports it has reported logs that proved nothing in fewer
// than mostVain blocks. So one endpoint that makes up logs costs little, and does not keep another one's from being proved.
type search struct {
	c     *Client           // with the filter of the search
	wrong map[*endpoint]int // blocks with logs that were false
	open  map[*endpoint]int // blocks with logs that nothing decided
	block judged            // the last one that was looked at
}

// judged is a block whose logs were asked for.
type judged struct {
	number uint64
	hash   common.Hash
	logs   []topics.Log
	err    error // why nothing decides

	vain map[*endpoint]bool // those that reported a log there that proved nothing
}

const (
	mostVain  = 8
	judgeWait = 10 * time.Second // for the proof of one block
)

func (c *Client) search(f filter) *search {
	return &search{c: c.with(f), wrong: map[*endpoint]int{}, open: map[*endpoint]int{}}
}

// judge decides whether a log is true: it is if it is in the receipts of the block that a vote finds at its height. With
// ProofOff the endpoints are asked for the logs of that block.
func (s *search) judge(ctx context.Context, l *reported) (verdict, error) {
	few := func(vain map[*endpoint]int) bool {
		return slices.ContainsFunc(l.by, func(e *endpoint) bool { return vain[e] < mostVain })
	}
	switch {
	case l.proved:
		return verdictTrue, nil
	case !few(s.wrong):
		return verdictFalse, nil
	case !few(s.open):
		return verdictOpen, nil
	}
	b := &s.block
	if b.vain == nil || b.number != l.log.Block.Number {
		*b = s.look(ctx, l.log.Block.Number)
	}
	if ctx.Err() != nil {
		return verdictOpen, ctx.Err()
	}
	is := verdictFalse
	switch {
	case b.err != nil:
		is = verdictOpen
	case slices.ContainsFunc(b.logs, func(has topics.Log) bool { return keyOf(&has) == keyOf(&l.log) }):
		return verdictTrue, nil
	}
	for _, e := range l.by {
		if b.vain[e] {
			continue
		}
		b.vain[e] = true
		if is == verdictOpen {
			s.open[e]++
			continue
		}
		s.wrong[e]++
		if b.hash == l.log.Block.Hash && s.c.cfg.Proof != ProofOff {
			e.failed(lied("made_up", "log %d of block %d from %s is not in the block's receipts", l.log.LogIndex, b.number, l.log.Address))
		}
	}
	return is, nil
}

// look fetches the wanted logs of a block.
func (s *search) look(ctx context.Context, number uint64) judged {
	bounded, cancel := context.WithTimeout(ctx, judgeWait)
	defer cancel()
	b := judged{number: number, vain: map[*endpoint]bool{}}
	var h follow.Header
	if h, b.err = s.c.Vote(bounded, number, true); b.err == nil {
		b.hash = h.Hash
		if s.c.cfg.Proof == ProofOff {
			b.logs, b.err = s.c.logsOf(bounded, []follow.Header{h})
		} else { // whatever the bloom filter says: perhaps the chain has none
			b.logs, b.err = s.c.proved(bounded, []follow.Header{h})
		}
	}
	if b.err != nil && ctx.Err() == nil {
		s.c.log.Warn("an endpoint returns a log that nothing proves or disproves", zap.Uint64("block", number), zap.Error(b.err))
	}
	return b
}
