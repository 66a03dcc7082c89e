package simulation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// compareTopics compares the topics with the oracle's. What is shown at the tip is committed later, after faults up to
// commitWithin.
func (r *run) compareTopics(ctx context.Context) {
	want := r.oracle.topics[r.partitions][r.chain.head().Hex()]
	if len(want) == 0 {
		r.found("nothing is known of the topics", "as of the head %s", r.chain.head())
	}
	var held map[string]string
	var err error
	rows := r.judgesRows()
	defer func() { rows.tell() }()
	began, regrouped := time.Now(), false
	for end := began.Add(commitWithin); time.Now().Before(end); time.Sleep(time.Second) {
		rows = r.judgesRows()
		if held, err = r.committed(ctx, rows.add); err == nil && maps.Equal(held, want) {
			return
		}
		if !regrouped && time.Since(began) > rebalanceWithin {
			regrouped = true
			r.regroup(ctx)
		}
	}
	if err != nil {
		r.found("topics cannot be read", "%v", err)
		return
	}
	for topic, w := range want {
		if held[topic] != w {
			r.found("other records", "%s: %s, want %s", topic, held[topic], w)
		}
	}
}

// committed folds the committed records of topics, and hands each row of an entity on, a partition's newest first; nil: none.
// Events: those that stand, in order; final ones are the oldest of them. Entities: the latest row of each key, without the
// block that it names: that depends on what was committed together, and rowJudge judges it.
func (s *system) committed(ctx context.Context, row func(topics.Topic, *kafka.Record)) (map[string]string, error) {
	h, err := kafka.NewHistory(s.kafka())
	if err != nil {
		return nil, err
	}
	defer h.Close()
	folds, families := map[string]*fold{}, topics.EventFamilies()
	for _, t := range s.cat.Topics() {
		family, final := strings.CutSuffix(t.Entity, finalSuffix)
		for p := range t.Partitions {
			var f *fold
			switch {
			case t.Kind == topics.KindEvent && slices.Contains(families, family):
				f = events(final)
			case t.Kind == topics.KindEntity:
				f = s.rows(func(r *kafka.Record) {
					if row != nil {
						row(t, r)
					}
				})
			default:
				continue
			}
			err := h.ReadBack(ctx, t.Name(), p, 0, func(r *kafka.Record) bool {
				f.add(r)
				return true
			})
			if err != nil {
				return nil, err
			}
			folds[fmt.Sprintf("%s/%s/%d", t.Kind, t.Entity, p)] = f
		}
	}
	all := map[string]string{}
	for name, f := range folds {
		if of, final := strings.CutSuffix(name[:strings.LastIndexByte(name, '/')], finalSuffix); final {
			if told := folds[of+name[strings.LastIndexByte(name, '/'):]].stand; len(told) < len(f.stand) || !slices.Equal(told[len(told)-len(f.stand):], f.stand) {
				f.strange += ", which are not the oldest of those that follow the head"
			}
		}
		all[name] = f.String()
	}
	return all, nil
}

// finalSuffix ends the names of topics of final events.
const finalSuffix = ".final"

// fold is what a partition comes to, read from its newest record to its oldest.
type fold struct {
	add     func(*kafka.Record)
	records int
	sum     [sha256.Size]byte
	strange string          // what should not exist
	stand   []string        // keys of events that stand, newest first
	back    []*kafka.Record // events that were taken back, and have not come yet
}

func (f *fold) String() string {
	if len(f.back) > 0 {
		f.strange += fmt.Sprintf(", %s is taken back, and never came", f.back[0].Key)
	}
	return fmt.Sprintf("%d records %x%s", f.records, f.sum[:8], f.strange)
}

// events are a chain of all that stand. What is taken back is the newest that stands then, by the same record but for its last
// byte.
func events(final bool) *fold {
	f := &fold{}
	f.add = func(r *kafka.Record) {
		last := len(r.Value) - 1
		switch n := len(f.back) - 1; {
		case last < 0 || final && r.Value[last] != 0:
			f.strange = fmt.Sprintf(", %s is no event", r.Key)
		case r.Value[last] != 0:
			f.back = append(f.back, r)
		case n >= 0:
			if by := f.back[n]; !bytes.Equal(r.Key, by.Key) || !bytes.Equal(r.Value[:last], by.Value[:len(by.Value)-1]) {
				f.strange = fmt.Sprintf(", %s is taken back, and %s was the newest", by.Key, r.Key)
			}
			f.back = f.back[:n]
		default:
			f.records++
			f.sum = sha256.Sum256(fmt.Appendf(f.sum[:], "%x=%x", r.Key, r.Value))
			f.stand = append(f.stand, string(r.Key))
		}
	}
	return f
}

// keys are those of the records of a partition that were read so far, from its newest on.
type keys map[string]bool

// newest reports whether a record is the newest of its key, and no tombstone.
func (k keys) newest(r *kafka.Record) bool {
	was := k[string(r.Key)]
	k[string(r.Key)] = true
	return !was && len(r.Value) > 0
}

// rows are a sum over the newest record of each key.
func (s *system) rows(each func(*kafka.Record)) *fold {
	f, seen := &fold{}, keys{}
	f.add = func(r *kafka.Record) {
		each(r)
		if !seen.newest(r) {
			return
		}
		row, _, ok := s.blockOf(r.Value)
		if !ok {
			f.strange = fmt.Sprintf(", row %x of a block that never was", r.Key)
		}
		f.records++
		for i, b := range sha256.Sum256(fmt.Appendf(nil, "%x=%x", r.Key, row)) {
			f.sum[i] ^= b // in any order
		}
	}
	return f
}
