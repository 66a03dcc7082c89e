package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// A ledger's origin is unknown if no endpoint could prove it and they did not agree. That may pass, so it is asked for
// again, in the background, and is written as a record of its own, a ledger without parts, with the newest block of
// that time. The headers of transactions name the tokens whose origin is still to come.

// first is the first transfer of a token with an amount above zero.
type first struct {
	log    *topics.Log // its position only
	header follow.Header
}

// origins are the unknown ones, which are asked for again. They belong to the session's loop.
type origins struct {
	known  map[common.Address]common.Hash // and still to be written
	asking map[common.Address]*asking
	next   time.Time // when to look for one that is due
	busy   bool
	over   chan origin
}

type asking struct {
	token common.Address
	first *first // nil: it has to be found
	at    time.Time
	wait  time.Duration
}

// origin is the result of a request for one.
type origin struct {
	of    *asking
	first *first      // nil: the token never moved anything, or an error
	hash  common.Hash // zero: it is still unknown
	err   error
}

func newOrigins() origins {
	return origins{known: map[common.Address]common.Hash{}, asking: map[common.Address]*asking{}, over: make(chan origin, 1)}
}

// begin adds a token that joins, whose first transfer's transaction is unknown; nil: it is known.
func (o *origins) begin(token common.Address, unknown *first) {
	delete(o.known, token) // of another chain
	delete(o.asking, token)
	if unknown != nil {
		o.asking[token] = &asking{token: token, first: unknown, at: time.Now().Add(minOriginWait), wait: minOriginWait}
	}
}

const (
	originWait    = 2 * time.Minute // limit for one request
	minOriginWait = 2 * time.Second // pause between two requests, which doubles
	maxOriginWait = 10 * time.Minute
	originLook    = time.Second
)

// originOf finds the transaction of a transfer; zero: it is unknown.
func (in *Ingester) originOf(ctx context.Context, client *rpc.Client, f *first, counts func(*topics.Log) bool) (common.Hash, error) {
	bounded, cancel := context.WithTimeout(ctx, originWait)
	defer cancel()
	hash, err := client.Origin(bounded, &f.header, f.log, counts)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		in.log.Warn("no endpoint names the transaction of a transfer", zap.Uint64("block", f.header.Number), zap.Error(err))
		return common.Hash{}, nil
	}
	return hash, err
}

// firstOf finds the first transfer of a token up to a block; nil: there is none.
func (in *Ingester) firstOf(ctx context.Context, token common.Address, upTo, settled uint64) (*first, error) {
	from, parent, err := in.begin(ctx, token, upTo)
	if err != nil {
		return nil, err
	}
	l := &ledger{decoder: in.decoder, token: token}
	h := in.history(token, from, upTo, settled)
	for h.next <= h.to && l.first == nil {
		blocks, err := h.read(ctx)
		if err != nil {
			return nil, fmt.Errorf("find the first transfer of token %s: %w", token, err)
		}
		for i := range blocks {
			for _, item := range blocks[i].Logs {
				l.begins(item.(*topics.Log), &blocks[i].Header)
			}
		}
	}
	if l.first == nil {
		return nil, nil //nolint:nilnil // it never moved anything
	}
	most, err := in.client.Vote(ctx, l.first.header.Number, true)
	if err == nil && (most.Hash != l.first.header.Hash || from > 0 && h.parent != parent) {
		err = rpc.ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("find the first transfer of token %s: %w", token, err)
	}
	return l.first, nil
}

// askOrigin asks for the origin of one token that waits for it, one at a time.
func (s *session) askOrigin(ctx context.Context, g *errgroup.Group) {
	o, now := &s.origins, time.Now()
	if o.busy || now.Before(o.next) {
		return
	}
	o.next = now.Add(originLook)
	for token, j := range s.follows.since {
		if _, known := o.known[token]; known || !j.asks || j.originBlock > 0 {
			continue
		}
		a := o.asking[token]
		if a == nil {
			a = &asking{token: token}
			o.asking[token] = a
		}
		if now.Before(a.at) {
			continue
		}
		o.busy = true
		answer, upTo, settled := origin{of: a, first: a.first}, j.block, s.m.Settled()
		g.Go(func() error {
			s.in.askOrigin(ctx, &answer, upTo, settled)
			o.over <- answer // has room
			return nil
		})
		return
	}
}

func (in *Ingester) askOrigin(ctx context.Context, a *origin, upTo, settled uint64) {
	token := a.of.token
	if a.first == nil {
		if a.first, a.err = in.firstOf(ctx, token, upTo, settled); a.first == nil {
			return
		}
	}
	l := &ledger{decoder: in.decoder, token: token}
	a.hash, a.err = in.originOf(ctx, in.client.Only(token, contracts.TransferTopic(), 0), a.first, l.counts)
}

// originAsked takes the result of a request.
func (s *session) originAsked(answer origin) {
	o, a := &s.origins, answer.of
	o.busy = false
	if o.asking[a.token] != a {
		return // the token joined again meanwhile
	}
	a.first = answer.first
	switch {
	case errors.Is(answer.err, rpc.ErrGone):
		a.first = nil // the next request finds it anew
	case answer.err == nil && (answer.first == nil || answer.hash != (common.Hash{})):
		o.known[a.token] = answer.hash
		delete(o.asking, a.token)
		return
	}
	if answer.err != nil {
		s.in.log.Warn("cannot find a token's origin", zap.Stringer("token", a.token), zap.Error(answer.err))
	}
	a.wait = min(max(2*a.wait, minOriginWait), maxOriginWait)
	a.at = time.Now().Add(a.wait)
}

// appendOrigins appends the origins that are known by now to the last of the fetched blocks. written is to be called
// once the block is verified.
func (s *session) appendOrigins(f *fetch) (written func()) {
	b := &f.blocks[len(f.blocks)-1]
	var tokens []common.Address
	for token, hash := range s.origins.known {
		if j := s.follows.since[token]; j.asks && j.originBlock == 0 && hash != (common.Hash{}) && b.Number > j.last() {
			tokens = append(tokens, token)
		}
	}
	if f.Kind == follow.Headers || f.Kind == follow.Vote {
		tokens = nil
	}
	slices.SortFunc(tokens, common.Address.Cmp)
	for _, token := range tokens {
		b.Logs = append(slices.Clip(b.Logs), &topics.Ledger{Block: b.BlockRef, Token: token, First: s.origins.known[token]})
	}
	return func() {
		if s.m.Tip() != b.BlockRef {
			return
		}
		for _, token := range tokens {
			j := s.follows.since[token]
			j.originBlock = b.Number
			s.follows.since[token] = j
			s.in.log.Info("the origin of a token is known", zap.Stringer("token", token), zap.Uint64("block", b.Number))
		}
	}
}
