package notifier

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/state"
)

var (
	dealsOf = &state.Table{ID: 3, Name: "deals"}  // wallet ‖ deal: an open deal, and the time of its timer
	clocks  = &state.Table{ID: 4, Name: "clocks"} // partition of the raw topic: its last tick
	timers  = &state.Table{ID: 5, Name: "timers"} // due ‖ wallet ‖ deal
)

// Stage is a moment of an open deal, or of an epoch, that triggers an alert; or a request to confirm an address.
type Stage uint8

// The stages in order of time. Their numbers are stored on disk.
const (
	Before48 Stage = iota
	Before24
	Before6
	Before1
	AtExpiry
	AtGraceEnd

	EpochOpen // of an epoch, not a deal
	Budget90
	Budget100

	ToConfirm // a request to confirm an address
)

var stages = []struct {
	name   string
	kind   Kind
	before uint64 // seconds before the expiry
}{{"t48", T48, 48 * 3600}, {"t24", T24, 24 * 3600}, {"t6", T6, 6 * 3600}, {"t1", T1, 3600}, {"expiry", Expiry, 0}, {"graceEnd", Expiry, 0}, {"epoch", EpochOpens, 0}, {"budget90", Budget, 0}, {"budget100", Budget, 0}, {"confirm", confirming, 0}}

// dealStages is the number of stages of a deal.
const dealStages = AtGraceEnd + 1

func (s Stage) String() string { return stages[s].name }

// OfDeal reports whether the stage is one of a deal. Anyone can cause any number of alerts of the other stages, at no
// cost.
func (s Stage) OfDeal() bool { return s < dealStages }

// OfNews reports whether the stage is one of an epoch, to which anyone may subscribe.
func (s Stage) OfNews() bool { return s >= EpochOpen && s <= Budget100 }

// Kind is the preference that the stage belongs to.
func (s Stage) Kind() Kind { return stages[s].kind }

// due is the time of a stage of a deal.
func (s Stage) due(d *Deal) uint64 {
	if s == AtGraceEnd {
		return d.GraceEnd
	}
	return d.Expiry - min(d.Expiry, stages[s].before)
}

// deadline is the time until which a party of the deal can act on an alert of the stage.
func (s Stage) deadline(t *Terms) uint64 {
	if s < AtExpiry {
		return t.Expiry
	}
	return t.GraceEnd
}

// Until is the block time from which an alert no longer helps: that of the next stage that the subscriber wants, or the
// deadline; for news the end of the epoch. 0: there is none. If the expiry has passed already it is the end of the
// grace period, in which a borrower can still act.
func (a *Alert) Until(wanted Prefs, now uint64) uint64 {
	switch {
	case a.News != nil:
		return a.News.EndsAt
	case a.Deal == nil || a.Stage >= AtGraceEnd:
		return 0
	}
	if a.Deal.Expiry <= now {
		return a.Deal.GraceEnd
	}
	for s := a.Stage + 1; s < dealStages; s++ {
		if due := s.due(a.Deal); wanted.Has(s.Kind()) && due > a.Due {
			return due
		}
	}
	return a.Stage.deadline(a.Deal.terms())
}

// openDeal is a row: a deal, its past stages, and the time of its timer. A deal that has ended, or whose
// funding was reverted, is kept until a reorg can no longer change that, so that alerts are not repeated.
type openDeal struct {
	Deal  Deal   `json:"deal"`
	After uint64 `json:"after"` // stages due up to then were fired, or never will be
	Ended uint64 `json:"ended,omitempty"`
	Armed uint64 `json:"armed,omitempty"` // time of the timer; 0: none

	// Published has a bit for each channel and stage whose alert of this funding was published. One that fires again,
	// because the chain's time went back, is not published again.
	Published uint32 `json:"published,omitempty"`

	// Former is the funding before this one: a reorg may bring it back.
	Former *funding `json:"former,omitempty"`

	json []byte // of Deal
}

// funding is the fields of openDeal that belong to one funding.
type funding struct {
	FundedAt  uint64 `json:"fundedAt"`
	Expiry    uint64 `json:"expiry"`
	After     uint64 `json:"after"`
	Published uint32 `json:"published,omitempty"`
}

// former is the funding that is kept while there is another one: of several that a reorg reverts, the last one.
func (d *openDeal) former() *funding {
	if d.Published == 0 && d.Former != nil {
		return d.Former
	}
	return &funding{d.Deal.FundedAt, d.Deal.Expiry, d.After, d.Published}
}

// party and dealOf are the parts of a deal's key.
func party(key []byte) common.Address { return common.Address(key) }

func dealOf(key []byte) common.Hash { return common.Hash(key[common.AddressLength:]) }

// read reads the row of a deal; a missing one is a zero value. It scans, because a scan reuses the iterator of the one
// before.
func (d *openDeal) read(w state.Writer, key []byte) error {
	var fault error
	err := w.Scan(dealsOf, key, nil, func(_, row []byte) bool {
		fault = d.decode(row)
		return false
	})
	return errors.Join(err, fault)
}

// publishes notes that an alert is published, and reports whether that is the first time.
func (d *openDeal) publishes(a Address) bool {
	bit := uint32(1) << (uint(a.Channel-Email)*uint(dealStages) + uint(a.Stage))
	was := d.Published
	d.Published |= bit
	return was != d.Published
}

// next is the next stage. Stages that were past when the deal was funded do not count.
func (d *openDeal) next() (stage Stage, due uint64, ok bool) {
	after := max(d.After, d.Deal.FundedAt)
	for s := range dealStages {
		if due := s.due(&d.Deal); due > after {
			return s, due, true
		}
	}
	return 0, 0, false
}

