package simulation

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// blockEvent is the last event of a block.
type blockEvent struct {
	Number, Timestamp, LatestBlock, LagBlocks uint64
	Hash                                      common.Hash
}

// judge judges all that was told since the last block's event: it is so as of this block, nothing of what changed since is left
// out, and the pool and the epoch are told only where they changed. A deal may be told that did not change.
func (l *follower) judge(now *blockEvent) {
	b, before := l.chain.rec.blocks[now.Hash], l.chain.rec.blocks[l.block]
	if b == nil {
		l.market = nil
		if !l.forged.stands(now.Hash, l.opt.alone) {
			l.found("stream of a block that never was", "%s: %s", l.host, now.Hash)
		}
		return
	}
	if before != nil && l.chain.isCanonical(l.block) && l.chain.isCanonical(now.Hash) && b.header.Number.Cmp(before.header.Number) <= 0 {
		l.found("stream goes back", "%s: block %s after %s", l.host, b.header.Number, before.header.Number)
	}
	l.judgeNumbers(now, b)
	want := l.oracle.markets[now.Hash.Hex()]
	if want == nil { // it is judged with the next one that the oracle knows
		if l.before.add(l.now); l.block == (common.Hash{}) {
			l.market = nil
		}
		return
	}
	if wrong := l.now.differs(want); wrong != "" {
		l.found("stream tells what is not so", "%s: with block %s after %s: %s", l.host, b.header.Number, l.block, wrong)
	}
	switch known := l.market; {
	case l.block == (common.Hash{}):
		if l.now.pool == "" || l.now.epoch == "" || len(l.now.deals) > 0 {
			l.found("stream begins otherwise", "%s: at block %s with pool %q, epoch %q and %d deals", l.host, b.header.Number, l.now.pool, l.now.epoch, len(l.now.deals))
		}
	case known != nil:
		pool, epoch := cmp.Or(l.before.pool, known.pool), cmp.Or(l.before.epoch, known.epoch)
		all := l.before
		all.add(l.now)
		if lacks := all.lacks(known, want); lacks != "" {
			l.found("stream lacks something", "%s: at block %s after %s: %s", l.host, b.header.Number, l.block, lacks)
		}
		if l.shared && (l.now.pool == pool || l.now.epoch == epoch) {
			l.found("stream tells what did not change", "%s: at block %s after %s: pool %.40q, epoch %.40q", l.host, b.header.Number, l.block, l.now.pool, l.now.epoch)
		}
		l.rmu.Lock()
		l.result.events++
		l.rmu.Unlock()
	}
	l.market, l.before = want, newTold()
}

// judgeNumbers judges what a block's event says of blocks.
func (l *follower) judgeNumbers(now *blockEvent, b *block) {
	wrong := ""
	switch {
	case b.header.Number.Uint64() != now.Number || b.header.Time != now.Timestamp:
		wrong = fmt.Sprintf("it is number %s at %d", b.header.Number, b.header.Time)
	case now.LatestBlock < now.Number || now.LagBlocks != now.LatestBlock-now.Number:
		wrong = "its numbers do not fit"
	case now.LatestBlock > l.chain.top() && !l.opt.forger:
		wrong = fmt.Sprintf("the chain was never above %d", l.chain.top())
	}
	if wrong != "" {
		l.found("stream tells what is not so", "%s: block %+v: %s", l.host, *now, wrong)
	}
}

// judgeReset judges that a client has to begin anew. Where nothing is broken, nor was when it heard the last event a short while
// before, what it missed is known.
func (l *follower) judgeReset() {
	l.rmu.Lock()
	l.result.resets++
	l.rmu.Unlock()
	if absent := time.Since(l.heard); l.well && absent < absentWithin && l.isWell() {
		l.found("stream resets a client", "%s: %v after the event of block %s, and nothing was broken", l.host, absent, l.block)
	}
}

// judgeSilence judges what a client has heard in the end that stayed at a node. Where nothing is broken, it was told of
// the last block that there was a while before.
func (l *follower) judgeSilence(ctx context.Context) {
	if l.since.IsZero() || time.Since(l.since) < silentWithin || ctx.Err() != nil || !l.isWell() {
		return
	}
	age := l.chain.age(l.block, time.Now())
	if (age > silentWithin || l.block == (common.Hash{})) && !l.freesNow(ctx) {
		l.found("stream is silent", "%s: for %v, and block %s was overtaken %v before", l.host, time.Since(l.since), l.block, age)
	}
}

// lone are faults of a serving node that nobody else notices, but for who was connected to it.
var lone = []string{"kill", "stop", "lose the disk", "freeze", "falter", "reset", cutFromChain.name}

// isWell says whether nothing happens, nor has for a while since the run began, that the client's node could notice.
func (l *follower) isWell() bool {
	l.rmu.Lock()
	defer l.rmu.Unlock()
	if !l.settled || time.Since(l.began) <= warmAfter {
		return false
	}
	for _, hosts := range []iter.Seq[string]{maps.Keys(l.busy), maps.Keys(l.healed)} {
		for host := range hosts {
			noticed := host == l.host || kindOf(host) != "serving" || !slices.Contains(lone, l.ails[host])
			if noticed && !l.calm(host, time.Now()) {
				return false
			}
		}
	}
	return true
}
