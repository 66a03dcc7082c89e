package ingest

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// tokens are the tokens that the registry ever set. Only they are probed, or a foreign contract could make the
// ingester call anything. They are read from the registry when a session begins, since the ingester stores
// nothing. Each AssetSet adds one once its block is verified, until the block is reverted: a forged block may set
// thousands.
//
// What only one of several endpoints names as registered is probed after a log that requires it, until it is proved.
// It is never due otherwise: one that names thousands would have them probed, and delay the others.
type tokens struct {
	mu     sync.Mutex
	known  map[common.Address]*token
	alone  map[common.Address]bool // named by one of several endpoints only
	calm   dueTokens               // known tokens whose last probe did not fail
	failed dueTokens               // and those whose did
	newest uint64                  // block that has an answer, or set a token
}

// token is the state of one.
//
// Invariants:
//
//  1. last is the newest answer of the verified chain that is or will be in the topic. nil: there is none, or a later one
//     is unknown, and the next answer counts as new.
//  2. Blocks that are not verified change nothing: the probe of a dropped block has no effect, and is due again soon.
type token struct {
	address common.Address
	index   int // in calm or failed

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
	mostAgain    = 8
)

// settings are tokens that fetched blocks set, and the first of these blocks. They are not verified yet.
type settings map[common.Address]uint64

// load adds the tokens that were set before the session.
func (t *tokens) load(known, alone []common.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, address := range known {
		t.set(address, 0, time.Now())
	}
	t.alone = map[common.Address]bool{}
	for _, address := range alone {
		t.alone[address] = t.known[address] == nil
	}
}

// proved adds tokens that turned out to be set before the session. missed: blocks may have come in without their
// probes, so that they are due at once. At most maxListed are known.
func (t *tokens) proved(all []common.Address, missed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, address := range all {
		if delete(t.alone, address); t.known[address] == nil && len(t.known) < maxListed {
			t.set(address, 0, time.Now())
			if missed {
				t.schedule(t.known[address], time.Now(), 0)
			}
		}
	}
}

// count is how many tokens are known.
func (t *tokens) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.known)
}

// set adds a token that a block sets. The caller holds mu.
func (t *tokens) set(address common.Address, block uint64, now time.Time) {
	if t.known == nil {
		t.known = map[common.Address]*token{}
	}
	k := t.known[address]
	if k == nil {
		k = &token{address: address, set: block, at: now.Add(maxProbeWait)}
		t.known[address] = k
		heap.Push(&t.calm, k)
		delete(t.alone, address)
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
		if t.known[m.token] != nil || t.alone[m.token] || slices.ContainsFunc(fetched, func(s settings) bool {
			at, sets := s[m.token]
			return sets && at <= block
		}) {
			all = append(all, m.token)
		}
	}
	return all
}

// due returns tokens to probe although no log requires it, without those that are probed anyway: tokens whose probe
// failed, and from time to time all others, since not every change of a token emits an event; of each the longest due
// first. They are due again at `again`, unless an answer is verified before. Half of them are those that failed, if
// there are as many, so that neither wait for the others.
func (t *tokens) due(now, again time.Time, but []common.Address) []common.Address {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, address := range but {
		if k := t.known[address]; k != nil {
			t.schedule(k, again, k.wait)
		}
	}
	failed := t.failed.pop(now, mostAgain)
	calm := t.calm.pop(now, mostAgain-min(len(failed), mostAgain/2))
	taken := failed[:min(len(failed), mostAgain-len(calm))]
	for _, k := range failed[len(taken):] {
		heap.Push(&t.failed, k)
	}
	var all []common.Address
	for _, k := range slices.Concat(taken, calm) {
		k.at = again
		heap.Push(t.queue(k), k)
		all = append(all, k.address)
	}
	return all
}

// dueTokens is a heap of tokens, the longest due first.
type dueTokens []*token

func (d dueTokens) Len() int { return len(d) }
func (d dueTokens) Less(i, j int) bool {
	return cmp.Or(d[i].at.Compare(d[j].at), d[i].address.Cmp(d[j].address)) < 0
}
func (d dueTokens) Swap(i, j int) { d[i], d[j] = d[j], d[i]; d[i].index, d[j].index = i, j }

// Push implements heap.Interface.
func (d *dueTokens) Push(k any) {
	k.(*token).index = len(*d)
	*d = append(*d, k.(*token))
}

// Pop implements heap.Interface.
func (d *dueTokens) Pop() any {
	last := len(*d) - 1
	k := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return k
}

// pop removes at most n tokens that are due.
func (d *dueTokens) pop(now time.Time, n int) (all []*token) {
	for len(all) < n && len(*d) > 0 && !now.Before((*d)[0].at) {
		all = append(all, heap.Pop(d).(*token))
	}
	return all
}

func (t *tokens) queue(k *token) *dueTokens {
	if k.wait > 0 {
		return &t.failed
	}
	return &t.calm
}

// schedule sets when a token is due, and the pause after its failed probe; 0: it did not fail. The caller holds mu.
func (t *tokens) schedule(k *token, at time.Time, wait time.Duration) {
	heap.Remove(t.queue(k), k.index)
	k.at, k.wait = at, wait
	heap.Push(t.queue(k), k)
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
				wait := min(max(minProbeWait, 2*k.wait), maxProbeWait)
				t.schedule(k, now.Add(wait), wait)
				continue
			}
			t.schedule(k, now.Add(maxProbeWait), 0)
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
			heap.Remove(t.queue(k), k.index)
		case k.last != nil && k.last.Block.Number > verified:
			k.last = nil
			t.schedule(k, now, k.wait)
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
