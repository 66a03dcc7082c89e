package ingest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// probes are the calldata of the functions to probe, in the order of the answers.
var probes = [...][]byte{
	contracts.Selector("uiMultiplier()"),
	contracts.Selector("newUIMultiplier()"),
	contracts.Selector("effectiveAt()"),
	contracts.Selector("paused()"),
	contracts.Selector("oraclePaused()"),
}

// Gas and size limits of a call. A getter behind a proxy uses a tenth of the gas and returns one word.
const (
	probeGas   = 300_000
	probeBytes = 1 << 10
)

// needProbe are the first topics of logs after which a token is probed: AssetSet and the tokens' own.
func needProbe() map[common.Hash]bool {
	need := map[common.Hash]bool{assetSet(): true}
	for _, t := range contracts.TokenTopics() {
		need[t] = true
	}
	return need
}

// probe appends to each block a probe of every registered token that its logs mention, placed after the last such log.
// before are earlier fetches that may not be verified yet, whose tokens count as registered. At the tip it also probes
// tokens that are due, at the end of the block. It returns all answers in order.
func (in *Ingester) probe(ctx context.Context, u *fetch, before []*fetch, tip bool) (all []answer, err error) {
	blocks := u.blocks
	seen, sets := in.mentions(blocks)
	u.sets = sets
	close(u.known)
	fetched := []settings{sets}
	for _, f := range before {
		select {
		case <-f.known:
			fetched = append(fetched, f.sets)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var until time.Time // zero: none is probed yet
	for i := range blocks {
		b := &blocks[i]
		due := in.tokens.registered(b.Number, seen[i], fetched)
		var again []common.Address
		if tip && i == len(blocks)-1 {
			now := time.Now()
			again = in.tokens.due(now, now.Add(in.cfg.ProbeTimeout), due)
		}
		if len(due)+len(again) == 0 {
			continue
		}
		if until.IsZero() {
			until = in.probesEnd(ctx, blocks[len(blocks)-1].Hash)
		}
		answers, err := in.ask(ctx, until, b.BlockRef, append(due, again...))
		if err != nil {
			return nil, err
		}
		for k := range answers {
			answers[k].required = k < len(due)
		}
		b.Logs = place(b.Logs, seen[i], answers[:len(due)])
		for _, a := range answers[len(due):] {
			b.Logs = append(slices.Clip(b.Logs), a.Probe)
		}
		all = append(all, answers...)
	}
	return all, nil
}

// aloneProbes is the time for all probes of blocks that only one endpoint has.
const aloneProbes = 2 * time.Second

// probesEnd is when the probes of a fetch end, for all of its blocks together, if only one endpoint has the last of
// them. It may have made up any number of blocks, and delay every answer.
func (in *Ingester) probesEnd(ctx context.Context, last common.Hash) time.Time {
	have, lack := in.client.Had(ctx, last)
	switch now := time.Now(); {
	case have > 1:
		return now.Add(24 * time.Hour) // ProbeTimeout bounds each
	case lack > 0:
		return now.Add(aloneProbes)
	default:
		return now.Add(in.cfg.ProbeTimeout) // the others do not answer
	}
}

// tokenMention is a token mentioned in a block's logs, and the index of its last such log.
type tokenMention struct {
	token common.Address
	at    int
}

// mentions returns the tokens that each block's logs mention, each once, and those that the registry sets in the blocks.
func (in *Ingester) mentions(blocks []follow.Block) (seen [][]tokenMention, sets settings) {
	seen, sets = make([][]tokenMention, len(blocks)), settings{}
	for i := range blocks {
		var index map[common.Address]int
		for at, item := range blocks[i].Logs {
			token, set, ok := in.probed(item)
			if !ok {
				continue
			}
			if _, before := sets[token]; set && !before {
				sets[token] = blocks[i].Number
			}
			if k, again := index[token]; again {
				seen[i][k].at = at
				continue
			}
			if index == nil {
				index = map[common.Address]int{}
			}
			index[token] = len(seen[i])
			seen[i] = append(seen[i], tokenMention{token, at})
		}
	}
	return seen, sets
}

// place inserts each probe after the last log of its token.
func place(logs []follow.Item, seen []tokenMention, answers []answer) []follow.Item {
	of := make(map[common.Address]*topics.Probe, len(answers))
	for _, a := range answers {
		of[a.Token] = a.Probe
	}
	after := make(map[int]*topics.Probe, len(answers))
	for _, m := range seen {
		if p := of[m.token]; p != nil {
			p.LogIndex = logs[m.at].(*topics.Log).LogIndex
			after[m.at] = p
		}
	}
	all := make([]follow.Item, 0, len(logs)+len(answers))
	for at, item := range logs {
		all = append(all, item)
		if p := after[at]; p != nil {
			all = append(all, p)
		}
	}
	return all
}

// probed returns the token to probe because of a log. set: the log registers it.
func (in *Ingester) probed(item follow.Item) (token common.Address, set, ok bool) {
	l, ok := item.(*topics.Log)
	if !ok || len(l.Topics) == 0 || !in.needProbe[l.Topics[0]] {
		return common.Address{}, false, false
	}
	switch e := in.decoder.Decode(l.Address, l.Topics, l.Data).(type) {
	case *contracts.AssetSet:
		return e.Token, true, e.Kind == contracts.KindERC20
	case *contracts.UIMultiplierUpdated, *contracts.TokenPaused, *contracts.TokenUnpaused:
		return l.Address, false, true
	}
	return common.Address{}, false, false
}

// ask probes tokens as of a block, with as few requests as possible, within ProbeTimeout and before `until`. A field
// without an answer in time is nil, counted, and probed again later.
func (in *Ingester) ask(ctx context.Context, until time.Time, block topics.BlockRef, tokens []common.Address) ([]answer, error) {
	all := make([]answer, len(tokens))
	calls := make([]rpc.Call, 0, len(probes)*len(tokens))
	for i, token := range tokens {
		all[i].Probe = &topics.Probe{Block: block, Token: token}
		for _, data := range probes {
			calls = append(calls, rpc.Call{To: token, Data: data, Gas: probeGas, Bytes: probeBytes})
		}
	}
	if end := time.Now().Add(in.cfg.ProbeTimeout); end.Before(until) {
		until = end
	}
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	answers, err := in.client.Call(bounded, block.Hash, calls)
	in.metrics.probes.Add(float64(len(tokens)))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, rpc.ErrGone):
		return nil, err // the block is gone: fetch the head again
	case err != nil:
		in.metrics.probesBlind.Add(float64(len(tokens)))
		return all, nil
	}
	for i := range all {
		if all[i].whole = fill(all[i].Probe, answers[i*len(probes):(i+1)*len(probes)]); !all[i].whole {
			in.metrics.probesBlind.Inc()
		}
	}
	return all, nil
}

