package ingest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics"
)

// Phase is the current activity of an ingester.
type Phase string

// The phases.
const (
	PhaseStarting Phase = "starting" // opening the topic, or between two sessions
	PhaseStandby  Phase = "standby"
	PhaseBackfill Phase = "backfill"
	PhaseFollow   Phase = "follow"
	PhaseStalled  Phase = "stalled" // no head, no commit, or nothing that is proved, for longer than ReadyAge
)

// Status is the progress of an ingester.
type Status struct {
	Phase     Phase
	Start     uint64          // the first block of the deployment
	Head      uint64          // of the chain
	Published topics.BlockRef // the last committed barrier
	Finalized uint64
	Verified  uint64    // the last block fetched and verified: progress in a range of empty blocks
	Records   uint64    // logs and probes committed by this process
	HeadAt    time.Time // when the last head was received
	CommitAt  time.Time // time of the last commit
	Unproved  []string  // what endpoints could not prove when the session began
	Disputed  string    // why the endpoints do not agree on a block; empty: they do
	Alone     string    // which of several endpoints alone decides what is final; empty: none does
	Unsigned  string    // which blocks have transactions whose hashes nothing proves; empty: none
	Unchecked string    // which contracts may have logs that the topic lacks; empty: none
	Bloomless string    // that the chain's bloom filters turned out to be of no use; empty: they did not
	Stuck     string    // which block does not come in, and why; empty: none
	Err       error     // of the last session that ended; Ready reports it while the next one starts

	StuckBlock uint64    // 0: none
	StuckAt    time.Time // since when
}

// lacks are the weaknesses of the endpoints, as barriers report them.
func (s Status) lacks() []string {
	all := slices.Clip(s.Unproved)
	for _, what := range []string{s.Stuck, s.Disputed, s.Alone, s.Unsigned, s.Bloomless, s.Unchecked} {
		if what != "" {
			all = append(all, what)
		}
	}
	return all
}

// Progress is the verified share of the chain, from 0 to 1.
func (s Status) Progress() float64 {
	if s.Head <= s.Start {
		return 1
	}
	return min(1, float64(max(s.Verified, s.Start)-s.Start)/float64(s.Head-s.Start))
}

// Status returns the current status.
func (in *Ingester) Status() Status {
	s := in.status.get()
	s.Start = in.cfg.Deployment.StartBlock
	stale := time.Since(s.HeadAt) > in.cfg.ReadyAge || time.Since(s.CommitAt) > in.cfg.ReadyAge ||
		s.Stuck != "" && time.Since(s.StuckAt) > in.cfg.ReadyAge
	if stale && s.Phase == PhaseFollow {
		s.Phase = PhaseStalled
	}
	return s
}

// Ready is nil while the last head and the last commit are younger than ReadyAge, and no block has waited longer for a
// proof. A standby is ready.
func (in *Ingester) Ready() error {
	s := in.Status()
	if s.Phase == PhaseFollow || s.Phase == PhaseStandby {
		return nil
	}
	err := fmt.Errorf("ingester is in phase %s: block %d of %d, last head %s, last commit %s",
		s.Phase, s.Published.Number, s.Head, age(s.HeadAt), age(s.CommitAt))
	if s.Stuck != "" {
		err = fmt.Errorf("%w: %s", err, s.Stuck)
	}
	if s.Phase == PhaseStarting && s.Err != nil {
		err = fmt.Errorf("%w: the last session ended: %w", err, s.Err)
	}
	return err
}

func age(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return time.Since(t).Round(time.Millisecond).String() + " ago"
}

// board holds the status: the session writes it, others read it.
type board struct {
	mu sync.Mutex
	s  Status
}

func (b *board) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.s.Phase == "" {
		b.s.Phase = PhaseStarting
	}
	return b.s
}

func (b *board) update(f func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.s)
}

func (b *board) phase(p Phase) { b.update(func(s *Status) { s.Phase = p }) }

func (b *board) stopped(err error) {
	b.update(func(s *Status) { s.Phase, s.Err = PhaseStarting, err })
}
