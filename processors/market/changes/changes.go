// Package changes remembers which deals the last blocks changed, so that a follower of the market reads only
// those. It must not keep rows: they are in the views.
package changes

import (
	"sync"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// Bounds of the log of a partition. A client that is further behind reads the market from scratch.
const (
	maxEntries = 2048
	maxKeys    = 8192
)

// Log remembers the changes in the partitions that this node owns. It is an engine.Observer and a
// query.ChangeLog.
//
// Invariants:
//  1. entries of a partition ascend by moment. An entry has all deals that changed since the entry before; the
//     first entry has only a moment;
//  2. an entry is not a view: the view of its block may be gone.
type Log struct {
	mu         sync.Mutex
	partitions map[int32]*partition
}

type partition struct {
	entries []entry
	keys    int // in all entries except the first
}

type entry struct {
	at   query.Moment
	keys []common.Hash
}

// New makes an empty log.
func New() *Log { return &Log{partitions: make(map[int32]*partition)} }

var (
	_ engine.Observer = (*Log)(nil)
	_ query.ChangeLog = (*Log)(nil)
)

// Opened continues the log if the state is where the log ends. Blocks without changes do not count: an owner
// may start before them.
func (l *Log) Opened(p engine.Partition, view state.View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := query.Moment{Block: view.At(), Reverts: p.Reverts}
	if own := l.partitions[p.ID]; own != nil && own.rewind(at) {
		return
	}
	l.partitions[p.ID] = &partition{entries: []entry{{at: at}}}
}

// rewind drops the entries after a moment if they are empty. False: changes would be lost.
func (p *partition) rewind(at query.Moment) bool {
	i := len(p.entries) - 1
	for ; i > 0 && at.Before(p.entries[i].at); i-- {
		if len(p.entries[i].keys) > 0 {
			return false
		}
	}
	p.entries = p.entries[:i+1]
	return p.entries[i].at.Same(at)
}

// Applied records the changed deals.
func (l *Log) Applied(p engine.Partition, view state.View, changes []engine.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.partitions[p.ID]
	if own == nil {
		return
	}
	at := query.Moment{Block: view.At(), Reverts: p.Reverts}
	if len(changes) == 0 && own.entries[len(own.entries)-1].at.Same(at) {
		return
	}
	if len(changes) > maxKeys { // far behind the head: there are no followers
		*own = partition{entries: []entry{{at: at}}}
		return
	}
	own.add(entry{at, keysOf(changes)})
}

// keysOf returns the changed deals: a bid's key begins with its deal's key.
func keysOf(changes []engine.Change) (keys []common.Hash) {
	for i := range changes {
		if t := changes[i].Table; t != deals.Deals && t != deals.Bids {
			continue
		}
		key := common.Hash(changes[i].Key[:common.HashLength])
		if len(keys) == 0 || keys[len(keys)-1] != key {
			keys = append(keys, key)
		}
	}
	return keys
}

func (p *partition) add(e entry) {
	p.entries = append(p.entries, e)
	p.keys += len(e.keys)
	for p.keys > maxKeys || len(p.entries) > maxEntries {
		p.entries[0] = entry{}
		p.entries = p.entries[1:]
		p.keys -= len(p.entries[0].keys)
		p.entries[0].keys = nil
	}
}

// Closed keeps the entries: this node may own the partition again.
func (l *Log) Closed(engine.Partition) {}

// ChangedSince implements query.ChangeLog.
func (l *Log) ChangedSince(id int32, since *query.Moment, upTo topics.BlockRef) (query.Changed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.partitions[id]
	if own == nil {
		return query.Changed{}, query.ErrUnavailable
	}
	end := len(own.entries) - 1
	for ; end >= 0 && (own.entries[end].at.Block.Number != upTo.Number || own.entries[end].at.Block.Hash != upTo.Hash); end-- {
	}
	if end < 0 {
		return query.Changed{}, query.ErrUnavailable // the view became visible before Applied was called
	}
	changed := query.Changed{At: own.entries[end].at}
	switch {
	case since == nil:
		return changed, nil
	case changed.At.Before(*since):
		return query.Changed{}, query.ErrUnavailable // the caller has seen a later block than this node has
	case since.Before(own.entries[0].at):
		return query.Changed{}, query.ErrMomentUnknown
	}
	begin := end
	for since.Before(own.entries[begin].at) {
		changed.Keys = append(changed.Keys, own.entries[begin].keys...)
		begin--
	}
	from := own.entries[begin].at
	changed.Exact = from.Same(*since)
	if !changed.Exact && !from.Before(*since) {
		return query.Changed{}, query.ErrMomentUnknown // the block is of another branch of the chain
	}
	return changed, nil
}
