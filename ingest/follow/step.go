package follow

import (
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
)

// Next returns the next fetch, of at most maxBlocks blocks, or false if there is nothing to fetch until a
// response or a head arrives. Several fetches may be outstanding.
func (m *Machine) Next(maxBlocks uint64) (Fetch, bool) {
	switch {
	case !m.haveHead:
		return Fetch{}, false
	case !m.started:
		return m.anchor()
	case m.rival != nil:
		return m.nextVote()
	case m.branch != nil:
		return m.nextOfBranch(maxBlocks)
	case m.head.Number > m.asked.Number:
		return m.nextAbove(maxBlocks)
	case m.inflight == 0 && !m.cfg.Votes && !m.known(m.head.BlockRef):
		m.challenge(m.head)
		return m.Next(maxBlocks)
	}
	return Fetch{}, false
}

// anchor fetches the block before the first one: the first barrier.
func (m *Machine) anchor() (Fetch, bool) {
	n := m.Floor()
	if m.inflight > 0 || m.head.Number < n {
		return Fetch{}, false
	}
	if m.cfg.Votes {
		return m.fetch(Fetch{Kind: Vote, From: n, To: n, Sure: true}), true // no reorg may pass it
	}
	return m.fetch(Fetch{Kind: Headers, From: n, To: n}), true
}

// nextAbove fetches blocks above those already requested. If the head is the very next block its header is
// known: only its logs are missing, and they are fetched by hash.
func (m *Machine) nextAbove(maxBlocks uint64) (Fetch, bool) {
	if m.cfg.Votes && len(m.links) > m.cfg.MaxWindow {
		return Fetch{}, false // until the endpoints agree on what is final
	}
	h := m.head
	if h.Number == m.asked.Number+1 && m.asked.Hash != (common.Hash{}) {
		if h.Parent == m.asked.Hash {
			m.asked = h.BlockRef
			return m.fetch(Fetch{Kind: Logs, From: h.Number, To: h.Number, Headers: []Header{h}}), true
		}
		if m.inflight > 0 || m.Contradicts(h) {
			return Fetch{}, false // outstanding fetches may be of another chain, or a vote decides what comes next
		}
		if h.Number > m.finalized+1 {
			m.challenge(h)
			return m.Next(maxBlocks)
		}
		// A head alone must not contradict final blocks: fetch by number, and let Fetched decide.
	}
	f, end, most := Fetch{Kind: Range, From: m.asked.Number + 1}, h.Number, m.cfg.Dense
	if m.cfg.Sparse > 0 && f.From < m.target && f.From > m.whole {
		f.Kind, end, most = Sparse, m.target, m.cfg.Sparse
	}
	if most > 0 {
		maxBlocks = min(maxBlocks, most)
	}
	f.To = min(end, m.asked.Number+max(maxBlocks, 1))
	m.asked = topics.BlockRef{Number: f.To}
	if f.To == h.Number {
		m.asked = h.BlockRef
	}
	return m.fetch(f), true
}

// nextOfBranch walks down the new chain until it meets the known one, and then fetches the branch's logs.
func (m *Machine) nextOfBranch(maxBlocks uint64) (Fetch, bool) {
	if m.inflight > 0 {
		return Fetch{}, false
	}
	if !m.forked && !m.meet() {
		bottom, floor := m.branch[0].Number, m.links[0].Number
		// Start with short steps: most reorgs are one or two blocks deep.
		step := min(uint64(len(m.branch))*4, m.cfg.MaxBranch, bottom-1-floor)
		return m.fetch(Fetch{Kind: Headers, From: bottom - step, To: bottom - 1, Top: m.branch[0].Parent}), true
	}
	n := min(uint64(len(m.branch)), max(maxBlocks, 1))
	f := Fetch{Kind: Logs, From: m.branch[0].Number, To: m.branch[n-1].Number, Headers: m.branch[:n]}
	if m.branch = m.branch[n:]; len(m.branch) == 0 {
		m.branch, m.forked = nil, false
	}
	m.asked = f.Headers[n-1].BlockRef
	return m.fetch(f), true
}

func (m *Machine) fetch(f Fetch) Fetch {
	f.epoch = m.epoch
	m.inflight++
	return f
}

