package ingest

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// A ledger of more than LedgerShares comes in parts: the first with the block that its token joins with, each other with the
// next block, empty or not. So no block has more than a task applies in little memory and time, and which part comes with
// which block depends on the ledger and on how many there are alone. All of them are as of the first block, so they are read once, and once
// more by a session that begins in between: it makes as many as there were, whatever its LedgerShares, and no other ledger's, which their sum tells.

// joined is when a token joined the topic.
type joined struct {
	block uint64
	hash  common.Hash // of the block, and how many parts its ledger has: none of both where it came with that block
	parts uint32
	sum   sum    // of the parts; none where an earlier build began with them
	asks  bool   // its ledger came without an origin, which comes later: see origin.go
	told  uint64 // the block that it came with; 0: none yet. It is kept, because --rewind may take what is final back
}

// sum is of all shares of a ledger: the first bytes of a hash.
type sum [8]byte

func sumOf(parts []*topics.Ledger) sum {
	h := sha256.New()
	var b []byte
	for _, part := range parts {
		for i := range part.Shares {
			amount := part.Shares[i].Amount.Bytes32()
			b = append(append(b[:0], part.Shares[i].Account[:]...), amount[:]...)
			h.Write(b)
		}
	}
	return sum(h.Sum(nil)[:len(sum{})])
}

// last is the last block that a part of the ledger comes with.
func (j joined) last() uint64 { return j.block + max(uint64(j.parts), 1) - 1 }

// maxSpread bounds the shares of all ledgers that come at the same time, which are in memory meanwhile.
const maxSpread = 2 * topics.MaxHolders

// room leaves the ledger of one more token as it is if there is room for it beside the parts under way, which it is one of then.
func (in *Ingester) room(parts []*topics.Ledger, underWay *int) []*topics.Ledger {
	if len(parts) == 1 {
		return parts
	}
	if *underWay += len(parts); *underWay*in.cfg.LedgerShares <= maxSpread {
		return parts
	}
	*underWay -= len(parts)
	in.faulted(parts[0].Token, faultAtOnce, len(parts)*in.cfg.LedgerShares)
	none := &ledger{token: parts[0].Token, fault: faultAtOnce}
	return none.parts(parts[0].Block, 0, in.cfg.LedgerShares)
}

// again reads the ledger of a token that joined before this session. What has come of another one cannot be continued: then nothing is
// said of its holders, which stops no block.
func (in *Ingester) again(ctx context.Context, token common.Address, j joined, settled uint64) ([]*topics.Ledger, error) {
	at := topics.BlockRef{Number: j.block, Hash: j.hash}
	parts, _, err := in.ledger(ctx, token, at, settled, int(j.parts))
	if err == nil && (len(parts) != int(j.parts) || sumOf(parts) != j.sum) {
		in.faulted(token, faultAgain, len(parts)*in.cfg.LedgerShares)
		none := (&ledger{token: token, fault: faultAgain}).part(at)
		none.Since = j.block
		parts = make([]*topics.Ledger, j.parts)
		for i := range parts {
			part := *none
			part.Part, part.Parts = uint32(i), j.parts
			parts[i] = &part
		}
	}
	return parts, err
}

// spread keeps the parts of the ledger of a token that joined with a block, if there are several.
func (f *followed) spread(token common.Address, at topics.BlockRef, parts []*topics.Ledger) {
	if len(parts) > 1 {
		j := f.since[token]
		j.block, j.hash, j.parts, j.sum = at.Number, at.Hash, uint32(len(parts)), sumOf(parts)
		f.since[token] = j
		f.parts[token] = parts
	}
}

// missing are the tokens of whose ledgers parts come with the blocks, but are not here.
func (f *followed) missing(blocks []follow.Block) (tokens []common.Address) {
	for token, j := range f.since {
		if f.parts[token] == nil && j.last() >= blocks[0].Number && j.last() > j.block {
			tokens = append(tokens, token)
		}
	}
	slices.SortFunc(tokens, common.Address.Cmp)
	return tokens
}

// underWay is the number of parts of the ledgers that a block comes between.
func (f *followed) underWay(block uint64) (parts int) {
	for _, j := range f.since {
		if j.last() >= block {
			parts += int(j.parts)
		}
	}
	return parts
}

// end is the last block that comes with a part.
func (f *followed) end() (last uint64) {
	for _, j := range f.since {
		last = max(last, j.last())
	}
	return last
}

// parting appends to fetched blocks the parts that come with them, and forgets what came with final blocks.
func (f *followed) parting(u *fetch, final uint64) {
	for token, parts := range u.ledgers {
		if _, follows := f.since[token]; follows { // the others join
			f.parts[token] = parts
		}
	}
	blocks := u.blocks
	for _, token := range slices.SortedFunc(maps.Keys(f.parts), common.Address.Cmp) {
		since := f.since[token]
		for i := range blocks {
			if b := &blocks[i]; b.Number > since.block && b.Number <= since.last() {
				part := *f.parts[token][b.Number-since.block]
				part.Block = b.BlockRef
				b.Logs = append(slices.Clip(b.Logs), &part)
			}
		}
		if since.last() <= final {
			delete(f.parts, token)
		}
	}
}
