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
	s.votes.unseen.block = m.Tip()
	return s
}

// TestOneWordIsAskedAgain: a vote on the newest block that one endpoint's word decides is not the last one.
func TestOneWordIsAskedAgain(t *testing.T) {
	s := voting(t)
	tip := s.m.Tip()
	if _, err := s.voted(vote{kind: onUnseen, block: tip, most: follow.Header{BlockRef: tip}}); err != nil {
		t.Fatal(err)
	}
	if s.votes.unseen.look(s.m, nil, s.votes.unseen.since); s.votes.unseen.block != tip {
		t.Error("the newest block is not put to the vote again")
	}
}

// TestWhereTheOthersWere: beside the newest block is kept where the others end, so that who comes nearer is known to be late.
func TestWhereTheOthersWere(t *testing.T) {
	s := voting(t)
	tip, u := s.m.Tip(), &s.votes.unseen
	*u = unseen{}
	var all []rpc.Announcement
	for by, n := range []uint64{tip.Number, 97, 98} {
		all = append(all, rpc.Announcement{Header: follow.Header{BlockRef: topics.BlockRef{Number: n, Hash: tip.Hash}}, By: by})
	}
	if u.look(s.m, all, u.since); u.block != tip || u.were != 98 {
		t.Errorf("block %d, the others were at %d", u.block.Number, u.were)
	}
	again, err := s.voted(vote{kind: onUnseen, block: tip, err: rpc.ErrLate})
	if again || err != nil || s.m.Tip() != tip || u.block != tip {
		t.Errorf("the newest block is %d, which is put to the vote again: %t: %v", s.m.Tip().Number, u.block == tip, err)
	}
}

// TestTheHighestHeadIsTakenBackTo: of two endpoints that end below the newest block one ends far below. What the other one has stays.
func TestTheHighestHeadIsTakenBackTo(t *testing.T) {
	s := voting(t)
	var below []follow.Header
	for _, n := range []uint64{99, 20} {
		below = append(below, follow.Header{BlockRef: topics.BlockRef{Number: n, Hash: common.Hash{1, byte(n)}}})
	}
	again, err := s.voted(vote{kind: onUnseen, block: s.m.Tip(), below: below})
	if err != nil || !again || s.m.Tip().Number != 90 {
		t.Errorf("again %t, the newest block is %d: %v", again, s.m.Tip().Number, err)
	}
}

// TestPatienceOfASlowChain: on a chain of a block every 12 s those that are late are waited for as long as a block takes, and on a
// fast one no longer than ever. One that stands makes nobody wait much longer.
func TestPatienceOfASlowChain(t *testing.T) {
	cfg := DefaultConfig().RPC
	for _, test := range []struct{ apart, want time.Duration }{
		{100 * time.Millisecond, cfg.Hasty()}, {12 * time.Second, 12 * time.Second}, {time.Hour, cfg.Silence / 4},
	} {
		s := voting(t)
		u, now := &s.votes.unseen, time.Now()
		*u = unseen{}
		for n := uint64(10); n <= 1000; n += 10 {
			u.pace.add(n, now)
			now = now.Add(10 * test.apart)
		}
		if got := u.patience(&cfg).Round(time.Millisecond); got != test.want {
			t.Errorf("a block every %s: %s, want %s", test.apart, got, test.want)
		}
	}
}
