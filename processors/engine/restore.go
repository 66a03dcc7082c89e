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

// restoreBytes is how much of a changelog goes into one batch.
const restoreBytes = 1 << 20

// restorer applies a changelog to a store.
//
// Invariants:
//  1. pos is never ahead of the store: what follows pos.Changelog is applied again;
//  2. after a progress record the store may be shown if every commit since the last shown point was whole;
//  3. compaction keeps the newest progress of what it has cleaned, and the newest version of each entry where
//     that was written. So entries may stand before an open record with no progress between: a later one ends
//     them. An owner begins behind a progress record all the same: entries that none ends before its own
//     open record are nobody's commit, and what they would change is not known.
type restorer struct {
	r       *replica
	pos     position
	overlay *state.Overlay
	seen    uint64 // entries that no progress has ended yet
	torn    bool   // a commit was not whole: compaction took records of it
	applied int
}

func newRestorer(r *replica, pos position) *restorer {
	return &restorer{r: r, pos: pos, overlay: r.store.NewOverlay()}
}

type changelogKind int

const (
	entryRecord changelogKind = iota
	progressRecord
	openRecord
)

// apply applies a record.
func (s *restorer) apply(rec *kafka.Record) (kind changelogKind, err error) {
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
			return 0, fmt.Errorf("%w: version %d of the application, this build has %d", state.ErrNewer, p.App, s.r.version)
		}
		s.torn = s.torn || p.Records != s.seen
		s.seen = 0
		s.pos.Progress = p
	default:
		s.seen++
		s.applied++
		if err := s.overlay.Restore(rec.Key, payload); err != nil {
			return 0, err
		}
	}
	s.advance(rec)
	if s.overlay.Bytes() >= restoreBytes {
		err = s.flush()
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
	return s.r.write(func() error { return s.r.store.Clear(s.pos.encode()) })
}

func (s *restorer) flush() error {
	err := s.r.write(func() error { return s.r.store.Commit(s.overlay, s.pos.encode()) })
	s.overlay = s.r.store.NewOverlay()
	return err
}

// until applies the changelog from the store's position up to the offset of an open record, which ends it:
// whatever was committed before lies before it, and nothing of a former owner comes after it.
func (s *restorer) until(ctx context.Context, read *kafka.PartitionReader, open int64) error {
	var records []*kafka.Record
	for {
		var err error
		if records, err = read.Poll(ctx, records); err != nil {
			return err
		}
		for _, rec := range records {
			if _, err := s.apply(rec); err != nil {
				return err
			}
			switch {
			case rec.Offset < open:
			case s.seen > 0:
				return fmt.Errorf("%w: %d entries before our open record at offset %d that no progress ends", errChangelog, s.seen, open)
			default:
				return s.flush()
			}
		}
	}
}
