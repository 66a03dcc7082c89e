package follow

import "github.com/lienstream/lienstream/topics"

// challenge begins the walk down from a header that contradicts the known chain, or asks for a vote on it first.
func (m *Machine) challenge(h Header) {
	if !m.cfg.Votes {
		m.branch = []Header{h}
		return
	}
	m.rival, m.voteAt = &h, min(h.Number, m.tip.Number)
}

// nextVote asks for the vote, which is sure where a final block is in question.
func (m *Machine) nextVote() (Fetch, bool) {
	if m.inflight > 0 {
		return Fetch{}, false
	}
	return m.fetch(Fetch{Kind: Vote, From: m.voteAt, To: m.voteAt, Sure: m.voteAt <= m.links[0].Number}), true
}

// voted takes the header that most endpoints have. The branch begins with it, unless the rival follows from it: a rival
// of most endpoints need not be theirs.
func (m *Machine) voted(most Header) (unlinked bool, err error) {
	ours, ok := m.find(most.Number)
	rival := *m.rival
	m.rival = nil
	switch {
	case !ok || ours.Hash == most.Hash:
		m.Distrust()
		return true, nil
	case most.Number <= m.links[0].Number:
		return true, m.suspect(most, ours)
	case rival.Hash == most.Hash || rival.Parent == most.Hash:
		m.branch = []Header{rival}
	default:
		m.branch = []Header{most}
	}
	if m.branch[0].Number <= m.links[0].Number+1 && !m.meet() {
		return true, m.unmet()
	}
	return false, nil
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
	if !m.cfg.Votes || !m.started || m.contested() {
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

// Contradicts reports whether a head that is too low to be followed is on another chain.
func (m *Machine) Contradicts(h topics.BlockRef) bool {
	return m.started && m.cfg.Votes && !m.contested() && !m.known(h)
}

// contested reports whether a vote or a walk down another chain is under way.
func (m *Machine) contested() bool { return m.rival != nil || m.branch != nil }

// Challenge puts a header that contradicts the known chain to the vote, once more if it has won one. false: it does not,
// or another vote is under way.
func (m *Machine) Challenge(h Header) bool {
	if ours, ok := m.find(h.Number); m.contested() || ok && ours.Hash == h.Hash {
		return false
	}
	m.restart()
	m.challenge(h)
	return true
}
