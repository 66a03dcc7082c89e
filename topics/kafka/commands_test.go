package kafka_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// tailPrintsDecodedRecords: the lines are what was committed, from where and as many as asked.
func tailPrintsDecodedRecords(t *testing.T, b *testBroker) {
	tx := b.transactor(t, "a")
	begin(t, tx)
	for n := range uint64(5) {
		tx.Produce(t.Context(), &kafka.Record{Topic: b.log, Partition: 1, Value: topics.AppendRaw(nil, &topics.BlockEnd{Block: topics.BlockRef{Number: n}, Head: 9})})
	}
	tx.Produce(t.Context(), &kafka.Record{Topic: b.log, Partition: 2, Key: []byte("deal:7"), Value: []byte("not Avro")})
	tx.Produce(t.Context(), &kafka.Record{Topic: b.table, Partition: 0, Key: []byte{1, 2}})
	tx.Produce(t.Context(), &kafka.Record{Topic: b.cat.OwnersTopic(), Key: []byte("0/a"), Value: []byte(`{"role":"owner"}`)})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	tail := func(opt kafka.TailOptions) []map[string]any {
		t.Helper()
		var out bytes.Buffer
		if err := kafka.Tail(t.Context(), b.cfg, b.cat, opt, &out); err != nil {
			t.Fatal(err)
		}
		var lines []map[string]any
		for l := range strings.Lines(out.String()) {
			var v map[string]any
			if err := json.Unmarshal([]byte(l), &v); err != nil {
				t.Fatalf("%q: %v", l, err)
			}
			lines = append(lines, v)
		}
		return lines
	}
	numbers := func(lines []map[string]any) (ns []float64) {
		for _, l := range lines {
			ns = append(ns, l["value"].(map[string]any)["value"].(map[string]any)["block_number"].(float64))
		}
		return ns
	}
	if got := numbers(tail(kafka.TailOptions{Topic: "raw.logs", Partitions: []int32{1}})); !slices.Equal(got, []float64{0, 1, 2, 3, 4}) {
		t.Errorf("all of the partition: blocks %v", got)
	}
	if got := numbers(tail(kafka.TailOptions{Topic: b.log, Partitions: []int32{1}, From: 2, Limit: 2})); !slices.Equal(got, []float64{2, 3}) {
		t.Errorf("two from offset 2: blocks %v", got)
	}
	if got := numbers(tail(kafka.TailOptions{Topic: b.log, Partitions: []int32{1}, From: -3, Follow: true, Limit: 2})); !slices.Equal(got, []float64{3, 4}) {
		t.Errorf("three offsets before the end, the marker among them: blocks %v", got)
	}
	if got := tail(kafka.TailOptions{Topic: b.log}); len(got) != 6 {
		t.Errorf("%d lines of all partitions, want 6", len(got))
	}
	if got := tail(kafka.TailOptions{Topic: b.log, Partitions: []int32{2}}); len(got) != 1 || got[0]["key"] != "deal:7" || got[0]["error"] == nil {
		t.Errorf("a record that cannot be decoded: %v", got)
	}
	if got := tail(kafka.TailOptions{Topic: "cl.market"}); len(got) != 1 || got[0]["key"] != "0x0102" || got[0]["value"] != nil {
		t.Errorf("a tombstone of the changelog: %v", got)
	}
	if got := tail(kafka.TailOptions{Topic: "ctl.owners"}); len(got) != 1 || got[0]["value"].(map[string]any)["role"] != "owner" {
		t.Errorf("a control record: %v", got)
	}
	if err := kafka.Tail(t.Context(), b.cfg, b.cat, kafka.TailOptions{Topic: "raw.none"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "ent.deal") {
		t.Errorf("an unknown topic: %v", err)
	}
}

func driftStopsTheStart(t *testing.T, b *testBroker) {
	if err := kafka.CheckCatalogue(t.Context(), b.cfg, b.cat); err != nil {
		t.Fatal(err)
	}
	other := b.cat
	other.Partitions = 16
	err := kafka.CheckCatalogue(t.Context(), b.cfg, other)
	if !errors.Is(err, kafka.ErrDrift) || !strings.Contains(err.Error(), b.log+`: partitions is "4", want "16"`) {
		t.Errorf("16 partitions wanted where there are 4: %v", err)
	}
	var out bytes.Buffer
	if err := kafka.ApplyCatalogue(t.Context(), b.cfg, other, &out); !errors.Is(err, kafka.ErrDrift) {
		t.Errorf("apply cannot mend a number of partitions: %v", err)
	}
	if err := kafka.ApplyCatalogue(t.Context(), b.cfg, b.cat, &out); err != nil {
		t.Error(err)
	}
}

// Brokers that keep transactions with fewer replicas than the topics have are named.
func brokersOwnTopics(t *testing.T, b *testBroker) {
	b.commit(t, b.transactor(t, "first"), "makes the topic of transactions")
	if err := kafka.CheckBrokers(t.Context(), b.cfg); err != nil {
		t.Error(err)
	}
	cfg := b.cfg
	cfg.ReplicationFactor = 3
	err := kafka.CheckBrokers(t.Context(), cfg)
	if !errors.Is(err, kafka.ErrDrift) || !strings.Contains(err.Error(), `__transaction_state: replicas is "1", want "3"`) {
		t.Errorf("3 replicas wanted where there is 1: %v", err)
	}
}
