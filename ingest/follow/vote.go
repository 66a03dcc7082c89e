package follow

import (
	"cmp"
	"slices"

	"github.com/lienstream/lienstream/topics"
)

// challenge begins the walk down from a header that contradicts the known chain, or asks for a vote on it first.
func (m *Machine) challenge(h Header) {
	if !m.cfg.Votes {
		m.branch = []Header{h}
		return
	}
	m.rival, m.voteAt = &h, min(h.Number, m.tip.Number)
}

// nextVote asks for the vote, which must be sure if a final block is in question.
func (m *Machine) nextVote() (Fetch, bool) {
	if m.inflight > 0 {
		return Fetch{}, false
	}
	return m.fetch(Fetch{Kind: Vote, From: m.voteAt, To: m.voteAt, Sure: m.voteAt <= m.links[0].Number}), true
}

// voted takes the header that most endpoints have.
func (m *Machine) voted(most Header) (unlinked bool, err error) {
	ours, ok := m.find(most.Number)
	rival := *m.rival
	m.rival = nil
	if !ok || ours.Hash == most.Hash {
		m.Distrust()
		return true, nil
	}
	return m.replace(most, rival, ours)
}

// replace begins a branch from most endpoints' header, in place of ours; from the rival, if that follows from it. A
// rival may be of another chain than most endpoints'.
func (m *Machine) replace(most, rival Header, ours topics.BlockRef) (unlinked bool, err error) {
	if most.Number <= m.links[0].Number {
		return true, m.suspect(most, ours)
	}
	if rival.Hash != most.Hash && rival.Parent != most.Hash {
		rival = most
	}
	m.begin(rival)
	if rival.Number <= m.links[0].Number+1 && !m.meet() {
		return true, m.unmet()
	}
	return false, nil
}

// begin begins a branch. A head of the replaced chain is no longer followed.
func (m *Machine) begin(h Header) {
	if !m.haveHead || m.head.Number <= m.tip.Number || m.Contradicts(m.head) {
		m.head, m.haveHead = h, true
	}
	m.target = max(m.finalized, min(m.target, m.below(h.Number)))
	m.branch = []Header{h}
}

// unmet handles a branch that does not meet the known chain above the final block.
func (m *Machine) unmet() error {
	h, floor := m.branch[0], m.links[0]
	if !m.cfg.Votes {
		return m.suspect(h, floor)
	}
	m.restart()
	m.rival, m.voteAt = &h, floor.Number
	return nil
}

// Due is the newest block that should become final, and waits for Vouched.
func (m *Machine) Due() (topics.BlockRef, bool) {
	if !m.cfg.Votes || !m.started || m.Contested() {
		return topics.BlockRef{}, false
	}
	n := m.due()
	for k := len(m.links) - 1; k >= 0 && m.links[k].Number > m.finalized; k-- {
		if m.links[k].Number <= n {
			return m.links[k], true
		}
	}
	return topics.BlockRef{}, false
}

// Vouched makes a block final that was due, if it is still on the verified chain.
func (m *Machine) Vouched(b topics.BlockRef) {
	if ref, ok := m.find(b.Number); ok && ref.Hash == b.Hash {
		m.settle(b.Number)
	}
}

// Contradicts reports whether a header is on another chain than the known blocks that are not final. It may be made
// up: only a vote replaces known blocks.
func (m *Machine) Contradicts(h Header) bool {
	if !m.cfg.Votes || !m.started || h.Number <= m.finalized+1 {
		return false
	}
	if ours, ok := m.find(h.Number); ok {
		return ours.Hash != h.Hash
	}
	below, ok := m.find(h.Number - 1)
	return ok && below.Hash != h.Parent
}

// Has reports whether a block is on the verified chain, and not below the final block.
func (m *Machine) Has(b topics.BlockRef) bool {
	ours, ok := m.find(b.Number)
	return ok && ours.Hash == b.Hash
}

// Shared returns up to which block the verified chain is that of a block: the block itself, or where another one has its
// place, or it is not known which one does, the last that no reorg may pass. known: false above the verified chain.
func (m *Machine) Shared(b topics.BlockRef) (number uint64, known bool) {
	switch {
	case !m.started || b.Number > m.tip.Number:
		return 0, false
	case m.Has(b):
		return b.Number, true
	}
	return min(b.Number, m.Floor()), true
}

// Contested reports whether a vote among the fetches, or a walk down another chain, is under way.
func (m *Machine) Contested() bool { return m.rival != nil || m.branch != nil }

// Outvoted takes the header that most endpoints have, after a vote beside the fetches that rival caused. It returns
// false if that is the known block, or another chain is under way.
func (m *Machine) Outvoted(most, rival Header) (bool, error) {
	ours, ok := m.find(most.Number)
	if m.Contested() || !ok || ours.Hash == most.Hash {
		return false, nil
	}
	m.restart()
	_, err := m.replace(most, rival, ours)
	return true, err
}

// Retreat reverts the blocks above a block at which most endpoints end, and fetches that one again as the newest. If
// that block is unknown, as between barriers that were read from the topic, or not ours, it reverts down to the last
// known block before it. It returns false if nothing is above, the block is final, or another chain is under way.
func (m *Machine) Retreat(to Header) bool {
	if m.Contested() || to.Number <= m.links[0].Number || to.Number >= m.tip.Number {
		return false
	}
	m.restart()
	m.head, m.haveHead = to, true
	if m.Has(to.BlockRef) {
		m.begin(to)
		return true
	}
	k, _ := slices.BinarySearchFunc(m.links, to.Number, func(l topics.BlockRef, n uint64) int { return cmp.Compare(l.Number, n) })
	m.rewind(m.links[k-1])
	return true
}