// Fetched takes the response to a command: exactly the requested blocks, ascending, each the parent of the
// next, except for the empty blocks of a sparse range. Responses come in the order of the commands. unlinked
// means that the response did not link to the verified chain: the chain was reorganised, or the node is faulty.
func (m *Machine) Fetched(f Fetch, blocks []Block) (unlinked bool, err error) {
	if f.epoch != m.epoch || len(blocks) == 0 {
		return false, nil
	}
	m.inflight--
	switch {
	case !m.started:
		m.start(blocks[0])
		return false, nil
	case f.Kind == Vote:
		return m.voted(blocks[0].Header)
	case f.Kind == Headers:
		if blocks[len(blocks)-1].Hash != m.branch[0].Parent {
			m.Distrust() // the branch itself was reorganised
			return true, nil
		}
		down := make([]Header, 0, len(blocks)+len(m.branch))
		for i := range blocks {
			down = append(down, blocks[i].Header)
		}
		m.branch = append(down, m.branch...)
		if m.meet() || m.branch[0].Number > m.links[0].Number+1 {
			return false, nil
		}
		return true, m.unmet()
	case blocks[0].Parent != m.tip.Hash || blocks[0].Number != m.tip.Number+1:
		return true, m.diverge(blocks[0].Header)
	}
	m.suspected = 0
	for i := range blocks {
		m.join(blocks[i])
	}
	if m.inflight == 0 && m.branch == nil {
		m.asked = m.tip // with its hash, which was unknown for a range
	}
	return false, nil
}

// start makes the anchor the first barrier.
func (m *Machine) start(b Block) {
	m.started = true
	m.tip = b.BlockRef
	m.asked = m.tip
	m.links = append(m.links, m.tip)
	m.ready = append(m.ready, Block{Header: b.Header})
	m.finalize()
}

// join appends a verified block.
func (m *Machine) join(b Block) {
	m.tip = b.BlockRef
	m.links = append(m.links, m.tip)
	m.finalize()
	if n := len(m.ready); n > 0 && len(m.ready[n-1].Logs) == 0 && !m.isAnchor(n-1) {
		m.ready = m.ready[:n-1] // empty, and the new block's barrier covers it
	}
	m.ready = append(m.ready, b)
	m.backlog += b.Weight()
}

// isAnchor reports whether ready[i] is the topic's very first barrier.
func (m *Machine) isAnchor(i int) bool { return i == 0 && len(m.barriers) == 0 }

// diverge starts the walk down from a block that does not link.
func (m *Machine) diverge(h Header) error {
	tip := m.tip
	m.restart()
	if h.Number <= m.finalized+1 && !m.cfg.Votes {
		return m.suspect(h, tip)
	}
	m.challenge(h)
	return nil
}

// suspect handles a block that contradicts a final one. It is fetched again a few times first: a single faulty
// node must not stop the ingester.
func (m *Machine) suspect(h Header, final topics.BlockRef) error {
	m.Distrust()
	if m.suspected++; m.suspected <= m.cfg.Suspicions {
		return nil
	}
	return fmt.Errorf("block %d has parent %s, published was %d %s: %w", h.Number, h.Parent, final.Number, final.Hash, ErrDeepReorg)
}

// meet looks for the highest header of the branch whose parent is known, and if there is one returns to it.
func (m *Machine) meet() bool {
	for i, h := range slices.Backward(m.branch) {
		if parent, ok := m.find(h.Number - 1); ok && parent.Hash == h.Parent {
			m.branch = m.branch[i:]
			m.forked = true
			m.rewind(parent)
			return true
		}
	}
	return false
}

// rewind returns to a known block: barriers above it will be reverted, verified blocks above it are dropped.
func (m *Machine) rewind(to topics.BlockRef) {
	for n := len(m.barriers); n > 1 && m.barriers[n-1].Number > to.Number; n-- {
		m.pending = append(m.pending, Revert{Block: m.barriers[n-1], Head: m.barriers[n-2]})
		m.barriers = m.barriers[:n-1]
	}
	for n := len(m.ready); n > 0 && m.ready[n-1].Number > to.Number; n-- {
		m.backlog -= m.ready[n-1].Weight()
		m.ready = m.ready[:n-1]
	}
	for n := len(m.links); n > 0 && m.links[n-1].Number > to.Number; n-- {
		m.links = m.links[:n-1]
	}
	m.tip, m.asked = to, to
}

