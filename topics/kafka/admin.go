package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lienstream/lienstream/topics"
)

// Admin provisions and inspects topics.
type Admin struct {
	cfg   Config
	cl    *kgo.Client
	adm   *kadm.Client
	conns *dialer
}

// NewAdmin makes an Admin. It connects on the first call.
func NewAdmin(cfg Config) (*Admin, error) {
	cl, conns, err := cfg.client("admin", nil)
	if err != nil {
		return nil, err
	}
	return &Admin{cfg: cfg, cl: cl, adm: kadm.NewClient(cl), conns: conns}, nil
}

// Close releases the client.
func (a *Admin) Close() { closeClient(a.cl, a.conns) }

func (a *Admin) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	return supervise(ctx, f)
}

// settings are the required settings of a topic with this many replicas.
func settings(t topics.Topic, replicas int) map[string]string {
	c := t.Configs()
	// One replica may be down without blocking writes, and no acknowledged record is lost.
	c["min.insync.replicas"] = strconv.Itoa(min(2, max(1, replicas-1)))
	c["unclean.leader.election.enable"] = "false"
	return c
}

// Apply creates missing topics and corrects their settings. It returns when the brokers show the changes and
// every partition has a leader that responds, because a controller confirms topics seconds before the brokers
// have created hundreds of logs. It never deletes a topic and never changes the number of partitions, which
// requires a rebuild, or of replicas, which moves data: Check reports both. Settings depend on the actual
// number of replicas, so that every topic stays writable.
func (a *Admin) Apply(ctx context.Context, want []topics.Topic) error {
	if err := a.call(ctx, func(ctx context.Context) error { return a.create(ctx, want) }); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		drift, err := a.Check(ctx, want)
		if err != nil {
			return err
		}
		drift = slices.DeleteFunc(drift, func(d Drift) bool { return d.Item == itemPartitions || d.Item == itemReplicas })
		if err := a.mend(ctx, drift); err != nil {
			return err
		}
		var left error
		if len(drift) > 0 {
			left = fmt.Errorf("still %v", drift)
		} else if left = a.answered(ctx, want); left == nil {
			return nil
		}
		select { // changes become visible with a delay
		case <-ctx.Done():
			return fmt.Errorf("apply the catalogue: %w: %w", left, ctx.Err())
		case <-t.C:
		}
	}
}

// applyTimeout bounds how long brokers may take to create the logs.
const applyTimeout = time.Minute

// answered waits for a response of the leader of every partition.
func (a *Admin) answered(ctx context.Context, want []topics.Topic) error {
	names := make([]string, len(want))
	for i, t := range want {
		names[i] = t.Name()
	}
	return a.call(ctx, func(ctx context.Context) error {
		listed, err := a.adm.ListEndOffsets(ctx, names...)
		if err != nil {
			return err
		}
		var left error
		listed.Each(func(o kadm.ListedOffset) {
			if left == nil && o.Err != nil {
				left = fmt.Errorf("partition %d of %s: %w", o.Partition, o.Topic, o.Err)
			}
		})
		return left
	})
}

// create creates topics in one request; existing ones stay as they are.
func (a *Admin) create(ctx context.Context, want []topics.Topic) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(a.cfg.Timeout.Milliseconds())
	for _, t := range want {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic = t.Name()
		rt.NumPartitions = t.Partitions
		rt.ReplicationFactor = a.cfg.ReplicationFactor
		for k, v := range settings(t, int(a.cfg.ReplicationFactor)) {
			rc := kmsg.NewCreateTopicsRequestTopicConfig()
			rc.Name, rc.Value = k, &v
			rt.Configs = append(rt.Configs, rc)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	var errs []error
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			errs = append(errs, fmt.Errorf("create topic %s: %w: %s", t.Topic, err, deref(t.ErrorMessage)))
		}
	}
	return errors.Join(errs...)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// mend corrects the settings that differ. A topic that is not visible yet is skipped.
func (a *Admin) mend(ctx context.Context, drift []Drift) error {
	changes := map[string][]kadm.AlterConfig{}
	for _, d := range drift {
		if d.Item != itemTopic {
			changes[d.Topic] = append(changes[d.Topic], kadm.AlterConfig{Name: d.Item, Value: new(d.Want)})
		}
	}
	for name, configs := range changes {
		err := a.call(ctx, func(ctx context.Context) error {
			rs, err := a.adm.AlterTopicConfigs(ctx, configs, name)
			if err != nil {
				return err
			}
			_, err = rs.On(name, func(r *kadm.AlterConfigsResponse) error { return r.Err })
			return err
		})
		if err != nil {
			return fmt.Errorf("set configs of topic %s: %w", name, err)
		}
	}
	return nil
}

// Drift is one difference of a topic from the catalogue.
type Drift struct {
	Topic string
	Item  string // "topic", "partitions", "replicas", or the name of a setting
	Want  string
	Have  string
}

const (
	itemTopic      = "topic"
	itemPartitions = "partitions"
	itemReplicas   = "replicas" // fewer than wanted
)

