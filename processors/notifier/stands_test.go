package notifier_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/facts"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// However much one block makes due, all of it fires though no other block comes.
func TestAllIsToldWhileTheChainStands(t *testing.T) {
	c := newTopics(t, "kfake", 2)
	c.policy, c.most = facts.Latest, 2
	c.follow(atTests)
	ann := common.Address{1}
	c.subscribe(ann, notifier.Email, 1, notifier.Kinds...)
	var want []common.Hash
	var logs []*topics.Log
	for id := range int64(5) {
		d := &deal{id + 1, ann, common.Address{2}, genesis + 20, genesis + 2*hour + uint64(id), genesis + 26*hour}
		logs = append(logs, c.listed(d), c.funded(d))
		want = append(want, model(d, ann, "email", "t1"))
	}
	c.block(20, logs...)
	c.block(hour + 60)
	polltest.Until(t, "all are told", func() bool { return len(c.alerts()) == len(want) })
	if got := c.alerts(); !slices.Equal(got, want) {
		t.Errorf("alerts %x, want %x", got, want)
	}
}

// What is confirmed while the chain stands is told of by facts that have just been rebuilt, too.
func TestChainStandsAfterARebuild(t *testing.T) {
	c, d := fundedBy(t, facts.Safe)
	c.ago = 5 * time.Second // not just now: a commit may be of several blocks
	c.block(hour)
	c.want()
	c.stop()
	c.stands(c.head.Number, c.last.Finalized)
	c.rebuild = true
	c.follow(atTests)
	polltest.Until(t, "what is due is told", func() bool { return slices.Equal(c.alerts(), []common.Hash{model(d, d.borrower, "email", "t1")}) })
}
