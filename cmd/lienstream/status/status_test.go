package status_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lienstream/lienstream/cmd/lienstream/status"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
)

func TestTable(t *testing.T) {
	cfg := brokertest.Config(brokertest.Start(t, "kfake"), "t")
	cat := topics.Catalogue{Prefix: "t", ChainID: 1, Partitions: 3}
	if err := kafka.ApplyCatalogue(t.Context(), cfg, cat, new(bytes.Buffer)); err != nil {
		t.Fatal(err)
	}
	tx, err := kafka.NewTransactor(cfg, "test", kafka.TransactorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Close)
	if err := tx.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	write := func(records ...*kafka.Record) {
		t.Helper()
		if err := tx.Begin(); err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			tx.Produce(t.Context(), r)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(o topics.Owner) *kafka.Record {
		t.Helper()
		value, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return &kafka.Record{Topic: cat.OwnersTopic(), Key: o.Key(), Value: value}
	}
	at := func(n uint64) topics.BlockRef { return topics.BlockRef{Number: n} }
	run := topics.StateRunning
	end := func(n uint64) *kafka.Record {
		return &kafka.Record{Topic: cat.Raw(), Value: topics.AppendRaw(nil, &topics.BlockEnd{Block: at(n), Head: 120, Finalized: 7, Commit: true})}
	}

	var empty bytes.Buffer
	if err := status.Print(t.Context(), cfg, cat, []string{topics.AppMarket, topics.AppNotifier}, &empty); !errors.Is(err, status.ErrUnowned) ||
		!strings.Contains(err.Error(), "market 0, market 1, market 2, notifier 0, notifier 1, notifier 2") {
		t.Errorf("nobody owns anything: %v\n%s", err, empty.String())
	}
	last := end(100)
	last.Headers = []kafka.Header{{Key: topics.UnprovedHeader, Value: []byte("node: it knows no receipts")}}
	write(end(99), last,
		&kafka.Record{Topic: cat.Raw(), Key: []byte("k"), Value: topics.AppendRaw(nil, &topics.Log{Block: at(101)})},
		holds(topics.Owner{Partition: 3, Instance: "a", State: run}), // the node itself
		holds(topics.Owner{Partition: 0, Instance: "a", Role: topics.RoleOwner, Incarnation: 4, At: at(90), State: run}),
		holds(topics.Owner{Partition: 0, Instance: "a", Role: topics.RoleOwner, Incarnation: 4, At: at(110), State: run}),
		holds(topics.Owner{Partition: 0, Instance: "b", Role: topics.RoleOwner, Incarnation: 3, At: at(99), State: run}), // a zombie
		holds(topics.Owner{Partition: 1, Instance: "b", Role: topics.RoleOwner, Incarnation: 1, At: at(120), State: run}),
		holds(topics.Owner{Partition: 1, Instance: "c", Role: topics.RoleStandby, State: topics.StateRestoring}),
		holds(topics.Owner{Partition: 1, Instance: "a", Role: topics.RoleStandby, At: at(119), State: run}),
		holds(topics.Owner{Partition: 2, Instance: "a", Role: topics.RoleOwner, At: at(1), State: run}),
		&kafka.Record{Topic: cat.OwnersTopic(), Key: topics.Owner{Partition: 2, Instance: "a"}.Key()}, // it left
		holds(topics.Owner{Application: topics.AppSupport, Partition: 0, Instance: "b", Role: topics.RoleOwner, At: at(17), State: run}),
		holds(topics.Owner{Application: topics.AppSupport, Partition: 0, Instance: "a", Role: topics.RoleStandby, At: at(16), State: run}),
		holds(topics.Owner{Application: topics.AppSupport, Partition: 2, Instance: "a", Role: topics.RoleOwner, State: topics.StateStopped, Fault: "a bad command"}),
		holds(topics.Owner{Application: topics.AppFacts, Partition: 1, Instance: "a", Role: topics.RoleOwner, At: at(115), State: run}),
	)
	s, err := status.Read(t.Context(), cfg, cat, []string{topics.AppMarket, topics.AppSupport})
	if err != nil {
		t.Fatal(err)
	}
	s.Now = s.IngestAt.Add(250 * time.Millisecond)
	var got bytes.Buffer
	if err := s.Write(&got); err != nil {
		t.Fatal(err)
	}
	want := `        HEAD  PUBLISHED  FINALIZED  AGE
ingest  120   100        7          250ms

application market
PARTITION  OWNER  STATE    BLOCK  LAG  STANDBYS
0          a      running  110    10   -
1          b      running  120    0    a at 119, c restoring
2          -      -        -      -    -

application support
PARTITION  OWNER  STATE    COMMAND  STANDBYS
0          b      running  17       a at 16
1          -      -        -        -
2          a      stopped  0        -

application facts
PARTITION  OWNER  STATE    BLOCK  LAG  STANDBYS
0          -      -        -      -    -
1          a      running  115    5    -
2          -      -        -      -    -

not verified: node: it knows no receipts

support partition 2 is stopped on a: a bad command
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	const without = ": market 2, support 1, facts 0, facts 2"
	if err := status.Print(t.Context(), cfg, cat, []string{topics.AppMarket, topics.AppSupport}, new(bytes.Buffer)); !errors.Is(err, status.ErrUnowned) || !strings.HasSuffix(err.Error(), without) {
		t.Errorf("%v, want%s", err, without)
	}
}
