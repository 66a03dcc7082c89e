// Package brokertest starts brokers of both sorts for tests; they are gone when the test ends. Nothing that
// runs in production imports it.
package brokertest

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lienstream/lienstream/topics/broker"
)

// Kinds names the brokers that a test of a promise runs on: what must hold, holds on both.
var Kinds = []string{"kfake", "apache"}

// Start starts a broker of that kind and returns its addresses.
func Start(t testing.TB, kind string) []string {
	t.Helper()
	if kind == "apache" {
		return Apache(t).Addrs()
	}
	b, err := broker.Open(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.Addrs()
}

// Compactable starts an embedded broker whose compacted topics compact compacts. It moves the starts of their logs,
// so nobody may be reading them: a quiet point is before the first reader or after the last.
func Compactable(t testing.TB) (addrs []string, compact func()) {
	t.Helper()
	cluster := embedded(t)
	return cluster.ListenAddrs(), cluster.Compact
}

// embedded is an embedded broker that a test controls.
func embedded(t testing.TB) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(broker.Settings()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	broker.WholeFetches(cluster)
	return cluster
}

// Apache starts Apache Kafka. The test is skipped where it is not installed, but never in CI.
func Apache(t testing.TB, listeners ...broker.Listener) *broker.Apache {
	t.Helper()
	return ApacheWith(t, broker.ApacheConfig{Listeners: listeners})
}

// ApacheWith is Apache with settings; where its files lie is not one of them.
func ApacheWith(t testing.TB, cfg broker.ApacheConfig) *broker.Apache {
	t.Helper()
	var a *broker.Apache
	installed(t, func(ctx context.Context, libs string) (err error) {
		cfg.LibsDir, cfg.Dir = libs, t.TempDir()
		a, err = broker.StartApache(ctx, cfg)
		return err
	})
	t.Cleanup(a.Kill)
	return a
}

// installed starts something of Apache Kafka, and skips the test where that is not installed.
func installed(t testing.TB, start func(ctx context.Context, libs string) error) {
	t.Helper()
	if testing.Short() {
		t.Skip("apache kafka: not with -short")
	}
	libs, err := libsDir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = start(ctx, libs)
	if errors.Is(err, broker.ErrNoKafka) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Delete deletes a topic, as a person might.
func Delete(t testing.TB, brokers []string, topic string) {
	t.Helper()
	admin(t, brokers, func(adm *kadm.Client) error {
		_, err := adm.DeleteTopic(t.Context(), topic)
		return err
	})
}

// Truncate deletes the records of a partition before an offset.
func Truncate(t testing.TB, brokers []string, topic string, partition int32, offset int64) {
	t.Helper()
	admin(t, brokers, func(adm *kadm.Client) error {
		var o kadm.Offsets
		o.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset})
		rs, err := adm.DeleteRecords(t.Context(), o)
		return errors.Join(err, rs.Error())
	})
}

// Assigned is which instance each partition is assigned to by a group; nil while it rebalances.
func Assigned(t testing.TB, brokers []string, group string) map[int32]string {
	t.Helper()
	var assigned map[int32]string
	admin(t, brokers, func(adm *kadm.Client) error {
		groups, err := adm.DescribeGroups(t.Context(), group)
		if err != nil || groups[group].State != "Stable" {
			return err
		}
		assigned = map[int32]string{}
		for _, m := range groups[group].Members {
			all, ok := m.Assigned.AsConsumer()
			if !ok || m.InstanceID == nil {
				continue
			}
			for _, topic := range all.Topics {
				for _, p := range topic.Partitions {
					assigned[p] = *m.InstanceID
				}
			}
		}
		return nil
	})
	return assigned
}

func admin(t testing.TB, brokers []string, f func(*kadm.Client) error) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := f(kadm.NewClient(cl)); err != nil {
		t.Fatal(err)
	}
}

// libsDir is where the jars are: LIENSTREAM_KAFKA_LIBS, or the module's docker/kafka/libs.
func libsDir() (string, error) {
	if dir := os.Getenv("LIENSTREAM_KAFKA_LIBS"); dir != "" {
		return dir, nil
	}
	out, err := exec.Command("go", "env", "GOMOD").Output() //nolint:noctx // local and short
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "docker", "kafka", "libs"), nil
}

// TransactionalIDs are those that producers ever used, sorted.
func TransactionalIDs(ctx context.Context, brokers []string, dial func(context.Context, string, string) (net.Conn, error)) ([]string, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.Dialer(dial))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	listed, err := kadm.NewClient(cl).ListTransactions(ctx, nil, nil)
	return listed.TransactionalIDs(), err
}

// Regroup has all members of groups that are about to rebalance join anew, and returns how many groups that were. The embedded
// broker counts one who joins too few after a static member came back that had waited for its assignment, and puts the
// rebalance off with each who asks again, for ever. Apache Kafka does neither.
func Regroup(ctx context.Context, brokers []string, dial func(context.Context, string, string) (net.Conn, error)) (stuck int, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.Dialer(dial))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	groups, err := admin.DescribeGroups(ctx)
	for name, g := range groups {
		if g.State != "PreparingRebalance" {
			continue
		}
		stuck++
		leave := kadm.LeaveGroup(name)
		for _, m := range g.Members {
			if m.InstanceID != nil {
				leave.InstanceIDs(*m.InstanceID)
			}
		}
		if _, failed := admin.LeaveGroup(ctx, leave); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	return stuck, err
}

// Stick makes a member join a group and fall silent: while others join, their rebalance waits for it, for five minutes.
func Stick(ctx context.Context, brokers []string, dial func(context.Context, string, string) (net.Conn, error), group, topic string) error {
	const patience = 5 * time.Minute
	holds := make(chan struct{}, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.Dialer(dial), kgo.ConsumerGroup(group), kgo.InstanceID("silent"),
		kgo.ConsumeTopics(topic), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(patience), kgo.RebalanceTimeout(patience), kgo.HeartbeatInterval(time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			if len(got) == 0 {
				return
			}
			select {
			case holds <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		return err
	}
	defer cl.Close() // a static member does not leave
	select {
	case <-holds:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
