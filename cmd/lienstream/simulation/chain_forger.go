package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// witnessHost is an honest node that ingesters ask beside the chain's and the liar's, in the runs whose liar forges: one of
// two could not be refuted.
const witnessHost = "witness"

// forger makes up a chain from a block on, up to the real head or above it: empty blocks that hash and link right.
//
// A block that it puts in the place of the newest, or above, may come in until the others show theirs, or have shown none for
// a while, as designed: nobody can know yet. It must be taken back then, and is never final.
type forger struct {
	chain *node
	from  uint64
	ahead uint64 // blocks above the real head
	only  bool   // headers that are asked for with others, and logs of ranges: what it says of one block is true

	mu     sync.Mutex
	forged map[uint64]*types.Header
	made   func(*types.Header) // told of each forged block
}

// header is a forged header, made from the chain's own or, above the head, from the one below. nil: it is too high. The lock
// is held.
func (f *forger) header(number uint64) *types.Header {
	if h := f.forged[number]; h != nil {
		return h
	}
	h, head := f.chain.headerAt(number)
	if number > head+f.ahead {
		return nil
	}
	var below *types.Header
	if number > f.from {
		below = f.header(number - 1)
	} else if h == nil {
		below, _ = f.chain.headerAt(number - 1)
	}
	switch {
	case h == nil && below == nil, number > f.from && below == nil:
		return nil
	case h == nil:
		h = types.CopyHeader(below)
		h.Number.SetUint64(number)
		h.Time++
	default:
		h = types.CopyHeader(h)
	}
	if below != nil {
		h.ParentHash = below.Hash()
	}
	h.Extra, h.Bloom, h.ReceiptHash, h.TxHash = []byte("forged"), types.Bloom{}, types.EmptyReceiptsHash, types.EmptyTxsHash
	f.forged[number] = h
	f.made(h)
	return h
}

func (f *forger) tell(_ http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	batch := r.Header.Get(batchHeader) != ""
	switch {
	case req.Method == "eth_getLogs":
		if _, ranged := rpctest.Logs(req, resp); ranged || !f.only {
			resp.Say([]any{})
		}
	case req.Method == "eth_getBlockByNumber" && (batch || !f.only):
		var tag string
		_ = json.Unmarshal(req.Params[0], &tag)
		number := uint64(0)
		if n, ok := new(big.Int).SetString(tag, 0); ok {
			number = n.Uint64()
		} else if h, _ := rpctest.Header(req, resp); h != nil {
			n, _ := new(big.Int).SetString(h["number"].(string), 0)
			number = n.Uint64() + f.ahead
		}
		if number < f.from {
			return false
		}
		if h := f.header(number); h != nil {
			resp.Say(h)
		}
	}
	return false
}

// batchHeader marks a request that has several calls, for a lie.
const batchHeader = "X-Batch"

// forges says where a liar's chain leaves the real one: at the head, among what is not final, or below.
func (r *run) forges(f fault, only bool) {
	rng := rand.New(rand.NewPCG(f.seed, 1))
	_, head := r.chain.headerAt(0)
	from := head + 1
	switch rng.IntN(3) {
	case 0:
		from -= min(head, 1+rng.Uint64N(finality))
	case 1:
		from = 1 + rng.Uint64N(head)
	}
	forger := &forger{chain: r.chain, from: from, ahead: rng.Uint64N(3), only: only, forged: map[uint64]*types.Header{}, made: r.forged.add}
	r.story.tell("FORGE", fmt.Sprint("from block ", from, ", head ", head, ", ahead ", forger.ahead))
	r.forged.begin()
	r.liar.tells(forger.tell)
	time.Sleep(f.lasts)
	r.liar.tells(nil)
	r.forged.end()
}

// forgerKinds are the faults of one chain node of three that makes up blocks.
func forgerKinds() []faultKind {
	return []faultKind{
		{"chain node forges", 6, "", func(_ context.Context, r *run, f fault) error { r.forges(f, false); return nil }},
		{"chain node forges ranges", 3, "", func(_ context.Context, r *run, f fault) error { r.forges(f, true); return nil }},
	}
}

// forgeries are the blocks that were made up.
type forgeries struct {
	mu    sync.Mutex
	all   map[common.Hash]*block
	now   int       // forgers at work
	told  time.Time // when one told of its first block; zero: not yet
	ended time.Time // when the last one stopped
}

func (f *forgeries) add(h *types.Header) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[common.Hash]*block{}
	}
	f.all[h.Hash()] = &block{header: h}
	if f.told.IsZero() {
		f.told = time.Now()
	}
}

func (f *forgeries) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now++
	f.told = time.Time{}
}

func (f *forgeries) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	f.ended = time.Now()
}

// stands reports whether an answer may still be as of a block that was made up: until the others must have outvoted who tells of
// it. Where ingesters may have started again meanwhile, who do not know that they were lied to, also for as long as it lies.
func (f *forgeries) stands(h common.Hash, alone bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[h] == nil {
		return false
	}
	if alone {
		return time.Since(f.told) < healWithin
	}
	return f.now > 0 || time.Since(f.ended) < healWithin
}

// block is one that was made up; nil: it was not.
func (f *forgeries) block(h common.Hash) *block {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[h]
}
