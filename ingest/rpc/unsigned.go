package rpc

import (
	"context"
	"errors"
	"fmt"
	ones "math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/pause"
)

// unsigned are the blocks that came in though no endpoint had their transactions as they were signed, so that nothing proves the hashes of these.
//
// Strangers choose what is in a block, and nodes how they describe it, so waiting would let a stranger stop the ingestion. So each endpoint that is
// available is asked once, and whoever proves the hashes wins. If nobody does, the hashes that most of them name are believed, and that is counted. A liar gains
// nothing but the hashes, and not even these beside an endpoint that has what was signed.
type unsigned struct {
	mu     sync.Mutex
	all    [256]common.Hash // the last ones: a block is counted once
	next   int
	blocks int
	last   uint64 // of them
	logged time.Time
	tied   time.Time // since when such a block waited for an endpoint that did not answer
}

// word is what an endpoint says of a block's transactions that it cannot prove.
type word struct {
	header follow.Header
	named  []naming
	n      int        // transactions of the block
	says   *described // nil: it does not describe them
	why    error
}

// attempt is one to fetch the logs of blocks.
type attempt struct {
	known  map[common.Hash][]naming // the transactions of logs, by block, whatever an endpoint says of them; changed between requests only
	agreed map[common.Hash]int      // of those that nothing proves: how many endpoints said the same

	liar *endpoint // whose word was disproved; nil: nobody's
	lie  error

	mu     sync.Mutex
	failed map[*endpoint]int  // requests for what proves them
	parts  map[*endpoint]bool // they do not return a block's receipts at once
}

func newAttempt() *attempt {
	return &attempt{known: map[common.Hash][]naming{}, agreed: map[common.Hash]int{}, failed: map[*endpoint]int{}, parts: map[*endpoint]bool{}}
}

// proofTries is how often an endpoint may fail at what proves a transaction's hash, and at nothing else, before it counts as having no proof.
const proofTries = 4

