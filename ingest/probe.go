package ingest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// probes are the functions that a token is asked for, in the order of the answers.
var probes = [...][]byte{
	selector("uiMultiplier()"),
	selector("newUIMultiplier()"),
	selector("effectiveAt()"),
	selector("paused()"),
	selector("oraclePaused()"),
}

// Caps of one call of a token. A getter behind a proxy takes a tenth of the gas, and answers one word.
const (
	probeGas   = 300_000
	probeBytes = 1 << 10
)

func selector(signature string) []byte { return crypto.Keccak256([]byte(signature))[:4] }

// needProbe are the first topics of logs after which a token is probed: AssetSet and those of tokens.
func needProbe() map[common.Hash]bool {
	need := map[common.Hash]bool{assetSet(): true}
	for _, t := range contracts.TokenTopics() {
		need[t] = true
	}
	return need
}

// probe adds to blocks what the registered tokens that their logs are about answer as of each block, behind the
// last such log of a token. before ends when the blocks below are through with their registrations; known is
// closed when these are. At the tip it also asks again those whose probe is due.
func (in *Ingester) probe(ctx context.Context, blocks []follow.Block, before <-chan struct{}, known chan<- struct{}, tip bool) error {
	seen := in.register(blocks)
	if before != nil {
		select {
		case <-before:
		case <-ctx.Done():
			close(known)
			return ctx.Err()
		}
	}
	close(known)
	for i := range blocks {
		b := &blocks[i]
		due := in.tokens.registered(seen[i])
		var again []common.Address
		if tip && i == len(blocks)-1 {
			again = in.tokens.due(time.Now(), due)
		}
		if len(due)+len(again) == 0 {
			continue
		}
		answers, err := in.ask(ctx, b.BlockRef, append(due, again...))
		if err != nil {
			return err
		}
		b.Logs = place(b.Logs, seen[i], answers[:len(due)])
		for _, p := range answers[len(due):] {
			if in.tokens.news(p) {
				b.Logs = append(slices.Clip(b.Logs), p)
			}
		}
	}
	return nil
}

// mention is a token that a block's logs are about, and where its last such log is.
type mention struct {
	token common.Address
	at    int
}

// register notes what the blocks register, and returns of each block the tokens that its logs are about: at
// most so many as it has logs, and each once.
func (in *Ingester) register(blocks []follow.Block) [][]mention {
	seen := make([][]mention, len(blocks))
	for i := range blocks {
		var index map[common.Address]int
		for at, item := range blocks[i].Logs {
			token, ok := in.probed(item)
			if !ok {
				continue
			}
			if k, again := index[token]; again {
				seen[i][k].at = at
				continue
			}
			if index == nil {
				index = map[common.Address]int{}
			}
			index[token] = len(seen[i])
			seen[i] = append(seen[i], mention{token, at})
		}
	}
	return seen
}

// place puts each probe behind the last log of its token.
func place(logs []follow.Item, seen []mention, answers []*topics.Probe) []follow.Item {
	of := make(map[common.Address]*topics.Probe, len(answers))
	for _, p := range answers {
		of[p.Token] = p
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

// probed returns the token that a log calls to probe, and notes those that it registers.
func (in *Ingester) probed(item follow.Item) (common.Address, bool) {
	l, ok := item.(*topics.Log)
	if !ok || len(l.Topics) == 0 || !in.needProbe[l.Topics[0]] {
		return common.Address{}, false
	}
	switch e := in.decoder.Decode(l.Address, l.Topics, l.Data).(type) {
	case *contracts.AssetSet:
		if e.Kind == contracts.KindERC20 {
			in.tokens.add(e.Token)
		}
		return e.Token, e.Kind == contracts.KindERC20
	case *contracts.UIMultiplierUpdated, *contracts.TokenPaused, *contracts.TokenUnpaused:
		return l.Address, true
	}
	return common.Address{}, false
}

// ask asks tokens as of a block, in as few requests as may be and within ProbeTimeout. What is not to be had
// within that time, or from no endpoint any more, is a nil field: counted, and asked for again later.
func (in *Ingester) ask(ctx context.Context, block topics.BlockRef, tokens []common.Address) ([]*topics.Probe, error) {
	all := make([]*topics.Probe, len(tokens))
	calls := make([]rpc.Call, 0, len(probes)*len(tokens))
	for i, token := range tokens {
		all[i] = &topics.Probe{Block: block, Token: token}
		for _, data := range probes {
			calls = append(calls, rpc.Call{To: token, Data: data, Gas: probeGas, Bytes: probeBytes})
		}
	}
	bounded, cancel := context.WithTimeout(ctx, in.cfg.ProbeTimeout)
	defer cancel()
	answers, err := in.client.Call(bounded, block.Hash, calls)
	in.metrics.probes.Add(float64(len(tokens)))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, rpc.ErrGone):
		return nil, err // the block itself: the head is asked for anew
	case err != nil:
		in.metrics.probesBlind.Add(float64(len(tokens)))
		in.tokens.failed(time.Now(), tokens...)
		return all, nil
	}
	for i, p := range all {
		if !fill(p, answers[i*len(probes):(i+1)*len(probes)]) {
			in.metrics.probesBlind.Inc()
			in.tokens.failed(time.Now(), p.Token)
			continue
		}
		in.tokens.answered(time.Now(), p)
	}
	return all, nil
}

// fill takes over the answers of one token; false: one of them is unknown.
func fill(p *topics.Probe, answers []rpc.Answer) (whole bool) {
	p.UIMultiplier = word(answers[0].Data)
	p.NewUIMultiplier = word(answers[1].Data)
	if at := word(answers[2].Data); at != nil {
		seconds := at.Uint64()
		if !at.IsUint64() {
			seconds = ^uint64(0)
		}
		p.EffectiveAt = &seconds
	}
	for _, answer := range answers[3:] {
		if v := word(answer.Data); v != nil {
			paused := !v.IsZero() || p.Paused != nil && *p.Paused
			p.Paused = &paused
		}
	}
	for _, answer := range answers {
		if answer.Failed {
			return false
		}
	}
	return true
}

// word reads an answer of one word; anything else is not the function that was asked for.
func word(answer []byte) *uint256.Int {
	if len(answer) != 32 {
		return nil
	}
	return new(uint256.Int).SetBytes32(answer)
}
