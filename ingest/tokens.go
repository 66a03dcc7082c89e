package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// tokens are the tokens that the registry ever set. Only they are probed, or a foreign contract could make the
// ingester call anything. They are read from the registry when a session begins, since the ingester stores
// nothing. Each AssetSet adds one once its block is verified, until the block is reverted: a forged block may set
// thousands.
type tokens struct {
	mu     sync.Mutex
	known  map[common.Address]*token
	newest uint64 // block that has an answer, or set a token
}

// token is the state of one.
//
// Invariants:
//
//  1. last is the newest answer of the verified chain that is or will be in the topic. nil: there is none, or a later one
//     is unknown, and the next answer counts as new.
//  2. Blocks that are not verified change nothing: the probe of a dropped block has no effect, and is due again soon.
type token struct {
	set  uint64        // the first block that is known to set it; 0: before the session
	at   time.Time     // next probe without a log that requires it
	wait time.Duration // pause after a failed probe; 0: it did not fail
	last *topics.Probe
}

// answer is a probe and its outcome.
type answer struct {
	*topics.Probe
	required bool // by a log
	whole    bool // nothing is unknown
}

// Bounds of the pause after a failed probe, and the number of tokens that a block at the tip probes again.
const (
	minProbeWait = time.Second
	maxProbeWait = 5 * time.Minute
	mostAgain    = 16
)

// settings are tokens that fetched blocks set, and the first of these blocks. They are not verified yet.
type settings map[common.Address]uint64

// add adds a token that is set before the session.
func (t *tokens) add(address common.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(address, 0, time.Now())
}

// set adds a token that a block sets. The caller holds mu.
func (t *tokens) set(address common.Address, block uint64, now time.Time) {
	if t.known == nil {
		t.known = map[common.Address]*token{}
	}
	k := t.known[address]
	if k == nil {
		k = &token{set: block, at: now.Add(maxProbeWait)}
		t.known[address] = k
	}
	k.set = min(k.set, block)
	t.newest = max(t.newest, k.set)
}

// registered returns the tokens that a block mentions and the registry has set, in verified blocks or in those fetched
// after them.
func (t *tokens) registered(block uint64, seen []tokenMention, fetched []settings) []common.Address {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []common.Address
	for _, m := range seen {
		if t.known[m.token] != nil || slices.ContainsFunc(fetched, func(s settings) bool {
			at, sets := s[m.token]
			return sets && at <= block
		}) {
			all = append(all, m.token)
		}
	}
	return all
}

// due returns tokens to probe although no log requires it, without those that are probed anyway: tokens whose probe
// failed, and from time to time all others, since not every change of a token emits an event; the longest due first.
// They are due again at `again`, unless an answer is verified before.
func (t *tokens) due(now, again time.Time, but []common.Address) []common.Address {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []common.Address
	for _, address := range but {
		if k := t.known[address]; k != nil {
			k.at = again
		}
	}
	for address, k := range t.known {
		if !now.Before(k.at) {
			all = append(all, address)
		}
	}
	slices.SortFunc(all, func(a, b common.Address) int { return cmp.Or(t.known[a].at.Compare(t.known[b].at), a.Cmp(b)) })
	all = all[:min(len(all), mostAgain)]
	for _, address := range all {
		t.known[address].at = again
	}
	return all
}

// news removes from fetched blocks the probes that no log required and that bring nothing new. verified must be called
// once the blocks, which set some tokens, are verified; nil: they have no probe.
func (t *tokens) news(blocks []follow.Block, sets settings, answers []answer) (verified func(now time.Time)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := map[common.Address]*topics.Probe{}
	repeated := map[*topics.Probe]bool{}
	for _, a := range answers { // in the order of the blocks
		if a.Block.Number > blocks[len(blocks)-1].Number {
			break // its block is fetched again
		}
		last, ok := next[a.Token]
		if k := t.known[a.Token]; !ok && k != nil {
			last = k.last
		}
		repeated[a.Probe] = !a.required && (!a.whole || last != nil && same(last, a.Probe))
		switch {
		case !a.whole:
			last = nil
		case !repeated[a.Probe]:
			last = a.Probe
		}
		next[a.Token] = last
	}
	if len(next) == 0 {
		return nil
	}
	for i := range blocks {
		blocks[i].Logs = slices.DeleteFunc(blocks[i].Logs, func(item follow.Item) bool {
			p, ok := item.(*topics.Probe)
			return ok && repeated[p]
		})
	}
	return func(now time.Time) {
		t.mu.Lock()
		defer t.mu.Unlock()
		for address, last := range next {
			if block, set := sets[address]; set {
				t.set(address, block, now) // its block has a probe
			}
			k := t.known[address]
			if k == nil {
				continue // reverted meanwhile
			}
			if k.last = last; last == nil {
				k.wait = min(max(minProbeWait, 2*k.wait), maxProbeWait)
				k.at = now.Add(k.wait)
				continue
			}
			k.wait, k.at = 0, now.Add(maxProbeWait)
			t.newest = max(t.newest, last.Block.Number)
		}
	}
}

// revert forgets the tokens and the answers of blocks above the verified ones, and makes probes due again. It is
// called before the replacing blocks are fetched.
func (t *tokens) revert(verified uint64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if verified >= t.newest {
		return
	}
	t.newest = verified
	for address, k := range t.known {
		switch {
		case k.set > verified:
			delete(t.known, address)
		case k.last != nil && k.last.Block.Number > verified:
			k.last, k.at = nil, now
		}
	}
}