// lacks reports whether an error says that an endpoint cannot prove hashes.
func (a *attempt) lacks(ctx context.Context, e *endpoint, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	if errors.Is(err, errUnsigned) || lacksRaw(err) {
		return true
	}
	if classify(err) == classLie {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed[e]++
	return a.failed[e] >= proofTries
}

// rename gives logs the transactions that are known.
func rename(logs []topics.Log, known []naming) {
	for i := range logs {
		at := slices.IndexFunc(known, func(n naming) bool { return n.at == logs[i].TxIndex })
		if at >= 0 {
			logs[i].TxHash = known[at].hash
		}
	}
}

// round is what the endpoints beside one say of blocks that it cannot prove.
type round struct {
	words  []word
	filter *filter

	mu      sync.Mutex
	proofs  [][]naming // by word; nil: nobody has one
	left    int        // without
	says    []map[*endpoint][]naming
	missing bool // somebody did not answer, or was not asked
}

// settle finds out the hashes of the transactions of blocks that an endpoint could not prove. again: they are not those that it named, so that the
// blocks are to be fetched again.
func (c *Client) settle(ctx context.Context, by *endpoint, words []word, a *attempt) (again bool, err error) {
	defer func() {
		if a.liar != nil && !again && err == nil { // not before: perhaps nobody else has the receipts
			a.liar.failed(a.lie)
		}
	}()
	if len(words) == 0 {
		return false, nil
	}
	r := c.round(ctx, by, words)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	for i := range words {
		w := &words[i]
		names := r.proofs[i]
		if names == nil {
			names = by.defends(ctx, w, r.says[i])
		}
		if names != nil {
			if !slices.Equal(names, w.named) {
				a.liar, a.lie = by, lied(lieHash, "transactions of block %d have other hashes", w.header.Number)
			}
		} else {
			r.says[i][by] = w.named
			most, n, tied := c.mostNamed(r.says[i])
			if len(r.says[i]) > n {
				for e := range r.says[i] {
					c.metrics.lies.WithLabelValues(e.name, "disagreement").Inc()
				}
			}
			if tied && r.missing && c.unsigned.waits(c.cfg.Silence) {
				return false, fmt.Errorf("the endpoints name different transactions of block %d, and one that could prove them does not answer: %w", w.header.Number, ErrNoProof)
			}
			names, a.agreed[w.header.Hash] = most, n
			c.unproved(w, n, by)
		}
		a.known[w.header.Hash] = names
		again = again || !slices.Equal(names, w.named)
	}
	return again, nil
}

// defends asks an endpoint for the proof of its word that it was spared, where another one contradicts it; nil: it has none.
func (e *endpoint) defends(ctx context.Context, w *word, says map[*endpoint][]naming) []naming {
	if !errors.Is(w.why, errSpared) {
		return nil
	}
	for _, names := range says {
		if slices.Equal(names, w.named) {
			continue
		}
		hashes, err := e.hashes(ctx, &w.header, w.says, w.n, true)
		if err != nil {
			if ctx.Err() == nil {
				e.failed(err)
			}
			return nil
		}
		return namesAt(w.named, hashes)
	}
	return nil
}

// round asks every other endpoint that is available, once, and at the same time.
func (c *Client) round(ctx context.Context, by *endpoint, words []word) *round {
	r := &round{words: words, filter: &c.filter, proofs: make([][]naming, len(words)), says: make([]map[*endpoint][]naming, len(words)), left: len(words)}
	for i := range r.says {
		r.says[i] = map[*endpoint][]naming{}
	}
	asking, cancel := context.WithTimeout(ctx, claimWait+time.Duration(len(words))*c.patience())
	defer cancel()
	var g sync.WaitGroup
	for _, o := range c.endpoints {
		if o == by {
			continue
		}
		rest, _ := o.score(time.Now())
		if rest > c.patience() {
			r.mu.Lock()
			r.missing = true
			r.mu.Unlock()
			continue
		}
		g.Go(func() {
			err := pause.For(asking, rest)
			if err == nil {
				err = r.ask(asking, o, cancel)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if err == nil || r.left == 0 {
				return
			}
			r.missing = true
			if ctx.Err() == nil {
				o.failed(err)
			}
		})
	}
	g.Wait()
	return r
}

// ask asks an endpoint for what proves the blocks. proved is called once all are.
func (r *round) ask(ctx context.Context, o *endpoint, proved func()) error {
	headers := make([]follow.Header, len(r.words))
	for i := range r.words {
		headers[i] = r.words[i].header
	}
	o.earn(headers)
	all, err := o.blocks(ctx, headers)
	if err != nil && !lacksRaw(err) {
		return err
	}
	for i := range r.words {
		disputed := false
		if all[i] != nil {
			names := namesAt(r.words[i].named, all[i].hashes)
			disputed = names != nil && !slices.Equal(names, r.words[i].named)
		}
		hashes, err := o.hashes(ctx, &headers[i], all[i], r.words[i].n, disputed)
		is := err == nil
		switch {
		case is:
		case ctx.Err() != nil || !errors.Is(err, errUnsigned):
			return err
		case all[i] != nil:
			hashes = all[i].hashes
		}
		names := namesAt(r.words[i].named, hashes)
		if names == nil && r.words[i].n <= o.most(&headers[i]) { // or its receipts may take as many requests as they are
			if err := o.receipts(ctx, r.filter, nil, headers[i:i+1], nil, func(_ int, logs []topics.Log, _ int) { names = namings(nil, logs) }); err != nil {
				names = nil
			}
		}
		r.mu.Lock()
		switch {
		case names == nil: // it says nothing of them
		case !is:
			r.says[i][o] = names
		case r.proofs[i] == nil:
			r.proofs[i] = names
			if r.left--; r.left == 0 {
				proved()
			}
		}
		r.mu.Unlock()
	}
	return nil
}

// namesAt are the hashes at the same places; nil: one is missing.
func namesAt(named []naming, hashes []common.Hash) []naming {
	all := make([]naming, len(named))
	for i, n := range named {
		if int(n.at) >= len(hashes) || hashes[n.at] == (common.Hash{}) {
			return nil
		}
		all[i] = naming{n.at, hashes[n.at]}
	}
	return all
}

// mostNamed is what most endpoints name, and how many do. tied: as many name something else, and the one that is configured first is believed.
func (c *nodes) mostNamed(says map[*endpoint][]naming) (most []naming, n int, tied bool) {
	for _, e := range c.endpoints {
		names, has := says[e]
		if !has || most != nil && slices.Equal(names, most) {
			continue
		}
		same := 0
		for _, other := range says {
			if slices.Equal(names, other) {
				same++
			}
		}
		if same > n {
			most, n, tied = names, same, false
		} else if same == n {
			tied = true
		}
	}
	return most, n, tied
}

// waits reports whether a block may wait for an endpoint that does not answer: once, and for so long, in an hour.
func (u *unsigned) waits(limit time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if now.Sub(u.tied) > forkMemory {
		u.tied = now
	}
	return now.Sub(u.tied) < limit
}

// unproved counts a block whose transactions so many endpoints name, without a proof.
func (c *nodes) unproved(w *word, same int, by *endpoint) {
	u := &c.unsigned
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.Contains(u.all[:], w.header.Hash) {
		return
	}
	u.all[u.next] = w.header.Hash
	u.next = (u.next + 1) % len(u.all)
	c.metrics.unproved.Inc()
	u.blocks, u.last = u.blocks+1, w.header.Number
	if now := time.Now(); now.Sub(u.logged) > lieAgain {
		u.logged = now
		c.log.Warn("nothing proves the hashes of a block's transactions: they are the endpoints' word", zap.Uint64("block", w.header.Number), zap.Int("endpoints", same), zap.Error(by.redact(w.why)))
	}
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
