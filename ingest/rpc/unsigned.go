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

// unsigned records the blocks that were ingested although no endpoint had their transactions in signed form, so that
// nothing proves their hashes.
//
// Strangers choose what is in a block, and nodes how they describe it, so waiting would let a stranger stop the
// ingestion. So each available endpoint is asked once, and a proof of the hashes wins. Without one, the hashes that
// most endpoints name are believed, and that is counted. A liar can only change these hashes, and only if no endpoint
// has the signed form.
type unsigned struct {
	mu     sync.Mutex
	all    [256]common.Hash // the last such blocks: each is counted once
	next   int
	blocks int
	last   uint64 // number of the last one
	logged time.Time
	tied   time.Time // when a block began to wait for an endpoint that did not answer
}

// hashClaim is what an endpoint claims about the transactions of a block and cannot prove.
type hashClaim struct {
	header    follow.Header
	named     []namedTransaction
	n         int        // transactions of the block
	described *described // nil: it does not describe them
	why       error
}

// attempt is the state of one try to fetch the logs of blocks.
type attempt struct {
	known  map[common.Hash][]namedTransaction // settled transactions of logs, by block; changed between requests only
	agreed map[common.Hash]int                // blocks without a proof: how many endpoints named these hashes

	liar *endpoint // its claim was disproved; nil: none
	lie  error

	mu     sync.Mutex
	failed map[*endpoint]int  // failed requests for a proof
	parts  map[*endpoint]bool // they do not return all receipts of a block at once
}

func newAttempt() *attempt {
	return &attempt{known: map[common.Hash][]namedTransaction{}, agreed: map[common.Hash]int{}, failed: map[*endpoint]int{}, parts: map[*endpoint]bool{}}
}

// proofTries is how often an endpoint may fail to prove a transaction's hash before it counts as unable to.
const proofTries = 4

// lacks reports whether an error means that an endpoint cannot prove hashes.
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

// rename sets the settled transactions of logs.
func rename(logs []topics.Log, known []namedTransaction) {
	for i := range logs {
		at := slices.IndexFunc(known, func(n namedTransaction) bool { return n.at == logs[i].TxIndex })
		if at >= 0 {
			logs[i].TxHash = known[at].hash
		}
	}
}

// round holds what the other endpoints return for blocks that one cannot prove.
type round struct {
	claims []hashClaim
	filter *filter

	mu      sync.Mutex
	proofs  [][]namedTransaction // by claim; nil: no endpoint has one
	left    int                  // claims without a proof
	named   []map[*endpoint][]namedTransaction
	missing bool // an endpoint did not answer, or was not asked
}

// settle decides the hashes of the transactions of blocks that an endpoint could not prove. again: they differ from
// its claim, so that the blocks must be fetched again.
func (c *Client) settle(ctx context.Context, by *endpoint, claims []hashClaim, a *attempt) (again bool, err error) {
	defer func() {
		if a.liar != nil && !again && err == nil { // not before: perhaps no other has the receipts
			a.liar.failed(a.lie)
		}
	}()
	if len(claims) == 0 {
		return false, nil
	}
	r := c.askOthers(ctx, by, claims)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	for i := range claims {
		w := &claims[i]
		names := r.proofs[i]
		if names == nil {
			names = by.proveDisputed(ctx, w, r.named[i])
		}
		if names != nil {
			if !slices.Equal(names, w.named) {
				a.liar, a.lie = by, lied(lieHash, "transactions of block %d have other hashes", w.header.Number)
			}
		} else {
			r.named[i][by] = w.named
			most, n, tied := c.mostNamed(r.named[i])
			if len(r.named[i]) > n {
				for e := range r.named[i] {
					c.metrics.lies.WithLabelValues(e.name, "disagreement").Inc()
				}
			}
			if tied && r.missing && c.unsigned.waits(c.cfg.Silence) {
				return false, fmt.Errorf("endpoints name different transactions of block %d, and one that could prove them does not answer: %w", w.header.Number, ErrNoProof)
			}
			names, a.agreed[w.header.Hash] = most, n
			c.unproved(w, n, by)
		}
		a.known[w.header.Hash] = names
		again = again || !slices.Equal(names, w.named)
	}
	return again, nil
}

