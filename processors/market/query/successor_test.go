package query_test

import (
	"maps"
	"testing"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// An owner that has just taken over keeps no block but its latest. Where another node is behind it, the one
// that it took over from, and that follows it, answers for its partitions too.
func TestASuccessorWithoutAPastIsPassedOver(t *testing.T) {
	behind := newNode(t, topics.RoleOwner, 5, 0)
	maps.Copy(behind.parts, newNode(t, topics.RoleStandby, 5, span(partitions)[1:]...).parts)
	successor := newNode(t, topics.RoleOwner, 5, span(partitions)[1:]...)
	for number := range uint64(10) {
		successor.land(t, partitions, block(number+1), listing(number+1))
		if number < 9 {
			behind.land(t, partitions, block(number+1), listing(number+1))
		}
	}
	for _, p := range successor.parts {
		for _, v := range p.views[:len(p.views)-1] {
			v.snap.Release()
		}
		p.views = p.views[len(p.views)-1:]
	}
	r := remoteRouter(t, partitions, map[string]*holder{"behind": serve(t, behind), "successor": serve(t, successor)})
	polltest.Until(t, "the router knows the nodes", func() bool {
		all := r.Holders()
		for _, h := range all[1:] {
			if h.Owner != "successor" {
				return false
			}
		}
		return all[0].Owner == "behind"
	})
	page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 20})
	if err != nil || page.At != block(9) || len(page.Value.Items) != 9 {
		t.Fatalf("%d deals as of %v, %v", len(page.Value.Items), page.At, err)
	}
}