// forget forgets all answers: the topic may have others.
func (t *tokens) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.known {
		k.last = nil
	}
}

func same(a, b *topics.Probe) bool {
	return equal(a.UIMultiplier, b.UIMultiplier) && equal(a.NewUIMultiplier, b.NewUIMultiplier) &&
		equal(a.EffectiveAt, b.EffectiveAt) && equal(a.Paused, b.Paused)
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// assetSet is the topic of the registry's event.
func assetSet() common.Hash {
	registry, err := contracts.ABI("AssetRegistry")
	if err != nil {
		panic(fmt.Sprintf("ingest: %v", err)) // the ABI is compiled in
	}
	return registry.Events["AssetSet"].ID
}

// listWait is how long the endpoints have for the registry's list: not every provider serves eth_call.
const listWait = 15 * time.Second

// loadTokens reads the registered tokens as of the last published block: from the registry's list or, if it has none
// or no endpoint answers, from its history.
func (in *Ingester) loadTokens(ctx context.Context, last topics.BlockRef) error {
	if last.Hash == (common.Hash{}) {
		return nil // the topic is empty: the blocks to come register them
	}
	bounded, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	found, listed, err := in.listed(bounded, last.Hash)
	if errors.Is(err, rpc.ErrNoState) || errors.Is(err, rpc.ErrGone) {
		found, listed, err = in.listed(bounded, common.Hash{})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		in.log.Warn("no endpoint returns the registry's list of tokens: reading its history", zap.Error(err))
	}
	if !listed {
		if found, err = in.everSet(ctx, last.Number); err != nil {
			return err
		}
	}
	for _, address := range found {
		in.tokens.add(address)
	}
	in.log.Info("registered tokens", zap.Int("tokens", len(found)), zap.Bool("listed", listed))
	return nil
}

// maxListed bounds the tokens that are read from the registry's list.
const maxListed = 1 << 16

// listed reads the registry's list page by page; false: it has none. A list that names a token twice, or does not end,
// does not count: nothing proves a response. If endpoints differ, the result is the union: reading the history may
// take long.
func (in *Ingester) listed(ctx context.Context, block common.Hash) (all []common.Address, ok bool, err error) {
	const page = 256
	seen := map[common.Address]bool{}
	for from, full, split := uint64(0), true, false; full; from += page {
		call := rpc.Call{
			To: in.cfg.Deployment.AssetRegistry, Data: append(contracts.Selector("tokens(uint256,uint256)"), words(from, page)...),
			Gas: 10_000_000, Bytes: (page + 2) * 32,
		}
		answers, err := in.client.Call(ctx, block, []rpc.Call{call})
		if err == nil && answers[0].Failed {
			split = true
			answers, err = in.client.Opinions(ctx, block, call)
		}
		if err != nil {
			return nil, false, err
		}
		full, ok = false, false
		for _, answer := range answers {
			got, is := addresses(answer.Data)
			full, ok = full || len(got) == page, ok || is
			for _, token := range got {
				switch {
				case seen[token] && split:
				case seen[token] || len(all) == maxListed && !split:
					in.log.Warn("the registry's list of tokens names one twice, or does not end: reading its history", zap.Int("tokens", len(all)), zap.Stringer("token", token))
					return nil, false, nil
				case len(all) == maxListed:
					in.log.Warn("endpoints differ on the registry's list of tokens, and one of them does not end it", zap.Int("tokens", len(all)))
					return all, true, nil
				default:
					seen[token] = true
					all = append(all, token)
				}
			}
		}
		if !ok {
			return nil, false, nil
		}
	}
	return all, true, nil
}

// everSet finds the tokens in the registry's history.
func (in *Ingester) everSet(ctx context.Context, to uint64) ([]common.Address, error) {
	logs, err := in.client.Events(ctx, in.cfg.Deployment.AssetRegistry, assetSet(), in.cfg.Deployment.StartBlock, to)
	if err != nil {
		return nil, fmt.Errorf("read the history of the registry: %w", err)
	}
	var all []common.Address
	for i := range logs {
		if len(logs[i].Topics) > 1 {
			all = append(all, common.BytesToAddress(logs[i].Topics[1][12:]))
		}
	}
	return all, nil
}

func words(n ...uint64) []byte {
	var b []byte
	for _, v := range n {
		w := uint256.NewInt(v).Bytes32()
		b = append(b, w[:]...)
	}
	return b
}

// addresses decodes an ABI-encoded array of addresses.
func addresses(answer []byte) ([]common.Address, bool) {
	const word = 32
	if len(answer) < 2*word || len(answer)%word != 0 || !new(uint256.Int).SetBytes(answer[:word]).Eq(uint256.NewInt(word)) {
		return nil, false
	}
	if n := new(uint256.Int).SetBytes(answer[word : 2*word]); !n.Eq(uint256.NewInt(uint64(len(answer)/word - 2))) {
		return nil, false
	}
	var all []common.Address
	for rest := answer[2*word:]; len(rest) > 0; rest = rest[word:] {
		all = append(all, common.BytesToAddress(rest[12:word]))
	}
	return all, true
}
