package state

// rowCache keeps rows as they are on disk from one commit to the next, for the one goroutine that writes
// the store. What a market does next concerns mostly what it did just before, and a point read of Pebble
// costs more than all else that an apply does. Readers of views do not come here.
//
// Invariants:
//  1. an entry is what is committed: it changes only when a batch is known to be applied, and goes when
//     that is not known;
//  2. it holds at most limit bytes, half of them in each generation. When the young one is full it
//     becomes the old one, whose entries go but for those that are asked for again;
//  3. while it is whole, what is not here is not on disk: the store began empty, and nothing was let go.
type rowCache struct {
	limit      int
	young, old map[rowKey][]byte // nil value: no such row
	bytes      int               // of young
	whole      bool
}

type rowKey struct {
	table byte
	key   string
}

// rowCacheBytes is for each store, and so for each partition.
const rowCacheBytes = 2 << 20

func newRowCache(limit int) *rowCache {
	c := &rowCache{limit: limit}
	c.clear(false)
	return c
}

// get says what is on disk; known is false where only the disk can say.
func (c *rowCache) get(table byte, key string) (row []byte, known bool) {
	k := rowKey{table, key}
	if row, known = c.young[k]; known {
		return row, true
	}
	if row, known = c.old[k]; known {
		c.put(table, key, row)
	}
	return row, known || c.whole
}

// put notes what is on disk. The row must not change afterwards.
func (c *rowCache) put(table byte, key string, row []byte) {
	k := rowKey{table, key}
	was, had := c.young[k]
	c.young[k] = row
	c.bytes += len(row) - len(was)
	if !had {
		c.bytes += len(key) + rowOverheadBytes
	}
	if c.bytes > c.limit/2 {
		c.whole = c.whole && len(c.old) == 0
		c.young, c.old, c.bytes = make(map[rowKey][]byte, len(c.young)), c.young, 0
	}
}

// clear forgets everything. Empty says that there is nothing on disk either.
func (c *rowCache) clear(empty bool) {
	c.young, c.old, c.bytes, c.whole = map[rowKey][]byte{}, nil, 0, empty
}
