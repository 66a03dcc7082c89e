package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics/kafka"
)

// errCompacted: the changelog was compacted ahead of a reader, so commits that it has not read yet are
// incomplete. Reading on to the former end is safe; publishing a state before that is not.
var errCompacted = errors.New("changelog was compacted ahead of the reader")

// restoreBytes is the batch size for restoring into a store that is not empty.
const restoreBytes = 1 << 20

// restorer applies a changelog to a store. Into an empty store it loads only the last version of each row.
//
// Invariants:
//  1. the stored position is never ahead of the rows: later records are applied again;
//  2. after a progress record the store may be published if every commit since the last published state was
//     complete;
//  3. compaction keeps the newest progress record and the newest version of each entry. So an open record may
//     follow entries without a progress record in between; a later progress record completes them. But an
//     owner starts after a progress record: entries that none completes before its own open record belong to
//     no commit, and the state they lead to is unknown.
type restorer struct {
	r        *replica
	instance string // of this node
	pos      position
	overlay  *state.Overlay
	load     *state.Load // used instead of the overlay until the first flush, if the store was empty
	turn     *turn       // permission to load

	read            *kafka.PartitionReader
	records, unread []*kafka.Record // the last records read, and those of them not yet applied
	seen            uint64          // entries since the last progress record
	torn            bool            // a commit was incomplete: compaction removed records of it
	began           int64           // offset from which on it applies
	incarnation     int64           // of the last progress record, of whatever generation
	applied         int
	others          bool // passed an open record of another node
}

// newRestorer makes a restorer for an open store, starting at the store's position. Among those that load, the
// lowest rank goes first. Close it.
func (n *Node) newRestorer(r *replica, pos position, rank int) (*restorer, error) {
	s := &restorer{r: r, instance: n.cfg.Instance, pos: pos, began: pos.Changelog, incarnation: pos.Progress.Incarnation, overlay: r.store.NewOverlay(), turn: &turn{of: n.loads, rank: rank}}
	meta, err := r.store.Meta()
	if err == nil && meta == nil {
		s.load, err = r.store.Load()
	}
	if err != nil {
		return nil, err
	}
	if s.read, err = n.consumer.Open(n.changelog, r.partition, pos.Changelog); err != nil {
		s.endLoad()
		return nil, err
	}
	return s, nil
}

func (s *restorer) close() {
	s.read.Close()
	s.endLoad()
}

func (s *restorer) endLoad() {
	s.turn.end()
	if s.load != nil {
		_ = s.load.Close() // leftover files are removed when the store is opened
		s.load = nil
	}
}

type changelogKind int

const (
	entryRecord changelogKind = iota
	progressRecord
	openRecord
)

// apply applies a record.
func (s *restorer) apply(ctx context.Context, rec *kafka.Record) (kind changelogKind, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("changelog %s/%d offset %d: %w", rec.Topic, rec.Partition, rec.Offset, err)
		}
	}()
	if bytes.Equal(rec.Key, keyOpen) {
		// An open record has only its position. If a commit is still open before it, compaction removed that
		// commit's progress.
		s.torn = s.torn || s.seen > 0
		s.others = s.others || string(rec.Value) != s.instance
		s.advance(rec)
		return openRecord, nil
	}
	var payload []byte
	if rec.Value != nil {
		var generation uint64
		if generation, payload, err = unseal(rec.Key, rec.Value); err != nil {
			return 0, err
		}
		if generation < s.pos.Generation {
			return 0, fmt.Errorf("%w: generation %d after %d", errChangelog, generation, s.pos.Generation)
		}
		if generation > s.pos.Generation {
			if err := s.clear(generation); err != nil {
				return 0, err
			}
		}
	}
	switch {
	case bytes.Equal(rec.Key, keyProgress):
		kind = progressRecord
		p, above, err := decodeProgress(payload)
		if err != nil {
			return 0, err
		}
		if began := rec.Offset - int64(p.Records); began < above {
			return 0, fmt.Errorf("%w: a commit began at offset %d on top of records up to %d, which the changelog has lost, or did not copy", errChangelog, began, above)
		}
		if p.App > s.r.version {
			return 0, fmt.Errorf("%w: written by version %d of the application, this build has %d", state.ErrNewer, p.App, s.r.version)
		}
		if err := s.follows(rec, p); err != nil {
			return 0, err
		}
		s.torn = s.torn || s.seen != min(p.Records, uint64(max(rec.Offset-s.began, 0))) // a former life has applied what is before
		s.seen = 0
		s.pos.Progress = p
	default:
		s.seen++
		s.applied++
		restore := s.overlay.Restore
		if s.load != nil {
			restore = s.load.Restore
		}
		if err := restore(rec.Key, payload); err != nil {
			return 0, err
		}
	}
	s.advance(rec)
	if s.overlay.Bytes() >= restoreBytes {
		err = s.flush(ctx)
	}
	return kind, err
}

