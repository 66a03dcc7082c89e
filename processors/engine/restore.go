package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics/kafka"
)

// errCompacted means that the changelog was compacted ahead of a reader: commits that it has not read yet
// are no longer whole. Reading on to what was the end is right; showing what lies between is not.
var errCompacted = errors.New("changelog was compacted ahead of the reader")

// restoreBytes is how much of a changelog goes into one batch of a store that has something already.
const restoreBytes = 1 << 20

// restorer applies a changelog to a store. An empty one is loaded: only the last version of a row is ever written.
//
// Invariants:
//  1. what the store says of its position is never ahead of its rows: what follows is applied again;
//  2. after a progress record the store may be shown if every commit since the last shown point was whole;
//  3. compaction keeps the newest progress of what it has cleaned, and the newest version of each entry where
//     that was written. So entries may stand before an open record with no progress between: a later one ends
//     them. An owner begins behind a progress record all the same: entries that none ends before its own
//     open record are nobody's commit, and what they would change is not known.
type restorer struct {
	r       *replica
	pos     position
	overlay *state.Overlay
	load    *state.Load // instead, until the first flush of a store that was empty
	turn    *turn       // to load

	read            *kafka.PartitionReader
	records, unread []*kafka.Record // that were read last, and what of them is not applied
	seen            uint64          // entries that no progress has ended yet
	torn            bool            // a commit was not whole: compaction took records of it
	applied         int
}

// newRestorer makes one for an open store, which reads on from where that is. Of those that load, the one with the
// lowest rank goes first. Close it.
func (n *Node) newRestorer(r *replica, pos position, rank int) (*restorer, error) {
	s := &restorer{r: r, pos: pos, overlay: r.store.NewOverlay(), turn: &turn{of: n.loads, rank: rank}}
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
		_ = s.load.Close() // what it leaves goes when the store is opened
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
		// It says nothing but where it is. What a commit left open before it, compaction took the progress of.
		s.torn = s.torn || s.seen > 0
		s.advance(rec)
		return openRecord, nil
	}
	var payload []byte
	if rec.Value != nil {
		var epoch uint64
		if epoch, payload, err = unseal(rec.Key, rec.Value); err != nil {
			return 0, err
		}
		if epoch < s.pos.Epoch {
			return 0, fmt.Errorf("%w: epoch %d after %d", errChangelog, epoch, s.pos.Epoch)
		}
		if epoch > s.pos.Epoch {
			if err := s.clear(epoch); err != nil {
				return 0, err
			}
		}
	}
	switch {
	case bytes.Equal(rec.Key, keyProgress):
		kind = progressRecord
		p, err := decodeProgress(payload)
		if err != nil {
			return 0, err
		}
		if p.App > s.r.version {
			return 0, fmt.Errorf("%w: written by version %d of the application, this build has %d", state.ErrNewer, p.App, s.r.version)
		}
		s.torn = s.torn || p.Records != s.seen
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

func (s *restorer) advance(rec *kafka.Record) {
	s.pos.Changelog = rec.Offset + 1
	s.pos.WrittenMs = max(s.pos.WrittenMs, rec.Timestamp.UnixMilli())
}

// clear drops what an older epoch wrote.
func (s *restorer) clear(epoch uint64) error {
	former := s.pos
	s.pos = unopened()
	s.pos.Epoch, s.pos.Changelog, s.pos.WrittenMs, s.pos.Log = epoch, former.Changelog, former.WrittenMs, former.Log
	s.overlay, s.seen = s.r.store.NewOverlay(), 0
	if s.load != nil {
		return s.load.Clear()
	}
	return s.r.write(func() error { return s.r.store.Clear(s.pos.encode()) })
}

// flush writes what was applied, and the position with it.
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

// poll reads on. A load waits for its turn, and gives it back while nothing comes.
func (s *restorer) poll(ctx context.Context, records []*kafka.Record) ([]*kafka.Record, error) {
	if s.load == nil {
		return s.read.Poll(ctx, records)
	}
	if err := s.turn.begin(ctx); err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, idleTurn)
	defer cancel()
	records, err := s.read.Poll(short, records)
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return records, err
	}
	s.turn.end()
	if records, err = s.read.Poll(ctx, records); err != nil {
		return records, err
	}
	return records, s.turn.begin(ctx)
}

// until applies the changelog up to the record at an offset, or the one behind it that has taken its place.
func (s *restorer) until(ctx context.Context, end int64) error {
	for s.pos.Changelog <= end {
		if len(s.unread) == 0 {
			var err error
			if s.records, err = s.poll(ctx, s.records); err != nil {
				return err
			}
			s.unread = s.records
		}
		err := s.r.write(func() error {
			for len(s.unread) > 0 && s.pos.Changelog <= end {
				if _, err := s.apply(ctx, s.unread[0]); err != nil {
					return err
				}
				s.unread = s.unread[1:]
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.flush(ctx)
}

// The end of the changelog is looked for again, so many times at most, while as many records as that have come meanwhile.
const (
	catchUpRounds = 4
	catchUpNear   = 1000
)

// catchUp applies the changelog up to what is its end, while the owner goes on writing it.
func (s *restorer) catchUp(ctx context.Context, n *Node) error {
	for range catchUpRounds {
		end, err := n.lastOffset(ctx, n.changelog, s.r.partition)
		if err != nil || end < max(s.pos.Changelog, 0) {
			s.endLoad() // there is nothing to load: once the owner is fenced, nobody waits for a turn
			return err
		}
		from := s.pos.Changelog
		if err := s.until(ctx, end); err != nil {
			return err
		}
		if from >= 0 && s.pos.Changelog-from < catchUpNear {
			return nil
		}
	}
	return nil
}

// finish applies what is left up to our own open record, which ends it: whatever was committed before lies before it,
// and nothing of a former owner comes after it.
func (s *restorer) finish(ctx context.Context, n *Node, open int64) error {
	if s.pos.Changelog > open {
		return fmt.Errorf("%w: the changelog ends at offset %d, but the state is at offset %d", ErrBroken, open, s.pos.Changelog)
	}
	if err := s.until(ctx, open); err != nil {
		return err
	}
	if err := n.still(ctx, s.r, open); err != nil {
		return err
	}
	if s.seen > 0 {
		return fmt.Errorf("%w: %d entries without a progress record before our open record at offset %d", errChangelog, s.seen, open)
	}
	return nil
}
