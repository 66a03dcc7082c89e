package state

import "sync"

// readCache keeps what snapshots read from disk. A block changes few rows, and a point read of Pebble costs more than the rest of
// reading a deal.
//
// Invariants:
//  1. an entry is what the disk has under its key since a commit, up to the last one: each commit drops what it writes;
//  2. only snapshots of the last commit add entries, and only those that are not older than an entry use it;
//  3. it holds at most limit bytes, half of them in each of two generations, as the rowCache does.
type readCache struct {
	limit int

	mu         sync.Mutex
	commits    uint64
	young, old map[string]cachedRead // by the key of a row, or of a group
	bytes      int                   // of young
}

// cachedRead is a row, or the rows of a group, newest first.
type cachedRead struct {
	since uint64 // the commit
	row   []byte // nil: there is none
	group []groupRow
	large bool // the group, which is not kept
}

type groupRow struct{ key, row []byte }

const (
	maxGroup          = 8   // rows of a group that are kept
	readOverheadBytes = 128 // an estimate of what an entry takes besides keys and rows
)

// now is the number of commits.
func (c *readCache) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commits
}

// get returns what a snapshot of that commit reads.
func (c *readCache) get(at uint64, key []byte) (r cachedRead, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok = c.young[string(key)]; !ok {
		if r, ok = c.old[string(key)]; ok {
			c.keep(string(key), r)
		}
	}
	if !ok || r.since > at {
		return cachedRead{}, false
	}
	return r, true
}

// put records what a snapshot of that commit has read. Nobody changes it afterwards.
func (c *readCache) put(at uint64, key []byte, r cachedRead) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at == c.commits {
		r.since = at
		c.keep(string(key), r)
	}
}

// keep adds an entry. The lock is held.
func (c *readCache) keep(key string, r cachedRead) {
	size := len(key) + len(r.row) + readOverheadBytes
	for i := range r.group {
		size += len(r.group[i].key) + len(r.group[i].row) + readOverheadBytes/2
	}
	if c.bytes+size > c.limit/2 {
		c.young, c.old, c.bytes = nil, c.young, 0
	}
	if c.young == nil {
		c.young = map[string]cachedRead{}
	}
	if _, had := c.young[key]; !had {
		c.bytes += size
	}
	c.young[key] = r
}

// committed drops what a commit has written: before there is a snapshot of it.
func (c *readCache) committed(rows []*row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commits++
	if len(c.young)+len(c.old) == 0 {
		return
	}
	var key []byte
	for _, r := range rows {
		key = appendRowKey(key[:0], r.layer.table.ID, r.key)
		c.drop(key)
		if g := r.layer.table.Group; g > 0 && g < len(r.key) {
			c.drop(key[:headBytes+g])
		}
	}
}

func (c *readCache) drop(key []byte) {
	delete(c.young, string(key))
	delete(c.old, string(key))
}

// clear drops all entries, after a write of anything.
func (c *readCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commits++
	c.young, c.old, c.bytes = nil, nil, 0
}