// fill sets the answers of one token; false: one of them is unknown. A field that several functions give is unknown
// with any of them: a multiplier without the time of its change would stay in force after it, and a token is paused if
// either function reports it.
func fill(p *topics.Probe, answers []rpc.CallResult) (whole bool) {
	failed := func(r rpc.CallResult) bool { return r.Failed }
	multipliers, pauses := answers[:3], answers[3:]
	if !slices.ContainsFunc(multipliers, failed) {
		p.UIMultiplier = word(multipliers[0].Data)
		p.NewUIMultiplier = word(multipliers[1].Data)
		if at := word(multipliers[2].Data); at != nil {
			seconds := at.Uint64()
			if !at.IsUint64() {
				seconds = ^uint64(0)
			}
			p.EffectiveAt = &seconds
		}
	}
	for _, answer := range pauses {
		if v := word(answer.Data); v != nil {
			paused := !v.IsZero() || p.Paused != nil && *p.Paused
			p.Paused = &paused
		}
	}
	if slices.ContainsFunc(pauses, failed) && p.Paused != nil && !*p.Paused {
		p.Paused = nil
	}
	return !slices.ContainsFunc(answers, failed)
}

// word decodes a one-word answer; any other answer means that the function does not exist.
func word(answer []byte) *uint256.Int {
	if len(answer) != 32 {
		return nil
	}
	return new(uint256.Int).SetBytes32(answer)
}
