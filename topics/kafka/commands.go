package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lienstream/lienstream/topics"
)

// The commands `lienstream topics apply|check|tail`, without their flags.

// ErrDrift: the brokers' topics differ from the catalogue.
var ErrDrift = errors.New("topics differ from the catalogue")

// ApplyCatalogue provisions every topic of the catalogue and reports on w. ErrDrift: a difference cannot be
// corrected.
func ApplyCatalogue(ctx context.Context, cfg Config, cat topics.Catalogue, w io.Writer) error {
	admin, err := NewAdmin(cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.Apply(ctx, cat.Topics()); err != nil {
		return err
	}
	for _, t := range cat.Topics() {
		cleanup := "delete"
		if t.Compacted {
			cleanup = "compact"
		}
		if _, err := fmt.Fprintf(w, "%-50s %3d partitions  %-8s key: %s\n", t.Name(), t.Partitions, cleanup, t.Key); err != nil {
			return err
		}
	}
	return admin.mustAgree(ctx, cat)
}

// CheckCatalogue compares the brokers' topics with the catalogue. ErrDrift lists every difference. A role calls
// it before it starts.
func CheckCatalogue(ctx context.Context, cfg Config, cat topics.Catalogue) error {
	admin, err := NewAdmin(cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.mustAgree(ctx, cat)
}

func (a *Admin) mustAgree(ctx context.Context, cat topics.Catalogue) error {
	return drifted(a.Check(ctx, cat.Topics()))
}

func drifted(drift []Drift, err error) error {
	if err != nil {
		return err
	}
	if len(drift) == 0 {
		return nil
	}
	lines := make([]string, len(drift))
	for i, d := range drift {
		lines[i] = "  " + d.String()
	}
	return fmt.Errorf("%w:\n%s", ErrDrift, strings.Join(lines, "\n"))
}

// CheckBrokers compares what brokers keep for themselves, of transactions and of groups, with the replication of the topics. One
// that loses those on the death of a disk forgets who may commit. ErrDrift lists every difference; only the brokers' operator can
// correct one, so no role refuses to start over it.
func CheckBrokers(ctx context.Context, cfg Config) error {
	admin, err := NewAdmin(cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	return drifted(admin.checkInternal(ctx))
}

// TailOptions say what Tail prints.
type TailOptions struct {
	Topic      string // full name, or "<kind>.<entity>" of the catalogue
	Partitions []int32
	From       int64 // offset to start at in each partition; negative: that many records before its end
	Limit      int   // total number of records; 0: no limit
	Follow     bool  // keep printing new records
}

// line is what Tail prints of a record.
type line struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Timestamp time.Time `json:"timestamp"`
	Key       any       `json:"key"`
	Value     any       `json:"value"`
	Error     string    `json:"error,omitempty"`
}

// Tail prints the committed records of a topic to w, one JSON object per line. Without Follow it stops at the
// end as of its start.
func Tail(ctx context.Context, cfg Config, cat topics.Catalogue, opt TailOptions, w io.Writer) error {
	topic, err := tailTopic(cat, opt.Topic)
	if err != nil {
		return err
	}
	positions, err := tailPositions(ctx, cfg, topic, opt)
	if err != nil {
		return err
	}
	if !opt.Follow {
		for p, pos := range positions {
			if pos.from >= pos.end {
				delete(positions, p)
			}
		}
	}
	if len(positions) == 0 {
		return nil
	}
	consume := map[int32]kgo.Offset{}
	for p, pos := range positions {
		consume[p] = kgo.NewOffset().At(pos.from)
	}
	cl, conns, err := cfg.client("tail", nil,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: consume}),
		kgo.KeepControlRecords(), // a transaction ends with a control record: without it the end offset would never be reached
	)
	if err != nil {
		return err
	}
	defer closeClient(cl, conns)
	rewrite := newRewriter(cfg.SchemaIDs)
	out := json.NewEncoder(w)
	kind := topics.KindOf(topic)
	for printed := 0; len(positions) > 0; {
		fetches, err := tailPoll(ctx, cl, opt.Follow, cfg.Timeout)
		if err != nil {
			return err
		}
		if fetches.Empty() && !opt.Follow {
			return nil // the remaining records were aborted
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			pos := positions[r.Partition]
			if !opt.Follow && r.Offset >= pos.end-1 {
				delete(positions, r.Partition)
			}
			if r.Attrs.IsControl() || !opt.Follow && r.Offset >= pos.end {
				continue
			}
			rewrite.incoming(r)
			if err := out.Encode(tailLine(kind, r)); err != nil {
				return err
			}
			if printed++; printed == opt.Limit {
				return nil
			}
		}
	}
	return nil
}

