package ingest

import (
	"context"
	"errors"
	"fmt"

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

func selector(signature string) []byte { return crypto.Keccak256([]byte(signature))[:4] }

// needProbe are the first topics of logs after which a token is probed: AssetSet and those of tokens.
func needProbe() map[common.Hash]bool {
	need := map[common.Hash]bool{}
	if registry, err := contracts.ABI("AssetRegistry"); err == nil {
		need[registry.Events["AssetSet"].ID] = true
	}
	for _, t := range contracts.TokenTopics() {
		need[t] = true
	}
	return need
}

// probe follows every log that calls for it with what its token answers as of the block.
func (in *Ingester) probe(ctx context.Context, blocks []follow.Block) error {
	for i := range blocks {
		b := &blocks[i]
		for at := 0; at < len(b.Logs); at++ {
			token, ok := in.probed(b.Logs[at])
			if !ok {
				continue
			}
			p, err := in.ask(ctx, b.BlockRef, token)
			if err != nil {
				return err
			}
			l := b.Logs[at].(*topics.Log)
			p.LogIndex = l.LogIndex
			items := make([]follow.Item, 0, len(b.Logs)+1)
			items = append(append(append(items, b.Logs[:at+1]...), p), b.Logs[at+1:]...)
			b.Logs = items
			at++
		}
	}
	return nil
}

// probed returns the token that a log calls to probe.
func (in *Ingester) probed(item follow.Item) (common.Address, bool) {
	l, ok := item.(*topics.Log)
	if !ok || len(l.Topics) == 0 || !in.needProbe[l.Topics[0]] {
		return common.Address{}, false
	}
	switch e := in.decoder.Decode(l.Address, l.Topics, l.Data).(type) {
	case *contracts.AssetSet:
		return e.Token, e.Kind == contracts.KindERC20
	case *contracts.UIMultiplierUpdated, *contracts.TokenPaused, *contracts.TokenUnpaused:
		return l.Address, true
	}
	return common.Address{}, false
}

// ask asks a token. Where no endpoint keeps the state any more, nothing is known: that is a probe of nil
// fields, and counted.
func (in *Ingester) ask(ctx context.Context, block topics.BlockRef, token common.Address) (*topics.Probe, error) {
	calls := make([]rpc.Call, len(probes))
	for i, data := range probes {
		calls[i] = rpc.Call{To: token, Data: data}
	}
	p := &topics.Probe{Block: block, Token: token}
	answers, err := in.client.Call(ctx, block.Hash, calls)
	in.metrics.probes.Inc()
	switch {
	case errors.Is(err, rpc.ErrNoState):
		in.metrics.probesBlind.Inc()
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("probe token %s: %w", token, err)
	}
	p.UIMultiplier = word(answers[0])
	p.NewUIMultiplier = word(answers[1])
	if at := word(answers[2]); at != nil {
		seconds := at.Uint64()
		if !at.IsUint64() {
			seconds = ^uint64(0)
		}
		p.EffectiveAt = &seconds
	}
	for _, answer := range answers[3:] {
		if v := word(answer); v != nil {
			paused := !v.IsZero() || p.Paused != nil && *p.Paused
			p.Paused = &paused
		}
	}
	return p, nil
}

// word reads an answer of one word; anything else is not the function that was asked for.
func word(answer []byte) *uint256.Int {
	if len(answer) != 32 {
		return nil
	}
	return new(uint256.Int).SetBytes32(answer)
}
