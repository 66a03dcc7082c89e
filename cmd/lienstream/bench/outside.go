package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lienstream/lienstream/topics"
)

// outside looks at the brokers as somebody who is neither of the two that are compared.
type outside struct {
	seed  string
	admin *kadm.Client
}

func newOutside(addrs []string) (*outside, error) {
	o := &outside{seed: strings.Join(addrs, ",")}
	c, err := o.client()
	if err != nil {
		return nil, err
	}
	o.admin = kadm.NewClient(c)
	return o, nil
}

func (o *outside) close() { o.admin.Close() }

func (o *outside) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(o.seed, ",")...), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
}

// remove deletes the topics whose names begin so, but for those to keep, and waits until they are gone.
func (o *outside) remove(ctx context.Context, prefix string, keep ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		all, err := o.admin.ListTopics(ctx)
		if err != nil {
			return err
		}
		names := slices.DeleteFunc(all.Names(), func(n string) bool { return !strings.HasPrefix(n, prefix) || slices.Contains(keep, n) })
		if len(names) == 0 {
			return nil
		}
		if _, err := o.admin.DeleteTopics(ctx, names...); err != nil {
			return err
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// create makes compacted topics as the catalogue's are, and waits until every partition has a leader.
func (o *outside) create(ctx context.Context, partitions int, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	configs := map[string]*string{}
	for k, v := range (topics.Topic{Compacted: true}).Configs() {
		configs[k] = &v
	}
	made, err := o.admin.CreateTopics(ctx, int32(partitions), 1, configs, names...)
	if err = errors.Join(err, made.Error()); err != nil {
		return err
	}
	for {
		ends, err := o.admin.ListEndOffsets(ctx, names...)
		if err = errors.Join(err, ends.Error()); err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// ends are the ends of a topic's partitions, read-committed.
func (o *outside) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := o.admin.ListCommittedOffsets(ctx, topic)
	if err = errors.Join(err, listed.Error()); err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	listed.Each(func(l kadm.ListedOffset) { ends[l.Partition] = l.Offset })
	return ends, nil
}

// committed is satisfied once a group has committed the end of a topic: but for the marker of its last transaction.
func (o *outside) committed(ctx context.Context, group, topic string) error {
	ends, err := o.ends(ctx, topic)
	if err != nil {
		return err
	}
	offsets, err := o.admin.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	for p, end := range ends {
		if at, ok := offsets.Lookup(topic, p); !ok || at.At < end-1 {
			return fmt.Errorf("partition %d of %s is committed up to offset %d of %d", p, topic, at.At, end)
		}
	}
	return nil
}

// comparedEntities are those that both keep.
var comparedEntities = []string{"deal", "bid", "balance", "asset"}

// compare counts the rows of an entity in either topic and those that are not the same in both, with one of these.
func (o *outside) compare(ctx context.Context, ours, theirs string) (rows, differ int, example string, err error) {
	a, err1 := o.latest(ctx, ours)
	b, err2 := o.latest(ctx, theirs)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, "", err
	}
	keys := map[string]bool{}
	for k := range maps.Keys(a) {
		keys[k] = true
	}
	for k := range maps.Keys(b) {
		keys[k] = true
	}
	for key := range keys {
		x, err1 := row(a[key])
		y, err2 := row(b[key])
		if err := errors.Join(err1, err2); err != nil {
			return 0, 0, "", err
		}
		if !reflect.DeepEqual(x, y) {
			differ++
			example = fmt.Sprintf("%s: %v and %v", key, x, y)
		}
	}
	return len(keys), differ, example, nil
}

// row is a message without the block that it is true as of: that is the one of the commit, not of the change.
func row(value []byte) (map[string]any, error) {
	fields, _, err := message(value)
	for _, f := range []string{"block_number", "block_hash", "block_timestamp"} {
		delete(fields, f)
	}
	return fields, err
}

// message is an entity's message; nil: there is none.
func message(value []byte) (fields map[string]any, block uint64, err error) {
	if value == nil {
		return nil, 0, nil
	}
	text, err := topics.Text(topics.KindEntity, value)
	if err != nil {
		return nil, 0, err
	}
	b, err := json.Marshal(text)
	if err != nil {
		return nil, 0, err
	}
	var m struct{ Value map[string]any }
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, 0, err
	}
	number, ok := m.Value["block_number"].(float64)
	if !ok {
		return nil, 0, fmt.Errorf("%s has no block", b)
	}
	return m.Value, uint64(number), nil
}

// latest reads a topic to its end: the newest value of each key.
func (o *outside) latest(ctx context.Context, topic string) (map[string][]byte, error) {
	rows := map[string][]byte{}
	err := o.read(ctx, []string{topic}, func(r *kgo.Record) {
		switch {
		case r.Attrs.IsControl():
		case r.Value == nil:
			delete(rows, string(r.Key))
		default:
			rows[string(r.Key)] = r.Value
		}
	})
	return rows, err
}

// read passes all records of topics to take, markers of transactions too, up to their ends.
func (o *outside) read(ctx context.Context, names []string, take func(*kgo.Record), opts ...kgo.Opt) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type partition struct {
		topic  string
		number int32
	}
	left, from := map[partition]int64{}, map[string]map[int32]kgo.Offset{}
	for _, name := range names {
		ends, err := o.ends(ctx, name)
		if err != nil {
			return err
		}
		from[name] = map[int32]kgo.Offset{}
		for p, end := range ends {
			if from[name][p] = kgo.NewOffset().AtStart(); end > 0 {
				left[partition{name, p}] = end
			}
		}
	}
	c, err := o.client(append(opts, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	if err != nil {
		return err
	}
	defer c.Close()
	for len(left) > 0 {
		fetched := c.PollFetches(ctx)
		if err := errors.Join(fetched.Err(), ctx.Err()); err != nil {
			return fmt.Errorf("read %s: %w", strings.Join(names, ", "), err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			if at := (partition{r.Topic, r.Partition}); r.Offset >= left[at]-1 {
				delete(left, at)
			}
			take(r)
		})
	}
	return nil
}

// sizes are the bytes of all topics on disk.
func (o *outside) sizes(ctx context.Context) (map[string]float64, error) {
	dirs, err := o.admin.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return nil, err
	}
	sizes := map[string]float64{}
	dirs.Each(func(d kadm.DescribedLogDir) {
		err = errors.Join(err, d.Err)
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) { sizes[p.Topic] += float64(p.Size) })
	})
	return sizes, err
}

// volume is what topics hold, as the broker keeps it.
type volume struct {
	mu                                   sync.Mutex
	records, batches, uncompressed, size float64 // sizes in bytes
}

// batchHeader is what a batch has before its records.
const batchHeader = 61

// OnFetchBatchRead counts a batch.
func (v *volume) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.records, v.batches = v.records+float64(m.NumRecords), v.batches+1
	v.uncompressed, v.size = v.uncompressed+float64(m.UncompressedBytes+batchHeader), v.size+float64(m.CompressedBytes+batchHeader)
}

// volume reads the topics whose names begin so, but for one. Nothing of them may have been compacted yet.
func (o *outside) volume(ctx context.Context, prefix, but string) (*volume, error) {
	all, err := o.admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(all.Names(), func(n string) bool { return !strings.HasPrefix(n, prefix) || n == but })
	v := &volume{}
	return v, o.read(ctx, names, func(*kgo.Record) {}, kgo.WithHooks(v))
}
