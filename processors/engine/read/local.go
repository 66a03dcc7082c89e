package read

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/topics"
)

// asker answers for partitions: this node or another one.
type asker interface {
	ask(ctx context.Context, r *nodeRequest) (*Response, error)
}

// local answers from the partitions of this process. The handler serves it too.
type local struct {
	source Source
	app    Application
}

// resolve finds the operation of a request from the network, and decodes its query.
func (l local) resolve(r *nodeRequest) (err error) {
	if r.Operation == watermarks {
		w := new(watch)
		if err := wire.Decode(r.Payload, w); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBadRequest, watermarks, err)
		}
		r.query = w
		if err := w.Validate(); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBadRequest, watermarks, err)
		}
		return nil
	}
	if r.op = l.app.find(r.Operation); r.op == nil {
		return fmt.Errorf("%w: operation %q", ErrBadRequest, r.Operation)
	}
	r.query, err = r.op.decode(r.Payload)
	return err
}

func (l local) ask(ctx context.Context, r *nodeRequest) (*Response, error) {
	if w, ok := r.query.(*watch); ok {
		return &Response{Watermarks: l.watch(ctx, w)}, nil
	}
	// Taken before the views, so that the response does not claim a state newer than it has.
	marks := make([]Watermark, 0, len(r.Partitions))
	for _, p := range r.Partitions {
		mark, ok := markOf(l.source, p)
		if !ok {
			return nil, &lackingError{p, fmt.Errorf("partition %d is not on this node: %w", p, ErrUnavailable)}
		}
		mark.Kept = nil // who reads does not ask for it
		marks = append(marks, mark)
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
	now, err := l.align(ctx, marks, views)
	if err != nil {
		return nil, err
	}
	items, err := r.op.serve(ctx, &Views{Source: l.source, Partitions: r.Partitions, Of: bounded(ctx, views)}, r.query)
	if err != nil {
		return nil, err
	}
	return &Response{Moment: now, Watermarks: marks, Items: items}, nil
}

// markOf is the watermark of one partition. False: the source cannot answer for it.
func markOf(s Source, p int32) (Watermark, bool) {
	if m, ok := s.(Marker); ok {
		return m.Watermark(p)
	}
	for _, w := range s.Watermarks() {
		if w.Partition == p {
			return w, true
		}
	}
	return Watermark{}, false
}

// watch returns the watermarks once they differ from those that the client has, or after the wait time.
func (l local) watch(ctx context.Context, w *watch) []Watermark {
	if k, ok := l.source.(Keeper); ok && w.Keep != (Point{}) {
		k.Keep(w.Keep)
	}
	timeout := time.NewTimer(w.Wait)
	defer timeout.Stop()
	for {
		moved := l.source.Moved()
		held := l.source.Watermarks()
		if w.Wait == 0 || digest(held) != w.Seen {
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

// digest identifies the blocks of the watermarks, in any order. The chain's head and its time are not included,
// because they change all the time.
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

// align moves all views to one block: the earliest of them.
func (l local) align(ctx context.Context, marks []Watermark, views []state.View) (Moment, error) {
	earliest := momentOf(views[0], &marks[0])
	for i, v := range views[1:] {
		if at := momentOf(v, &marks[i+1]); at.Before(earliest) {
			earliest = at
		}
	}
	for i := range views {
		if views[i].At().Hash == earliest.Block.Hash {
			continue
		}
		p := marks[i].Partition
		v, err := l.source.View(ctx, p, &earliest.Block)
		if err != nil {
			return earliest, &lackingError{p, fmt.Errorf("view of partition %d at block %d: %w", p, earliest.Block.Number, err)}
		}
		views[i].Close()
		views[i] = v
	}
	return earliest, nil
}

// lackingError names the partition that a node could not open; it may have the other requested ones.
type lackingError struct {
	partition int32
	err       error
}

func (e *lackingError) Error() string { return e.err.Error() }
func (e *lackingError) Unwrap() error { return e.err }
