package state

// rowCache keeps rows as they are on disk between commits, for the goroutine that writes the store. The next
// block mostly concerns the rows of the blocks just before, and a point read of Pebble costs more than
// everything else in an apply. Views do not use it.
//
// Invariants:
//  1. an entry is the committed value: it changes only after a batch is known to be applied, and is dropped if
//     that is uncertain;
//  2. it holds at most limit bytes, half of them in each of two generations. A full young generation becomes
//     the old one; the old entries are dropped unless they are used again;
//  3. a key that is not among all is not on disk: the store began empty, and all has every key written since.
type rowCache struct {
	limit      int
	keys       int // most bytes of all
	young, old *generation
	bytes      int     // of young
	all        *keySet // nil: not known
}

// generation has rows by table and key. A nil row: there is none on disk.
type generation [256]map[string][]byte

func newRowCache(limit int) *rowCache {
	c := &rowCache{limit: limit, keys: limit / keySetShare}
	c.clear(false)
	return c
}

// get returns the row on disk; known is false if the cache cannot tell.
func (c *rowCache) get(table byte, key string) (row []byte, known bool) {
	if row, known = c.young[table][key]; known {
		return row, true
	}
	if row, known = c.old[table][key]; known {
		c.put(table, key, row)
	}
	return row, known || c.all != nil && !c.all.has(keyHash(table, key))
}

// written records a row that is on disk now.
func (c *rowCache) written(table byte, key string, row []byte) {
	c.put(table, key, row)
	if c.all == nil || row == nil {
		return
	}
	if c.all.add(keyHash(table, key)); c.all.bytes() > c.keys {
		c.all = nil
	}
}

// put records the row on disk. The slice must not change afterwards.
func (c *rowCache) put(table byte, key string, row []byte) {
	rows := c.young[table]
	if rows == nil {
		rows = make(map[string][]byte, len(c.old[table]))
		c.young[table] = rows
	}
	was, had := rows[key]
	rows[key] = row
	c.bytes += len(row) - len(was)
	if !had {
		c.bytes += len(key) + rowOverheadBytes
	}
	if c.bytes > c.limit/2 {
		c.young, c.old, c.bytes = new(generation), c.young, 0
	}
}

// resize sets the limit.
func (c *rowCache) resize(limit int) {
	if limit < c.limit {
		c.old = new(generation)
	}
	if c.bytes > limit/2 {
		c.young, c.bytes = new(generation), 0
	}
	c.limit = limit
}

// clear drops all entries. empty means that the disk is empty too.
func (c *rowCache) clear(empty bool) {
	*c = rowCache{limit: c.limit, keys: c.keys, young: new(generation), old: new(generation)}
	if empty {
		c.all = new(keySet)
	}
}