// last is the latest wanted stage up to a time.
func (d *openDeal) last(by uint64, wanted Prefs) (stage Stage, ok bool) {
	for s := range dealStages {
		if due := s.due(&d.Deal); due <= by && due > d.After && wanted.Has(s.Kind()) {
			stage, ok = s, true
		}
	}
	return stage, ok
}

// subject is a deal's ID as 32 bytes.
func subject(id string) (common.Hash, error) {
	n, err := uint256.FromDecimal(id)
	if err != nil {
		return common.Hash{}, err
	}
	return n.Bytes32(), nil
}

const timerKeyBytes = 8 + common.AddressLength + common.HashLength

func timerKey(due uint64, deal []byte) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, timerKeyBytes), due), deal...)
}

// endedSeconds is how long an ended deal is kept. No reorg goes back that far.
const endedSeconds = 24 * 3600

// fact updates a deal with the chain's state. Alerts of a deal that has ended are held, and so are those of another
// funding or another time, because a reorg may revert that. Stages that are due up to the block time of a funding are
// never fired, whatever times the funding names.
func (a *App) fact(w state.Writer, f *Fact, removed bool) error {
	id, err := subject(f.Deal.ID)
	if err != nil {
		return nil //nolint:nilerr // without a deal there are no parties to alert
	}
	key := slices.Concat(f.Wallet[:], id[:])
	var d openDeal
	if err := getRow(w, dealsOf, key, &d); err != nil {
		return err
	}
	if d.Armed != 0 {
		w.Delete(timers, timerKey(d.Armed, key))
		d.Armed = 0
	}
	known, open := d.Deal.ID != "", f.Deal.Open != removed // a retraction is the opposite
	var now uint64
	if known || removed || !open {
		if now, err = a.now(w); err != nil {
			return err
		}
	}
	if f.Deal.Expiry != d.Deal.Expiry || f.Deal.FundedAt != d.Deal.FundedAt {
		was := d
		d = openDeal{After: f.Deal.FundedAt} // the deal was funded again: no alert of it was sent
		if f.Deal.Open {
			d.After = max(d.After, f.At)
		}
		if known {
			d.Former = was.former()
		}
		switch before := was.Former; {
		case before != nil && before.FundedAt == f.Deal.FundedAt && before.Expiry == f.Deal.Expiry:
			d.After, d.Published = before.After, before.Published
		case removed: // or it ended so long ago that its row is gone
			d.After = now
		}
	}
	d.Deal = f.Deal
	d.Deal.Open = open
	d.json = d.Deal.encode()
	d.Ended = 0
	if !open { // the time of a block that a node made up may be any
		d.Ended = min(max(f.At, now), math.MaxUint64-endedSeconds) + endedSeconds
	}
	if known {
		if err := review(w, f.Wallet, id, &d.Deal, now); err != nil {
			return err
		}
	}
	arm(w, key, &d)
	return nil
}

// arm sets the timer of the next stage, and writes the row.
func arm(w state.Writer, key []byte, d *openDeal) {
	d.Armed = d.Ended
	if d.Ended == 0 {
		_, d.Armed, _ = d.next()
	}
	if d.Armed != 0 {
		w.Put(timers, timerKey(d.Armed, key), []byte{})
	}
	w.Put(dealsOf, key, d.appendRow(make([]byte, 0, len(d.json)+rowBytes)))
}

// clockRow is a row: the last tick of a partition of the raw topic, and when it came.
type clockRow struct {
	Tick
	Told int64 `json:"told,omitempty"` // unix milliseconds; older builds wrote none
}

// Clock is the notifier's progress.
type Clock struct {
	Time   uint64        // confirmed block time that all partitions of the raw topic have reached
	Told   time.Time     // time of the last tick, of the partition for which that is longest ago
	Heard  time.Time     // time of the last tick of any partition; zero: there was none, or from an older build
	Head   uint64        // estimated block time of the chain's head, from confirmed blocks and the number of blocks since
	Behind time.Duration // how far the applied blocks are behind the head, of the partition that is furthest behind
}

// oldTick is the delay from which a barrier shows that its partition is catching up. It is longer than clocks of two
// nodes differ.
const oldTick = 2 * time.Minute

// seen updates the head by a tick.
func (c *Clock) seen(t *Tick, told time.Time) {
	head := max(t.Head, t.Time)
	if t.Written != 0 {
		if old := told.Sub(time.UnixMilli(t.Written)); old > oldTick { // the chain went on meanwhile
			head += uint64(old / time.Second)
		}
	}
	c.Head = max(c.Head, head)
	if t.Applied != 0 {
		c.Behind = max(c.Behind, time.Duration(head-min(head, t.Applied))*time.Second)
	}
}

// ReadClock reads the clock of a partition of the notifier; zero: there was no tick yet.
func ReadClock(r state.View) (c Clock, err error) {
	var fault error
	first := true
	err = r.Scan(clocks, nil, nil, func(_, value []byte) bool {
		var row clockRow
		if fault = json.Unmarshal(value, &row); fault != nil {
			return false
		}
		told := time.UnixMilli(row.Told)
		if first || row.Time < c.Time {
			c.Time = row.Time
		}
		if first || told.Before(c.Told) {
			c.Told = told
		}
		if row.Told != 0 && told.After(c.Heard) {
			c.Heard = told
		}
		c.seen(&row.Tick, told)
		first = false
		return true
	})
	return c, errors.Join(err, fault)
}
