package rpc

import (
	"fmt"
	ones "math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
)

// unsigned are the last blocks of which endpoints do not have the transactions as they were signed, so that nothing proves the hashes
// that they name.
//
// Strangers choose what is in a block, and nodes how they describe it, so waiting would let a stranger stop the ingestion. Such a block is believed,
// and counted, once every endpoint has answered like that or is silent, and most of those that answered name the same hashes. A liar gains nothing
// but the hashes, and while there is another endpoint not even these.
type unsigned struct {
	mu     sync.Mutex
	all    [256]unsignedBlock
	next   int
	blocks int    // that are believed
	last   uint64 // of them
	logged time.Time
}

type unsignedBlock struct {
	hash     common.Hash
	says     map[*endpoint][]naming
	believed int // how many endpoints said the same when it was believed; 0: it is not
}

// of returns a block's, or nil. The caller holds mu.
func (u *unsigned) of(hash common.Hash) *unsignedBlock {
	for i := range u.all {
		if b := &u.all[i]; b.says != nil && b.hash == hash {
			return b
		}
	}
	return nil
}

// signed forgets what was said of a block that is proved.
func (u *unsigned) signed(hash common.Hash) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if b := u.of(hash); b != nil {
		*b = unsignedBlock{}
	}
}

// agreed is how many endpoints said the same of a block that is believed; 0: its transactions are proved.
func (u *unsigned) agreed(hash common.Hash) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if b := u.of(hash); b != nil {
		return b.believed
	}
	return 0
}

// believes reports whether what an endpoint says of a block's transactions is to be believed though nothing proves it.
func (c *Client) believes(e *endpoint, h *follow.Header, named []naming, why error) bool {
	u := &c.unsigned
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.of(h.Hash)
	if b == nil {
		b = &u.all[u.next]
		*b = unsignedBlock{hash: h.Hash, says: map[*endpoint][]naming{}}
		u.next = (u.next + 1) % len(u.all)
	}
	b.says[e] = slices.Clone(named)
	same := 0
	for _, o := range c.endpoints {
		said, has := b.says[o]
		switch {
		case !has && !o.quiet(c.cfg.Silence):
			return false // it may have them
		case has && slices.Equal(said, named):
			same++
		}
	}
	if 2*same <= len(b.says) {
		return false
	}
	if b.believed == 0 {
		c.metrics.unproved.Inc()
		u.blocks, u.last = u.blocks+1, h.Number
		if now := time.Now(); now.Sub(u.logged) > lieAgain {
			u.logged = now
			c.log.Warn("nothing proves the hashes of a block's transactions: they are the endpoints' word", zap.Uint64("block", h.Number), zap.Int("endpoints", same), zap.Error(e.redact(why)))
		}
	}
	b.believed = same
	return true
}

// Unsigned says which blocks have transactions whose hashes nothing proves; empty: none has.
func (c *Client) Unsigned() string {
	u := &c.unsigned
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.blocks == 0 {
		return ""
	}
	return fmt.Sprintf("the hashes of transactions in %d blocks, the last of them %d, are the endpoints' word: none has these as they were signed", u.blocks, u.last)
}

// hits tells which of the last blocks that may concern us did.
type hits struct{ last atomic.Uint32 }

func (r *hits) add(hit bool) {
	n := r.last.Load() << 1
	if hit {
		n |= 1
	}
	r.last.Store(n & 0xff)
}

// often reports whether at least half of the last eight had logs of ours: then their transactions are asked for together with the receipts.
func (r *hits) often() bool { return ones.OnesCount32(r.last.Load()) >= 4 }