// find returns the verified block of a number. Blocks between barriers that were read from the topic are unknown.
func (m *Machine) find(number uint64) (topics.BlockRef, bool) {
	for lo, hi := 0, len(m.links); lo < hi; {
		mid := int(uint(lo+hi) >> 1)
		switch n := m.links[mid].Number; {
		case n == number:
			return m.links[mid], true
		case n < number:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return topics.BlockRef{}, false
}

// known reports whether a head at or below the requested blocks is nothing new: it is on the verified chain, or
// too deep to tell. A node that lags sends such heads all the time.
func (m *Machine) known(h topics.BlockRef) bool {
	if h.Number <= m.finalized+1 {
		return true
	}
	ref, ok := m.find(h.Number)
	return !ok || ref.Hash == h.Hash
}

// Limits bounds a Batch.
type Limits struct {
	Records int
	Bytes   int
}

// Backlog is how many verified records may wait: for the publisher, or to become final.
func (l Limits) Backlog() int { return 2 * l.Records }

// Publish returns the next batch, or false. Empty blocks wait until mark requests a barrier at the tip, except the
// head, whose barrier comes with other blocks anyway. Reverts go out once the first block of the new chain is there.
// In a backfill, blocks wait until they are final, so that readers of the topic need not be able to revert them. With
// Votes, blocks that should be final always wait for Vouched.
func (m *Machine) Publish(limit Limits, mark bool) (Batch, bool) {
	n, records, bytes := 0, 0, 0
	hold := m.Backfills() && len(m.pending) == 0 && m.backlog < limit.Backlog()
	unsure := len(m.pending) == 0 && m.Held()
	for ; n < len(m.ready); n++ {
		b := &m.ready[n]
		if b.Number > m.finalized && (hold || unsure) {
			break
		}
		if len(b.Logs) == 0 && !mark && len(m.pending) == 0 && !m.isAnchor(n) && (n == 0 || b.Number < m.head.Number) {
			break // only the last block may be empty
		}
		records += len(b.Logs)
		bytes += b.bytes()
		if n > 0 && (records > limit.Records || bytes > limit.Bytes) {
			break
		}
	}
	if n == 0 {
		return Batch{}, false
	}
	m.publishedFinal = max(m.publishedFinal, min(m.finalized, m.ready[n-1].Number))
	batch := Batch{Reverts: m.pending, Blocks: m.ready[:n:n], Finalized: m.publishedFinal}
	m.pending, m.ready = nil, m.ready[n:]
	if len(m.ready) == 0 {
		m.ready = nil
	}
	for i := range batch.Blocks {
		m.barriers = append(m.barriers, batch.Blocks[i].BlockRef)
		m.backlog -= batch.Blocks[i].Weight()
	}
	m.barriers = dropBelow(m.barriers, m.finalized)
	return batch, true
}

// Held reports whether blocks that should be final wait for Vouched. A barrier covers the empty blocks below it.
func (m *Machine) Held() bool {
	last, _ := m.Last()
	return m.cfg.Votes && max(last.Number, m.finalized) < m.due()
}

// Backfills reports whether more than a window of blocks that the chain calls final is still to be fetched.
func (m *Machine) Backfills() bool {
	return (m.haveHead || m.cfg.Votes) && m.tip.Number+m.cfg.Window < m.target
}

// Weight is how many records a held block counts for: a long block counts for as many as fit its size.
func (b *Block) Weight() int { return max(len(b.Logs), b.bytes()>>10) }

// bytes estimates the block's size in the topic.
func (b *Block) bytes() int {
	const perItem, perShare = 200, 40
	n := perItem
	for _, item := range b.Logs {
		n += perItem
		switch r := item.(type) {
		case *topics.Log:
			n += len(r.Data)
		case *topics.Ledger:
			n += perShare * len(r.Shares)
		}
	}
	return n
}
