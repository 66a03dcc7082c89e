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

// A ledger of more than LedgerShares shares comes in parts: the first with the block with which its token joins, each
// other with the next block, empty or not. This bounds the memory and time that a block takes in the processors. Which
// part comes with which block depends only on the ledger and the number of parts. All parts are as of the first block,
// so the ledger is read once, and once more by a session that begins in between: it makes as many parts as there were,
// whatever its LedgerShares, and checks by their sum that it is the same ledger.

// joined is when a token joined the topic.
type joined struct {
	block       uint64
	hash        common.Hash // of the block; zero, as parts, if the whole ledger came with it
	parts       uint32
	sum         sum    // of the parts; zero if an earlier build began with them
	asks        bool   // its ledger came without an origin, which comes later: see origin.go
	originBlock uint64 // the block that it came with; 0: none yet. It is kept, because --rewind may take what is final back
}

// sum identifies all shares of a ledger: the first bytes of a hash.
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

// maxSpread bounds the shares of all ledgers that are spread at the same time, which are held in memory.
const maxSpread = 2 * topics.MaxHolders

// room returns the ledger of one more token unchanged, and counts its parts, if they fit beside those under way;
// otherwise a fault.
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

// again reads the ledger of a token that joined before this session. If it differs from the one whose parts came, it
// cannot be continued: then the holders are unknown, which stops no block.
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

// missing are the tokens whose ledger parts are due with the blocks, but were not read in this session.
func (f *followed) missing(blocks []follow.Block) (tokens []common.Address) {
	for token, j := range f.since {
		if f.parts[token] == nil && j.last() >= blocks[0].Number && j.last() > j.block {
			tokens = append(tokens, token)
		}
	}
	slices.SortFunc(tokens, common.Address.Cmp)
	return tokens
}

// underWay is the number of parts of the ledgers that are spread over a block.
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

// parting appends the parts that are due to fetched blocks, and forgets those that came with final blocks.
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
