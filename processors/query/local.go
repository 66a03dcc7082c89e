package query

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/lienstream/lienstream/processors/state"
	"github.com/lienstream/lienstream/topics"
)

// asker answers for partitions: a node, here or elsewhere.
type asker interface {
	ask(ctx context.Context, r *request) (*answer, error)
}

// local answers from the partitions that this process holds. It is also what the handler serves.
type local struct{ source Source }

func (l local) ask(ctx context.Context, r *request) (*answer, error) {
	if r.Op == opWatermarks {
		return &answer{Watermarks: l.watch(ctx, r)}, nil
	}
	// Before the views: what the answer says of its age must not be better than the truth.
	held := l.source.Watermarks()
	marks := make([]Watermark, 0, len(r.Partitions))
	for _, p := range r.Partitions {
		i := slices.IndexFunc(held, func(w Watermark) bool { return w.Partition == p })
		if i < 0 {
			return nil, &lackingError{p, fmt.Errorf("partition %d is not here: %w", p, ErrUnavailable)}
		}
		marks = append(marks, held[i])
	}

	views := make([]state.View, 0, len(r.Partitions))
	defer func() {
		for _, v := range views {
			v.Close()
		}
	}()
	var at *topics.BlockRef
	if r.Pinned {
		at = &r.At
	}
	for _, p := range r.Partitions {
		v, err := l.source.View(ctx, p, at)
		if err != nil {
			return nil, &lackingError{p, fmt.Errorf("view of partition %d: %w", p, err)}
		}
		views = append(views, v)
	}
	if err := l.align(ctx, r.Partitions, views); err != nil {
		return nil, err
	}
	items, err := l.read(views, r)
	if err != nil {
		return nil, err
	}
	return &answer{At: views[0].At(), Watermarks: marks, Items: items}, nil
}

// watch returns the watermarks once they are not those that the caller has seen, or it has waited for long.
func (l local) watch(ctx context.Context, r *request) []Watermark {
	timeout := time.NewTimer(r.Wait)
	defer timeout.Stop()
	for {
		moved := l.source.Moved()
		held := l.source.Watermarks()
		if r.Wait == 0 || digest(held) != r.Seen {
			return held
		}
		select {
		case <-moved:
		case <-timeout.C:
			return l.source.Watermarks()
		case <-ctx.Done():
			return held
		}
	}
}

// digest is of where the watermarks are, in whatever order. What is known of the chain beyond them, and when it
// was seen, is no part of it: that changes all the time.
func digest(marks []Watermark) (sum uint64) {
	var b []byte
	for i := range marks {
		w := &marks[i]
		b = append(b[:0], w.Role...)
		b = append(b, w.At.Hash[:]...)
		for _, n := range []uint64{uint64(w.Partition), uint64(w.Incarnation), w.At.Number, w.Reverts} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		sum += xxhash.Sum64(b)
	}
	return sum
}

func (l local) read(views []state.View, r *request) ([]item, error) {
	if r.Op == opChanges {
		return l.readChanges(views, r)
	}
	return read(views, r)
}

// align makes all views of one block: of the lowest among them.
func (l local) align(ctx context.Context, partitions []int32, views []state.View) error {
	lowest := views[0].At()
	for _, v := range views[1:] {
		if at := v.At(); at.Number < lowest.Number {
			lowest = at
		}
	}
	for i, p := range partitions {
		if views[i].At().Hash == lowest.Hash {
			continue
		}
		v, err := l.source.View(ctx, p, &lowest)
		if err != nil {
			return &lackingError{p, fmt.Errorf("view of partition %d at block %d: %w", p, lowest.Number, err)}
		}
		views[i].Close()
		views[i] = v
	}
	return nil
}

// lackingError says which partition a node could not open; others that it was asked for, it may have.
type lackingError struct {
	partition int32
	err       error
}

func (e *lackingError) Error() string { return e.err.Error() }
func (e *lackingError) Unwrap() error { return e.err }