// String describes the difference.
func (d Drift) String() string {
	return fmt.Sprintf("%s: %s is %q, want %q", d.Topic, d.Item, d.Have, d.Want)
}

// Check compares the brokers' topics with the catalogue.
func (a *Admin) Check(ctx context.Context, want []topics.Topic) ([]Drift, error) {
	names := make([]string, len(want))
	for i, t := range want {
		names[i] = t.Name()
	}
	var details kadm.TopicDetails
	var configs kadm.ResourceConfigs
	err := a.call(ctx, func(ctx context.Context) (err error) {
		details, err = a.adm.ListTopics(ctx, names...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var drift []Drift
	var there []topics.Topic
	for _, t := range want {
		d := details[t.Name()]
		switch {
		case errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			drift = append(drift, Drift{Topic: t.Name(), Item: itemTopic, Want: "there", Have: "missing"})
			continue
		case d.Err != nil:
			return nil, fmt.Errorf("list topic %s: %w", t.Name(), d.Err)
		case len(d.Partitions) != int(t.Partitions):
			drift = append(drift, Drift{
				Topic: t.Name(), Item: itemPartitions,
				Want: strconv.Itoa(int(t.Partitions)), Have: strconv.Itoa(len(d.Partitions)),
			})
		}
		have := replicas(d)
		if want := int(a.cfg.ReplicationFactor); have < want {
			drift = append(drift, Drift{Topic: t.Name(), Item: itemReplicas, Want: strconv.Itoa(want), Have: strconv.Itoa(have)})
		}
		there = append(there, t)
	}
	if len(there) == 0 {
		return drift, nil
	}
	names = names[:0]
	for _, t := range there {
		names = append(names, t.Name())
	}
	err = a.call(ctx, func(ctx context.Context) (err error) {
		configs, err = a.adm.DescribeTopicConfigs(ctx, names...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	for _, t := range there {
		r, err := configs.On(t.Name(), nil)
		if err == nil {
			err = r.Err
		}
		if err != nil {
			return nil, fmt.Errorf("describe topic %s: %w", t.Name(), err)
		}
		drift = append(drift, configDrift(t.Name(), settings(t, replicas(details[t.Name()])), r.Configs)...)
	}
	return drift, nil
}

// checkInternal compares the brokers' own topics with the replication of ours. They make each on its first use.
func (a *Admin) checkInternal(ctx context.Context) (drift []Drift, err error) {
	var details kadm.TopicDetails
	err = a.call(ctx, func(ctx context.Context) (err error) {
		details, err = a.adm.ListTopicsWithInternal(ctx, "__transaction_state", "__consumer_offsets")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the brokers' own topics: %w", err)
	}
	for _, d := range details.Sorted() {
		switch have, want := replicas(d), int(a.cfg.ReplicationFactor); {
		case errors.Is(d.Err, kerr.UnknownTopicOrPartition):
		case d.Err != nil:
			return nil, fmt.Errorf("list topic %s: %w", d.Topic, d.Err)
		case have < want:
			drift = append(drift, Drift{Topic: d.Topic, Item: itemReplicas, Want: strconv.Itoa(want), Have: strconv.Itoa(have)})
		}
	}
	return drift, nil
}

// replicas is the number of replicas that every partition of a topic has.
func replicas(d kadm.TopicDetail) int {
	least := math.MaxInt
	for _, p := range d.Partitions {
		least = min(least, len(p.Replicas))
	}
	return least
}

func configDrift(topic string, want map[string]string, have []kadm.Config) []Drift {
	values := map[string]string{}
	for _, c := range have {
		values[c.Key] = c.MaybeValue()
	}
	var drift []Drift
	for k, v := range want {
		if values[k] != v {
			drift = append(drift, Drift{Topic: topic, Item: k, Want: v, Have: values[k]})
		}
	}
	slices.SortFunc(drift, func(a, b Drift) int { return strings.Compare(a.Item, b.Item) })
	return drift
}

// EndOffsets are the offsets after the last record of every partition, ascending by partition.
func (a *Admin) EndOffsets(ctx context.Context, topic string) ([]int64, error) {
	return a.offsets(ctx, "end", topic, a.adm.ListEndOffsets)
}

// StableOffsets returns for each partition the offset up to which all transactions have ended.
func (a *Admin) StableOffsets(ctx context.Context, topic string) ([]int64, error) {
	return a.offsets(ctx, "stable", topic, a.adm.ListCommittedOffsets)
}

func (a *Admin) offsets(ctx context.Context, which, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error)) ([]int64, error) {
	var offsets []int64
	err := a.call(ctx, func(ctx context.Context) error {
		listed, err := list(ctx, topic)
		if err != nil {
			return err
		}
		if err := listed.Error(); err != nil {
			return err
		}
		offsets = make([]int64, len(listed[topic]))
		for p, o := range listed[topic] {
			offsets[p] = o.Offset
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s offsets of %s: %w", which, topic, err)
	}
	return offsets, nil
}
