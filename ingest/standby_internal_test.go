package ingest

import (
	"testing"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
)

// What brokers write where the transaction of an ingester that is gone is aborted is no sign of another one. Records are, decided or
// not.
func TestAnAbortIsNoSignOfLife(t *testing.T) {
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cfg := brokertest.Config(brokertest.Start(t, kind), "t")
			raw, _ := topics.Catalogue{Prefix: cfg.Prefix, ChainID: 1, Partitions: 2}.Find(topics.KindRaw, topics.Logs)
			brokertest.Apply(t, cfg, []topics.Topic{raw})
			admin, err := kafka.NewAdmin(cfg)
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			check(err)
			defer admin.Close()
			before, err := admin.EndOffsets(t.Context(), raw.Name())
			check(err)
			life := func(after string, want bool) {
				t.Helper()
				ends, err := admin.EndOffsets(t.Context(), raw.Name())
				check(err)
				stable, err := admin.StableOffsets(t.Context(), raw.Name())
				check(err)
				if got := grew(before, ends, stable); got != want {
					t.Errorf("after %s: %v, then %v of which %v have ended: a sign of life %t, want %t", after, before, ends, stable, got, want)
				}
				before = ends
			}
			writer := func() *kafka.Transactor {
				tx, err := kafka.NewTransactor(cfg, "ingest", kafka.TransactorOptions{})
				check(err)
				check(tx.Init(t.Context()))
				check(tx.Begin())
				return tx
			}
			send := func(tx *kafka.Transactor, partitions ...int32) {
				t.Helper()
				for _, p := range partitions {
					tx.Produce(t.Context(), &kafka.Record{Topic: raw.Name(), Partition: p, Value: []byte("v")})
				}
				if !tx.Flush(t.Context()) {
					t.Fatal("not flushed")
				}
			}
			life("nothing", false)
			gone := writer()
			send(gone, 0)
			life("a record", true)
			send(gone, 0, 1)
			life("two more of the same transaction", true)
			gone.Kill()
			next := writer() // which aborts it
			life("the abort", false)
			send(next, 1)
			check(next.Commit(t.Context()))
			life("a transaction of one record", true)
			check(next.Begin())
			send(next, 0, 1)
			check(next.Commit(t.Context()))
			life("one of two", true)
			next.Close()
		})
	}
}
