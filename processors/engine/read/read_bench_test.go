package read

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
)

// BenchmarkReadOfANode reads of another node over the machine's network, both ends in this process.
func BenchmarkReadOfANode(b *testing.B) {
	held := &whole{}
	held.set(markAt(0, 1))
	app := toy(func(context.Context, *Views, *page) ([]Item, error) {
		return []Item{{Key: make([]byte, 32), Row: make([]byte, 400), Parts: [][]byte{make([]byte, 9)}}}, nil
	})
	server := httptest.NewServer(NewHandler(b.Context(), zap.NewNop(), Served{held, app}))
	b.Cleanup(server.Close)
	addr, op := server.Listener.Addr().String(), toy(nil).Operations[0].Brief()
	cfg := DefaultConfig()
	cfg.Application, cfg.Partitions, cfg.Registerer, cfg.Shared = "toy", 1, prometheus.NewRegistry(), true
	cfg.Owners = func() (Feed, error) { return nil, ErrUnavailable }
	r, err := NewRouter(cfg)
	if err != nil {
		b.Fatal(err)
	}
	o := topics.Owner{Instance: "a", Addr: addr, Role: topics.RoleOwner, Incarnation: 1, State: topics.StateRunning, At: markAt(0, 1).At}
	to := &remote{addr: addr, client: newClient(nil), dial: inTime(nil), timeout: time.Minute}
	b.Cleanup(to.links.close)
	r.nodes.announced(o, false, func(string) *node { return &node{asker: to, stop: func() {}} })
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ctx, cancel := context.WithTimeout(b.Context(), time.Minute) // as a service does
			_, err := r.Read(ctx, Request{Operation: op, Query: &page{Limit: 1}})
			cancel()
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}
