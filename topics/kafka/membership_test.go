package kafka_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// member is a Membership that runs.
type member struct {
	*kafka.Membership
	stop context.CancelFunc
	done chan error
}

func (b *testBroker) join(t *testing.T, opt kafka.MembershipOptions) *member {
	t.Helper()
	if opt.SessionTimeout == 0 {
		opt.SessionTimeout = 6 * time.Second
	}
	m, err := kafka.JoinGroup(b.cfg, b.cat.Prefix+"-group", b.cat.TasksTopic(), opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	run := &member{Membership: m, stop: cancel, done: make(chan error, 1)}
	go func() { run.done <- m.Run(ctx) }()
	t.Cleanup(run.halt)
	return run
}

// halt stops a member; its Run returns what it returned.
func (m *member) halt() {
	m.stop()
	m.Close()
}

// holds waits until the member's assignment satisfies ok.
func (m *member) holds(t *testing.T, ok func([]int32) bool) []int32 {
	t.Helper()
	deadline := time.After(30 * time.Second)
	var last []int32
	for {
		select {
		case last = <-m.Assignments():
			if ok(last) {
				return last
			}
		case err := <-m.done:
			t.Fatalf("member ended with %v at %v", err, last)
		case <-deadline:
			t.Fatalf("assignment is %v", last)
		}
	}
}

func count(n int) func([]int32) bool { return func(ps []int32) bool { return len(ps) == n } }

func partitionsMoveBetweenMembers(t *testing.T, b *testBroker) {
	one := b.join(t, kafka.MembershipOptions{Instance: "one"})
	if got := one.holds(t, count(4)); !slices.Equal(got, []int32{0, 1, 2, 3}) {
		t.Errorf("alone: %v", got)
	}
	two := b.join(t, kafka.MembershipOptions{Instance: "two"})
	half := two.holds(t, count(2))
	rest := one.holds(t, count(2))
	if all := slices.Sorted(slices.Values(slices.Concat(half, rest))); !slices.Equal(all, []int32{0, 1, 2, 3}) {
		t.Errorf("one holds %v and two %v", rest, half)
	}
	two.stop()
	if err := <-two.done; err != nil {
		t.Errorf("leave: %v", err)
	}
	one.holds(t, count(4))
}

// A static member that is killed and comes back within its session has its partitions again, and the
// others never lost or gained one.
func staticMemberComesBack(t *testing.T, b *testBroker) {
	one := b.join(t, kafka.MembershipOptions{Instance: "one", SessionTimeout: 20 * time.Second})
	one.holds(t, count(4))
	two := b.join(t, kafka.MembershipOptions{Instance: "two", SessionTimeout: 20 * time.Second})
	had := two.holds(t, count(2))
	one.holds(t, count(2))
	two.Kill()
	if err := <-two.done; !errors.Is(err, kafka.ErrKilled) {
		t.Errorf("a killed member ended with %v", err)
	}
	again := b.join(t, kafka.MembershipOptions{Instance: "two", SessionTimeout: 20 * time.Second})
	if got := again.holds(t, count(2)); !slices.Equal(got, had) {
		t.Errorf("held %v, came back to %v", had, got)
	}
	select {
	case got := <-one.Assignments():
		t.Errorf("the other member was moved to %v", got)
	default:
	}
}

// Hundreds of logs take a broker a while to make: nobody has to wait for them after Apply.
func appliedIsReady(t *testing.T, b *testBroker) {
	many := topics.Catalogue{Prefix: b.cat.Prefix + "-many", ChainID: 4663, Partitions: 16}
	if err := b.admin.Apply(t.Context(), many.Topics()); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	brokers, err := kadm.NewClient(cl).ListBrokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	for _, topic := range many.Topics() {
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic.Name()
		for p := range topic.Partitions {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	// Sent to the one broker by hand, it is not tried again as any other request is.
	resp, err := cl.Broker(int(brokers[0].NodeID)).Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	asked, unready := 0, 0
	for _, topic := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range topic.Partitions {
			if asked++; p.ErrorCode != 0 {
				unready++
				err = kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	if asked < 400 || unready > 0 {
		t.Errorf("of %d partitions %d have no leader: %v", asked, unready, err)
	}
}

func driftIsFoundAndMended(t *testing.T, b *testBroker) {
	want := b.cat.Topics()
	check := func() []kafka.Drift {
		t.Helper()
		drift, err := b.admin.Check(t.Context(), want)
		if err != nil {
			t.Fatal(err)
		}
		return drift
	}
	if drift := check(); len(drift) != 0 {
		t.Fatalf("drift right after apply: %v", drift)
	}
	if err := b.admin.Apply(t.Context(), want); err != nil {
		t.Fatalf("apply a second time: %v", err)
	}

	// The catalogue grows by a topic and a setting changes: both are found, and mended.
	i := slices.IndexFunc(want, func(t topics.Topic) bool { return t.Compacted })
	want[i].Tombstones += time.Hour
	want = append(want, topics.Topic{Prefix: b.cat.Prefix, ChainID: 1, Kind: topics.KindRaw, Entity: "more", Version: 1, Partitions: 2})
	drift := check()
	if len(drift) != 2 || drift[0].Item != "topic" || drift[1].Item != "delete.retention.ms" || drift[1].Topic != want[i].Name() {
		t.Fatalf("drift: %v", drift)
	}
	if err := b.admin.Apply(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if drift := check(); len(drift) != 0 {
		t.Fatalf("drift after apply: %v", drift)
	}

	// No replica that lacks records may lead, whatever is set since.
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	const unclean = "unclean.leader.election.enable"
	on := "true"
	altered, err := kadm.NewClient(cl).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: unclean, Value: &on}}, want[0].Name())
	if err != nil || altered[0].Err != nil {
		t.Fatal(err, altered)
	}
	polltest.Until(t, "it is reported", func() bool {
		drift = check()
		return len(drift) > 0
	})
	if drift[0] != (kafka.Drift{Topic: want[0].Name(), Item: unclean, Have: "true", Want: "false"}) {
		t.Errorf("drift: %v", drift)
	}
	if err := b.admin.Apply(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	described, err := kadm.NewClient(cl).DescribeTopicConfigs(t.Context(), want[0].Name())
	if err != nil || !slices.ContainsFunc(described[0].Configs, func(c kadm.Config) bool { return c.Key == unclean && c.MaybeValue() == "false" }) {
		t.Errorf("settings of %s: %v, %v", want[0].Name(), described, err)
	}

	// A number of partitions is reported and left alone.
	want[0].Partitions = 8
	if err := b.admin.Apply(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	drift = check()
	if len(drift) != 1 || drift[0].Item != "partitions" || drift[0].Have != "4" || drift[0].Want != "8" {
		t.Errorf("drift: %v", drift)
	}
	want[0].Partitions = 4

	// So is a number of replicas, and no more of them are asked to be in sync than there are.
	cfg := b.cfg
	cfg.ReplicationFactor = 3
	three, err := kafka.NewAdmin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer three.Close()
	if err := three.Apply(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	drift, err = three.Check(t.Context(), want)
	if err != nil || len(drift) != len(want) || drift[0].Item != "replicas" || drift[0].Have != "1" || drift[0].Want != "3" {
		t.Errorf("drift: %v, %v", drift, err)
	}
	b.commit(t, b.transactor(t, "after"), "a topic of one replica can be written to")
}
