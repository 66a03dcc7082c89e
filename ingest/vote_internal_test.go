package ingest

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// voting is a session whose newest block, 100, only one of three endpoints has told of. Only some blocks before it are known.
func voting(t *testing.T) *session {
	t.Helper()
	cfg := DefaultConfig()
	for _, name := range []string{"a", "b", "c"} {
		cfg.RPC.Endpoints = append(cfg.RPC.Endpoints, rpc.Endpoint{URL: "http://" + name})
	}
	nodes := cfg.RPC
	nodes.ChainID, nodes.Addresses = 7, []common.Address{{1}}
	client, err := rpc.New(nodes, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var known []topics.BlockRef
	for n := uint64(10); n <= 100; n += 10 {
		known = append(known, topics.BlockRef{Number: n, Hash: common.Hash{1, byte(n)}})
	}
	m, err := follow.New(cfg.follow(), known, 10)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{in: &Ingester{cfg: cfg, log: zap.NewNop(), client: client}, m: m, votes: newVotes(3), follows: &followed{}}
	s.votes.unconfirmed.block = m.Tip()
	return s
}

// TestOneWordIsAskedAgain: a vote on the newest block that a single endpoint decided is not the last one.
func TestOneWordIsAskedAgain(t *testing.T) {
	s := voting(t)
	tip := s.m.Tip()
	if _, err := s.voted(vote{kind: onUnconfirmed, block: tip, most: follow.Header{BlockRef: tip}}); err != nil {
		t.Fatal(err)
	}
	if s.votes.unconfirmed.update(s.m, nil, s.votes.unconfirmed.since); s.votes.unconfirmed.block != tip {
		t.Error("the newest block is not put to the vote again")
	}
}

// TestWhereTheOthersWere: the heads of the endpoints below the newest block are kept, so that one that comes nearer
// counts as late.
func TestWhereTheOthersWere(t *testing.T) {
	s := voting(t)
	tip, u := s.m.Tip(), &s.votes.unconfirmed
	*u = unconfirmedBlock{}
	var all []rpc.Announcement
	for by, n := range []uint64{tip.Number, 97, 98} {
		all = append(all, rpc.Announcement{Header: follow.Header{BlockRef: topics.BlockRef{Number: n, Hash: tip.Hash}}, By: by})
	}
	if u.update(s.m, all, u.since); u.block != tip || u.were != 98 {
		t.Errorf("block %d, the others were at %d", u.block.Number, u.were)
	}
	again, err := s.voted(vote{kind: onUnconfirmed, block: tip, err: rpc.ErrLate})
	if again || err != nil || s.m.Tip() != tip || u.block != tip {
		t.Errorf("the newest block is %d, which is put to the vote again: %t: %v", s.m.Tip().Number, u.block == tip, err)
	}
}

// TestTheHighestHeadIsTakenBackTo: two endpoints end below the newest block, one of them far below. Blocks up to the
// higher of the two stay.
func TestTheHighestHeadIsTakenBackTo(t *testing.T) {
	s := voting(t)
	var below []follow.Header
	for _, n := range []uint64{99, 20} {
		below = append(below, follow.Header{BlockRef: topics.BlockRef{Number: n, Hash: common.Hash{1, byte(n)}}})
	}
	again, err := s.voted(vote{kind: onUnconfirmed, block: s.m.Tip(), below: below})
	if err != nil || !again || s.m.Tip().Number != 90 {
		t.Errorf("again %t, the newest block is %d: %v", again, s.m.Tip().Number, err)
	}
}

// TestPatienceOfASlowChain: on a chain with a block every 12 s, late endpoints are waited for as long as a block
// takes, and on a fast one as before. A stalled one delays the others little.
func TestPatienceOfASlowChain(t *testing.T) {
	cfg := DefaultConfig().RPC
	for _, test := range []struct{ apart, want time.Duration }{
		{100 * time.Millisecond, cfg.Hasty()}, {12 * time.Second, 12 * time.Second}, {time.Hour, cfg.Silence / 4},
	} {
		s := voting(t)
		u, now := &s.votes.unconfirmed, time.Now()
		*u = unconfirmedBlock{}
		for n := uint64(10); n <= 1000; n += 10 {
			u.pace.add(n, now)
			now = now.Add(10 * test.apart)
		}
		if got := u.patience(&cfg).Round(time.Millisecond); got != test.want {
			t.Errorf("a block every %s: %s, want %s", test.apart, got, test.want)
		}
	}
}
