package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// counter is another application of the same raw topic: how many logs a key has had.
type counter struct{}

var counterTable = &state.Table{ID: 1, Name: "counts"} // toy has a table of that ID too

func (counter) Tables() []*state.Table { return []*state.Table{counterTable} }

func (counter) Apply(w state.Writer, rec topics.Raw) error {
	l := rec.(*topics.Log)
	row, err := w.Get(counterTable, l.Address[:])
	if err != nil {
		return err
	}
	var n uint64
	if row != nil {
		n = binary.BigEndian.Uint64(row)
	}
	w.Put(counterTable, l.Address[:], binary.BigEndian.AppendUint64(nil, n+1))
	return nil
}

// keyQuery asks both applications for a row by its key.
type keyQuery struct{ Key common.Address }

func (q *keyQuery) Code(c *wire.Coder) { c.Fixed(q.Key[:]) }
func (q *keyQuery) Validate() error    { return nil }

// rowsOf makes the operation of an application: the row of a key.
func rowsOf(app string, table *state.Table) read.Application {
	return read.Application{Name: app, Operations: []*read.Operation{
		read.NewOperation("row", func(_ context.Context, v *read.Views, q *keyQuery) (items []read.Item, err error) {
			for _, view := range v.Of {
				row, err := view.Get(table, q.Key[:])
				if err != nil {
					return nil, err
				}
				if row != nil {
					items = append(items, read.Item{Key: q.Key[:], Row: row})
				}
			}
			return items, nil
		}),
	}}
}

// Two applications share a cluster: brokers, the raw topic, nodes by the same names, their disks, their read
// API's address and their metrics. Neither takes the other's nodes, partitions, topics or state for its own.
func TestTwoApplicationsShareACluster(t *testing.T) {
	e := newEnv(t, 4)
	c := newChain(t, e.kafka, e.cat, 7)
	c.add(20)

	const other = topics.AppNotifier
	apps := map[string]App{topics.AppMarket: toy{}, other: counter{}}
	reads := map[string]read.Application{topics.AppMarket: rowsOf(topics.AppMarket, toyTable), other: rowsOf(other, counterTable)}
	nodes := map[string][]*runningNode{}
	for _, instance := range []string{"a", "b"} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		check(t, err)
		cfg := e.config(instance, vfs.NewMem())
		cfg.Addr, cfg.Registerer = listener.Addr().String(), prometheus.NewRegistry()
		var served []read.Served
		for name, app := range apps {
			own := cfg
			own.AppName, own.Dir = name, "/"+name
			n, err := New(own, app)
			check(t, err)
			nodes[name] = append(nodes[name], e.run(n))
			served = append(served, read.Served{Source: n, Application: reads[name]})
		}
		server := &http.Server{Handler: read.NewHandler(t.Context(), zap.NewNop(), served...), ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { check(t, server.Close()) })
	}
	ask := func(name string) func(key common.Address) (*read.Response, error) {
		routing := read.DefaultConfig()
		routing.Application, routing.Partitions, routing.Timeout = name, e.cat.Partitions, 5*time.Second
		routing.Owners = func() (read.Feed, error) {
			return kafka.NewReader(e.kafka, e.cat.OwnersTopic(), 0, 0, kafka.ReaderOptions{})
		}
		r, err := read.NewRouter(routing)
		check(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		return func(key common.Address) (*read.Response, error) {
			return r.Read(read.WithMinBlock(t.Context(), c.head().Number), read.Request{
				Operation: reads[name].Operations[0], Query: &keyQuery{key},
			})
		}
	}
	asks := map[string]func(key common.Address) (*read.Response, error){topics.AppMarket: ask(topics.AppMarket), other: ask(other)}

	agree := func() {
		t.Helper()
		for _, of := range nodes {
			e.caughtUp(c, of...)
		}
		for p := range e.cat.Partitions {
			rows, counts := c.rows(p), map[common.Address]uint64{}
			for _, b := range c.blocks {
				for _, l := range b.logs[p] {
					counts[l.Address]++
				}
			}
			for key, n := range counts {
				row := binary.BigEndian.AppendUint64(nil, n)
				for name, want := range map[string]string{topics.AppMarket: rows[string(key[:])], other: string(row)} {
					var a *read.Response
					polltest.Until(t, name+" answers", func() (ok bool) {
						var err error
						a, err = asks[name](key)
						return err == nil
					})
					var got string
					if len(a.Items) == 1 {
						got = string(a.Items[0].Row)
					}
					if a.Block != c.head() || got != want {
						t.Fatalf("%s: key %s of partition %d is %x as of block %d, want %x as of %d", name, key, p, got, a.Block.Number, want, c.head().Number)
					}
				}
			}
		}
	}
	agree()
	c.reorg(3)
	c.add(5)
	agree()
	e.invariantTopics(c) // of the one that writes topics: the other's events are not among them

	// Of one application a node goes, and the other stays where it is.
	share := func(n *runningNode) (held int) {
		for _, w := range n.Watermarks() {
			if w.Role == topics.RoleOwner {
				held++
			}
		}
		return held
	}
	for _, of := range nodes {
		polltest.Until(t, "both nodes have a share", func() bool { return share(of[0]) == 2 && share(of[1]) == 2 })
	}
	for name, of := range nodes {
		for _, n := range of {
			n.live.mu.Lock()
			for p, o := range n.live.owner {
				if o.Application != name {
					t.Errorf("to %s, %s of %s owns partition %d", name, o.Instance, o.Application, p)
				}
			}
			n.live.mu.Unlock()
		}
	}
	nodes[other][0].stop(t)
	nodes[other] = nodes[other][1:]
	c.add(5)
	agree()
	if all := share(nodes[other][0]); all != 4 {
		t.Errorf("the node that stays owns %d partitions", all)
	}
	for _, n := range nodes[topics.AppMarket] {
		if share(n) != 2 {
			t.Errorf("a node owns %d partitions after another application left", share(n))
		}
	}
}