// tailPoll waits for records: forever with follow, otherwise as long as a broker may take to respond.
func tailPoll(ctx context.Context, cl *kgo.Client, follow bool, timeout time.Duration) (kgo.Fetches, error) {
	poll, cancel := ctx, context.CancelFunc(func() {})
	if !follow {
		poll, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	fetches := cl.PollFetches(poll)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if poll.Err() != nil {
		return nil, nil
	}
	for _, e := range fetches.Errors() {
		return nil, fmt.Errorf("fetch %s/%d: %w", e.Topic, e.Partition, classify(e.Err))
	}
	return fetches, nil
}

func tailLine(kind topics.Kind, r *Record) line {
	l := line{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UTC(), Key: topics.TextKey(r.Key)}
	var err error
	if l.Value, err = topics.Text(kind, r.Value); err != nil {
		l.Error = err.Error()
	}
	return l
}

// tailTopic finds the topic in the catalogue by its name or by "<kind>.<entity>".
func tailTopic(cat topics.Catalogue, name string) (string, error) {
	if _, ok := cat.FindName(name); ok {
		return name, nil
	}
	kind, entity, _ := strings.Cut(name, ".")
	if t, ok := cat.Find(topics.Kind(kind), entity); ok {
		return t.Name(), nil
	}
	var known []string
	for _, t := range cat.Topics() {
		known = append(known, fmt.Sprintf("%s.%s", t.Kind, t.Entity))
	}
	return "", fmt.Errorf("topic %q is not in the catalogue: %s", name, strings.Join(known, ", "))
}

// span is the range of offsets to read of a partition.
type span struct{ from, end int64 }

func tailPositions(ctx context.Context, cfg Config, topic string, opt TailOptions) (map[int32]span, error) {
	admin, err := NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	starts, ends, err := admin.bounds(ctx, topic)
	if err != nil {
		return nil, err
	}
	positions := map[int32]span{}
	wanted := opt.Partitions
	if len(wanted) == 0 {
		for p := range ends {
			wanted = append(wanted, p)
		}
	}
	for _, p := range wanted {
		end, ok := ends[p]
		if !ok {
			return nil, fmt.Errorf("topic %s has no partition %d", topic, p)
		}
		from := opt.From
		if from < 0 {
			from += end
		}
		positions[p] = span{from: min(max(from, starts[p]), end), end: end}
	}
	return positions, nil
}

// bounds returns the first offset of every partition and the offset after its last record, including
// transactions whose markers the partition does not have yet: a broker confirms a commit before it has written
// them.
func (a *Admin) bounds(ctx context.Context, topic string) (starts, ends map[int32]int64, err error) {
	starts, ends = map[int32]int64{}, map[int32]int64{}
	err = a.call(ctx, func(ctx context.Context) error {
		s, err := a.adm.ListStartOffsets(ctx, topic)
		if err != nil {
			return err
		}
		e, err := a.adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		if err := errors.Join(s.Error(), e.Error()); err != nil {
			return err
		}
		for p, o := range s[topic] {
			starts[p] = o.Offset
		}
		for p, o := range e[topic] {
			ends[p] = o.Offset
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("offsets of %s: %w", topic, err)
	}
	return starts, ends, nil
}
