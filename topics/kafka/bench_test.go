package kafka_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
)

// BenchmarkCommitToRead is the time from Begin until a read-committed reader has the record: what the
// pipeline pays at the tip for each hop.
func BenchmarkCommitToRead(b *testing.B) {
	for _, kind := range brokertest.Kinds {
		b.Run(kind, func(b *testing.B) {
			tb := newTestBroker(b, brokertest.Start(b, kind), "bench")
			tx := tb.transactor(b, "a")
			r, err := kafka.NewReader(tb.cfg, tb.log, 1, 0, kafka.ReaderOptions{})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
			defer cancel()
			var buf []*kafka.Record
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				tb.commit(b, tx, "x")
				if buf, err = r.Poll(ctx, buf); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
		})
	}
}

// BenchmarkTransactions is the throughput of transactions of 10,000 records, read back by a reader.
func BenchmarkTransactions(b *testing.B) {
	const perCommit = 10_000
	value := make([]byte, 220)
	for _, kind := range brokertest.Kinds {
		b.Run(kind, func(b *testing.B) {
			tb := newTestBroker(b, brokertest.Start(b, kind), "bench")
			tx := tb.transactor(b, "a")
			r, err := kafka.NewReader(tb.cfg, tb.log, 1, 0, kafka.ReaderOptions{})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			var buf []*kafka.Record
			written, read := 0, 0
			for b.Loop() {
				begin(b, tx)
				for range perCommit {
					tx.Produce(b.Context(), &kafka.Record{Topic: tb.log, Partition: 1, Value: value})
				}
				if err := tx.Commit(b.Context()); err != nil {
					b.Fatal(err)
				}
				for written += perCommit; read < written; read += len(buf) {
					if buf, err = r.Poll(b.Context(), buf); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(written)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
