package query_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// A filter that hardly anything passes does not make a page expensive: the page ends where a partition has skipped enough,
// and the pages have all there is, wherever the partitions are.
func TestRareFiltersAreBounded(t *testing.T) {
	const deals = partitions * (query.MaxSkipped + query.MaxSkipped/4)
	rare, lender := address(0x77), address(9)
	var events []contracts.Event
	for id := uint64(1); id <= deals; id++ {
		e := listing(id)
		if id == 100 || id == deals-100 {
			e.Token = rare
		}
		events = append(events, e)
	}
	events = append(events, &contracts.DealFunded{DealID: word(deals / 2), Lender: lender})
	all := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	all.land(t, partitions, block(1), events...)
	one, other := newNode(t, topics.RoleOwner, 1, 0, 1), newNode(t, topics.RoleOwner, 1, 2, 3)
	one.land(t, partitions, block(1), events...)
	other.land(t, partitions, block(1), events...)
	counted := &counting{node: all}
	here, there := localRouter(t, counted, partitions), remoteRouter(t, partitions, map[string]*holder{"a": serve(t, one), "b": serve(t, other)})

	borrower, funded := address(1), contracts.DealFundedState
	for name, list := range map[string]struct {
		want int
		read func(r query.Reader, after []byte) (query.Answer[query.Page[query.DealWithBids]], error)
	}{
		"listings of an asset": {2, func(r query.Reader, after []byte) (query.Answer[query.Page[query.DealWithBids]], error) {
			return r.Listings(t.Context(), query.ListingsQuery{Asset: &rare, After: after, Limit: 10})
		}},
		"deals of a wallet in a state": {1, func(r query.Reader, after []byte) (query.Answer[query.Page[query.DealWithBids]], error) {
			return r.Deals(t.Context(), query.DealsQuery{Wallet: &borrower, State: &funded, After: after, Limit: 10})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			found, pages := 0, 0
			for after := []byte(nil); pages == 0 || after != nil; pages++ {
				counted.rows = 0
				a, err := list.read(here, after)
				page := must(t, a, err)
				if most := partitions*query.MaxSkipped + 100; counted.rows > most {
					t.Fatalf("page %d reads %d rows, more than %d", pages, counted.rows, most)
				}
				apart, err := list.read(there, after)
				if diff := cmp.Diff(page, must(t, apart, err)); diff != "" {
					t.Fatalf("page %d differs where partitions are on two nodes (-one +two):\n%s", pages, diff)
				}
				found += len(page.Items)
				after = page.Next
			}
			if found != list.want || pages < 2 {
				t.Errorf("%d deals on %d pages, not %d on several", found, pages, list.want)
			}
		})
	}
}