// follows checks that progress is of the same owner as what was applied, or of one that began after it. If it is not, the
// changelog lost its end and has grown again: other records were at offsets that the state has passed. Leader epochs do not
// tell an owner, because it does not learn those of what it writes. Open records do not count: the state may have passed that of
// the owner whose progress comes next.
func (s *restorer) follows(rec *kafka.Record, p progress) error {
	began := p.Incarnation
	if began == 0 {
		began = p.Rebuild.Begin // a rebuild's first progress comes before its open record
	}
	if p.Incarnation != s.incarnation && began < s.pos.Since {
		return fmt.Errorf("%w: progress of the owner that began at offset %d, but the state already has offset %d, of the owner that began at %d: the changelog has lost its end", errChangelog, began, s.pos.Since, s.incarnation)
	}
	s.pos.Since, s.incarnation = rec.Offset+1, p.Incarnation
	return nil
}

// same checks that a state that has come to the changelog's end has the progress that is there: no record follows that would tell.
func (s *restorer) same(last life) error {
	if s.pos.Changelog != last.end+1 || last.progress == s.pos.Progress {
		return nil
	}
	return fmt.Errorf("%w: its last progress, at most at offset %d, is of the owner that began at offset %d, at block %d, but that of the state is of the owner that began at %d, at block %d", errChangelog, last.end,
		last.progress.Incarnation, last.progress.At.Number, s.pos.Progress.Incarnation, s.pos.Progress.At.Number)
}

func (s *restorer) advance(rec *kafka.Record) {
	s.pos.Changelog = rec.Offset + 1
	if s.pos.Read, s.pos.Epoch = 0, rec.LeaderEpoch; rec.LeaderEpoch >= 0 {
		s.pos.Read = s.pos.Changelog
	}
	s.pos.WrittenMs = max(s.pos.WrittenMs, rec.Timestamp.UnixMilli())
}

// clear drops what an older generation wrote.
func (s *restorer) clear(generation uint64) error {
	former := s.pos
	s.pos = unopened()
	s.pos.Generation, s.pos.Changelog, s.pos.WrittenMs, s.pos.Log, s.pos.Since = generation, former.Changelog, former.WrittenMs, former.Log, former.Since
	s.pos.Read, s.pos.Epoch = former.Read, former.Epoch
	s.overlay, s.seen = s.r.store.NewOverlay(), 0
	if s.load != nil {
		return s.load.Clear()
	}
	return s.r.write(func() error { return s.r.store.Clear(s.pos.encode()) })
}

// flush writes the applied records together with the position.
func (s *restorer) flush(ctx context.Context) error {
	if s.load != nil {
		err := s.r.write(func() error { return s.load.Commit(ctx, s.pos.encode()) })
		s.endLoad()
		return err
	}
	err := s.r.write(func() error { return s.r.store.Commit(s.overlay, s.pos.encode()) })
	s.overlay = s.r.store.NewOverlay()
	return err
}

// poll reads on. A load waits for its turn, and releases it while there are no records.
func (s *restorer) poll(ctx context.Context, records []*kafka.Record) ([]*kafka.Record, error) {
	if s.load == nil {
		return s.next(ctx, records)
	}
	if err := s.turn.begin(ctx); err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, idleTurn)
	defer cancel()
	records, err := s.next(short, records)
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return records, err
	}
	s.turn.end()
	if records, err = s.next(ctx, records); err != nil {
		return records, err
	}
	return records, s.turn.begin(ctx)
}