// proveDisputed makes an endpoint prove a claim for which it was spared, if another one contradicts it. nil: it
// cannot, or need not.
func (e *endpoint) proveDisputed(ctx context.Context, w *hashClaim, named map[*endpoint][]namedTransaction) []namedTransaction {
	if !errors.Is(w.why, errSpared) {
		return nil
	}
	for _, names := range named {
		if slices.Equal(names, w.named) {
			continue
		}
		hashes, err := e.hashes(ctx, &w.header, w.described, w.n, true)
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

// askOthers asks every other available endpoint once, all at the same time.
func (c *Client) askOthers(ctx context.Context, by *endpoint, claims []hashClaim) *round {
	r := &round{claims: claims, filter: &c.filter, proofs: make([][]namedTransaction, len(claims)), named: make([]map[*endpoint][]namedTransaction, len(claims)), left: len(claims)}
	for i := range r.named {
		r.named[i] = map[*endpoint][]namedTransaction{}
	}
	asking, cancel := context.WithTimeout(ctx, claimWait+time.Duration(len(claims))*c.patience())
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

// ask asks an endpoint for a proof of the blocks. proved is called once all have one.
func (r *round) ask(ctx context.Context, o *endpoint, proved func()) error {
	headers := make([]follow.Header, len(r.claims))
	for i := range r.claims {
		headers[i] = r.claims[i].header
	}
	o.creditCalls(headers)
	all, err := o.blocks(ctx, headers)
	if err != nil && !lacksRaw(err) {
		return err
	}
	for i := range r.claims {
		disputed := false
		if all[i] != nil {
			names := namesAt(r.claims[i].named, all[i].hashes)
			disputed = names != nil && !slices.Equal(names, r.claims[i].named)
		}
		hashes, err := o.hashes(ctx, &headers[i], all[i], r.claims[i].n, disputed)
		is := err == nil
		switch {
		case is:
		case ctx.Err() != nil || !errors.Is(err, errUnsigned):
			return err
		case all[i] != nil:
			hashes = all[i].hashes
		}
		names := namesAt(r.claims[i].named, hashes)
		if names == nil && r.claims[i].n <= o.most(&headers[i]) { // its receipts may take a request each
			if err := o.receipts(ctx, r.filter, nil, headers[i:i+1], nil, func(_ int, logs []topics.Log, _ int) { names = appendNamed(nil, logs) }); err != nil {
				names = nil
			}
		}
		r.mu.Lock()
		switch {
		case names == nil: // it names none
		case !is:
			r.named[i][o] = names
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

// namesAt returns the hashes at the same indices; nil: one is missing.
func namesAt(named []namedTransaction, hashes []common.Hash) []namedTransaction {
	all := make([]namedTransaction, len(named))
	for i, n := range named {
		if int(n.at) >= len(hashes) || hashes[n.at] == (common.Hash{}) {
			return nil
		}
		all[i] = namedTransaction{n.at, hashes[n.at]}
	}
	return all
}

// mostNamed returns the hashes that most endpoints name, and how many do. tied: as many name others; then the endpoint
// that is configured first is believed.
func (c *nodes) mostNamed(named map[*endpoint][]namedTransaction) (most []namedTransaction, n int, tied bool) {
	for _, e := range c.endpoints {
		names, has := named[e]
		if !has || most != nil && slices.Equal(names, most) {
			continue
		}
		same := 0
		for _, other := range named {
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

// waits reports whether a block may wait for an endpoint that does not answer: for this long, once in an hour.
func (u *unsigned) waits(limit time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if now.Sub(u.tied) > forkMemory {
		u.tied = now
	}
	return now.Sub(u.tied) < limit
}

// unproved counts a block whose transaction hashes nothing proves. same is how many endpoints name them.
func (c *nodes) unproved(w *hashClaim, same int, by *endpoint) {
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
		c.log.Warn("no endpoint proves the transaction hashes of a block, trusting the majority", zap.Uint64("block", w.header.Number), zap.Int("endpoints", same), zap.Error(by.redact(w.why)))
	}
}

// Unsigned describes the blocks whose transaction hashes nothing proves; empty: there is none.
func (c *Client) Unsigned() string {
	u := &c.unsigned
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.blocks == 0 {
		return ""
	}
	return fmt.Sprintf("the hashes of transactions in %d blocks, the last of them %d, are not proved: no endpoint has these transactions in signed form", u.blocks, u.last)
}

// hits records which of the last blocks with a matching bloom filter had wanted logs.
type hits struct{ last atomic.Uint32 }

func (r *hits) add(hit bool) {
	n := r.last.Load() << 1
	if hit {
		n |= 1
	}
	r.last.Store(n & 0xff)
}

// often reports whether at least half of the last eight did: then transactions are fetched together with receipts.
func (r *hits) often() bool { return ones.OnesCount32(r.last.Load()) >= 4 }
