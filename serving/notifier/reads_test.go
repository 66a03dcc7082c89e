package notifier_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/topics/broker/brokertest"
)

// TestAWriteDoesNotPoll counts the reads of a write: one of what the wallet has, and one of the outcome, once it is there.
func TestAWriteDoesNotPoll(t *testing.T) {
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			const posts = 50
			h := newHouse(t, kind)
			wallet := strings.ToLower(addressOf(h.wallet).Hex())
			before := readsOf(t, h.routing)
			for range posts {
				m := h.message(wallet, "email", "ann@example.com", h.next())
				body := postBody(wallet, "email", "ann@example.com", allPrefs, m, sign(t, h.wallet, m))
				h.want(h.do(0, http.MethodPost, "/notify", body), `200 {"ok":true}`)
			}
			if reads := readsOf(t, h.routing) - before; reads < 2*posts || reads > 2*posts+posts/10 {
				t.Error(fmt.Sprint(posts, " writes took ", reads, " reads"))
			}
		})
	}
}

// readsOf is how many reads the routers of a registry have done.
func readsOf(t *testing.T, reg prometheus.Gatherer) (sum int) {
	families, err := reg.Gather()
	check(t, err)
	for _, f := range families {
		if f.GetName() == "lienstream_query_reads_total" {
			for _, m := range f.GetMetric() {
				sum += int(m.GetCounter().GetValue())
			}
		}
	}
	return sum
}