// next waits for records of the changelog.
func (s *restorer) next(ctx context.Context, records []*kafka.Record) ([]*kafka.Record, error) {
	s.r.await()
	records, err := s.read.Poll(ctx, records)
	if err == nil {
		s.r.heard()
	}
	return records, err
}

// until applies the changelog up to the record at an offset, or up to the first one after it if that is gone.
func (s *restorer) until(ctx context.Context, end int64) error {
	for s.pos.Changelog <= end {
		if err := s.fill(ctx); err != nil {
			return err
		}
		if err := s.applyWhile(ctx, func() bool { return s.pos.Changelog <= end }); err != nil {
			return err
		}
	}
	return s.flush(ctx)
}

// fill waits for records, unless some are left.
func (s *restorer) fill(ctx context.Context) (err error) {
	if len(s.unread) == 0 {
		s.records, err = s.poll(ctx, s.records)
		s.unread = s.records
	}
	return err
}

// applyWhile applies what was read.
func (s *restorer) applyWhile(ctx context.Context, wanted func() bool) error {
	return s.r.write(func() error {
		for len(s.unread) > 0 && wanted() {
			if _, err := s.apply(ctx, s.unread[0]); err != nil {
				return err
			}
			s.unread = s.unread[1:]
		}
		return nil
	})
}

// awaitRelease applies the changelog until its progress names no joint ID, or short is done.
func (s *restorer) awaitRelease(ctx, short context.Context) error {
	joint := func() bool { return s.pos.Progress.Writer != "" }
	for joint() {
		if err := s.fill(short); short.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			return err
		}
		if err := s.applyWhile(ctx, joint); err != nil {
			return err
		}
	}
	return nil
}

// The end of the changelog is looked up again at most this often, while at least this many records were added
// meanwhile.
const (
	catchUpRounds = 4
	catchUpNear   = 1000
)

// catchUp applies the changelog up to its current end, while the owner keeps writing.
func (s *restorer) catchUp(ctx context.Context, n *Node) error {
	for range catchUpRounds {
		s.r.await()
		asOf := time.Now()
		end, err := n.lastOffset(ctx, n.changelog, s.r.partition)
		if err == nil {
			s.r.heard()
		}
		if err != nil || end < max(s.pos.Changelog, 0) {
			s.endLoad() // nothing to load: once the owner is fenced, do not wait for a turn
			return err
		}
		from := s.pos.Changelog
		if err := s.until(ctx, end); err != nil {
			return err
		}
		// All tombstones up to now were seen, however old the records are.
		s.pos.WrittenMs = max(s.pos.WrittenMs, asOf.UnixMilli())
		if err := s.flush(ctx); err != nil {
			return err
		}
		if from >= 0 && s.pos.Changelog-from < catchUpNear {
			return nil
		}
	}
	return nil
}

// finish applies the rest up to our own open record. Everything committed before lies before it, and nothing of
// a former owner comes after it, once the joint ID that is named last before it is silent. Where another one was silenced, it
// writes another open record.
func (s *restorer) finish(ctx context.Context, t *task, silent string) error {
	for {
		if s.pos.Changelog > t.incarnation {
			return fmt.Errorf("%w: the changelog ends at offset %d, but the state is at offset %d", ErrBroken, t.incarnation, s.pos.Changelog)
		}
		if err := s.until(ctx, t.incarnation); err != nil {
			return err
		}
		writer := s.pos.Progress.Writer
		if t.commands != nil || writer == "" || writer == silent {
			break
		}
		if err := t.n.joint.silence(ctx, writer); err != nil {
			return fmt.Errorf("fence the former owner: %w", err)
		}
		silent = writer
		if err := t.open(ctx); err != nil {
			return err
		}
	}
	last, err := t.still(ctx)
	if err != nil {
		return err
	}
	if s.seen > 0 {
		return fmt.Errorf("%w: %d entries without a progress record before our open record at offset %d", errChangelog, s.seen, t.incarnation)
	}
	return s.same(last)
}
