package ingest

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// TestEmptyHeadAfterSilence: an empty block waits for others only for MarkEvery after a commit.
func TestEmptyHeadAfterSilence(t *testing.T) {
	s := voting(t)
	s.idle, s.jobs = true, make(chan job, 1)
	tip := s.m.Tip()
	head := follow.Header{BlockRef: topics.BlockRef{Number: tip.Number + 1, Hash: common.Hash{2}}, Parent: tip.Hash}
	if _, err := s.m.Announce(head, tip.Number); err != nil {
		t.Fatal(err)
	}
	f, ok := s.m.Next(1)
	if !ok {
		t.Fatal("nothing to fetch")
	}
	if _, err := s.m.Fetched(f, []follow.Block{{Header: head}}); err != nil {
		t.Fatal(err)
	}
	s.commitAt = time.Now().Add(time.Hour)
	if s.publishMore(); len(s.jobs) > 0 {
		t.Fatal("an empty block right after a commit does not wait")
	}
	s.commitAt = time.Now().Add(-s.in.cfg.MarkEvery)
	if s.publishMore(); len(s.jobs) == 0 {
		t.Error("an empty block waits although nothing was committed for a while")
	}
}
