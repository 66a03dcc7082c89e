package notifier

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

const (
	maxFired  = 10_000 // deals that one tick fires: the next one continues
	fireBatch = 500    // deals that are read at a time
)

// again is the source of a tick that the notifier sends itself, to go on with what the last one has left. Older builds
// skip it.
const again = -1

// tick fires what is due at the time that all partitions of the raw topic have reached.
func (a *App) tick(w state.Writer, c *engine.Command, t *Tick) error {
	if t.From != again && (t.From < 0 || int(t.From) >= a.partitions) {
		return nil
	}
	before, now, err := a.times(w, t)
	if err != nil {
		return err
	}
	if t.From != again {
		row := clockRow{*t, c.Time.UnixMilli()}
		if err := putRow(w, clocks, sourceKey(int(t.From)), &row); err != nil {
			return err
		}
	}
	if now == 0 {
		return nil
	}
	if err := errors.Join(settleMore(w, c.Time), a.takeBack(w, before, now)); err != nil {
		return err
	}
	fired, more, err := a.fireDue(w, c, now)
	if err != nil {
		return err
	}
	if fired == 0 && t.From == 0 { // these can wait
		if err := errors.Join(forgetAsked(w, c.Time), forgetOutcomes(w, c.Time), forgetDead(w, c.Time)); err != nil {
			return err
		}
	}
	continued, err := continues(w, c.Time, t)
	if err != nil || continued {
		return err
	}
	untold, err := announce(w, c.Time, now)
	if err != nil {
		return err
	}
	return carryOn(w, c, more || untold)
}

// carriedOn is the row of tallies with the time, in unix seconds, at which the notifier sent itself a tick.
var carriedOn = []byte("again")

// lostAfter is the time after which such a tick counts as lost: an older build has skipped it.
const lostAfter = time.Minute

// continues reports whether such a tick is still to come. There is one at a time, so that other commands wait for one
// part only.
func continues(w state.Writer, at time.Time, t *Tick) (bool, error) {
	if t.From == again {
		return false, nil
	}
	var since int64
	err := getRow(w, tallies, carriedOn, &since)
	return since != 0 && at.Unix() < since+int64(lostAfter/time.Second), err
}

// carryOn sends another tick if there is more to do.
func carryOn(w state.Writer, c *engine.Command, more bool) error {
	if !more {
		was, err := w.Get(tallies, carriedOn)
		if was != nil {
			w.Delete(tallies, carriedOn)
		}
		return err
	}
	rest, err := (&Command{Tick: &Tick{From: again}}).Encode()
	if err != nil {
		return err
	}
	w.Emit(topics.CommandFamily(topics.AppNotifier), topics.Routed(c.Partition, nil), rest)
	return putRow(w, tallies, carriedOn, c.Time.Unix())
}

func sourceKey(partition int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(partition)) }

// now is the block time that all partitions have reached; 0: some have not sent a tick yet.
func (a *App) now(w state.Writer) (uint64, error) {
	now, _, err := a.times(w, &Tick{From: again})
	return now, err
}

// times is that block time before a tick and after it.
func (a *App) times(w state.Writer, t *Tick) (before, after uint64, err error) {
	before, after = math.MaxUint64, math.MaxUint64
	for p := range a.partitions {
		var was struct {
			Time uint64 `json:"time"`
		}
		if err := getRow(w, clocks, sourceKey(p), &was); err != nil {
			return 0, 0, err
		}
		before = min(before, was.Time)
		if p == int(t.From) {
			was.Time = t.Time
		}
		after = min(after, was.Time)
	}
	return before, after, nil
}

// fireDue fires the timers that have run out, as many as one tick may; more: others are left.
func (a *App) fireDue(w state.Writer, c *engine.Command, now uint64) (fired int, more bool, err error) {
	var due []byte // keys of the timers, one after the other
	err = w.Scan(timers, nil, nil, func(key, _ []byte) bool {
		if more = binary.BigEndian.Uint64(key) <= now && len(due) == a.most*timerKeyBytes; more || binary.BigEndian.Uint64(key) > now {
			return false
		}
		due = append(due, key...)
		return true
	})
	if err != nil {
		return 0, false, err
	}
	pending := 0
	batch := make([]dueDeal, min(len(due)/timerKeyBytes, fireBatch)) // reused for each batch
	for keys := range slices.Chunk(due, fireBatch*timerKeyBytes) {
		deals := batch[:len(keys)/timerKeyBytes]
		if err := readDue(w, keys, deals); err != nil {
			return 0, false, err
		}
		for i := range deals {
			n, err := deals[i].fire(w, c.Time, now)
			if err != nil {
				return 0, false, err
			}
			pending += n
		}
	}
	return len(due) / timerKeyBytes, more, count(w, pending, 0, c.Time)
}

// dueDeal is a deal whose timer has run out.
type dueDeal struct {
	openDeal
	timer  []byte
	wanted [Push + 1]preferences // by its party, unless the deal has ended
}

func (d *dueDeal) key() []byte { return d.timer[8:] }

// readDue reads the deals of timers in the order of their keys, which costs a fraction of that of the timers.
func readDue(w state.Writer, keys []byte, deals []dueDeal) error {
	sorted := make([]*dueDeal, len(deals))
	for i := range deals {
		deals[i] = dueDeal{timer: keys[i*timerKeyBytes:][:timerKeyBytes]}
		sorted[i] = &deals[i]
	}
	slices.SortFunc(sorted, func(a, b *dueDeal) int { return bytes.Compare(a.key(), b.key()) })
	for _, d := range sorted {
		if err := d.read(w, d.key()); err != nil {
			return err
		}
	}
	for i, d := range sorted {
		if i > 0 && sorted[i-1].Ended == 0 && party(sorted[i-1].key()) == party(d.key()) {
			d.wanted = sorted[i-1].wanted
			continue
		}
		if d.Ended != 0 {
			continue
		}
		var err error
		if d.wanted, err = wantedBy(w, party(d.key())); err != nil {
			return err
		}
	}
	return nil
}

// fire puts alerts of a deal into the outbox: for each channel the nearest stage of those that it asked for, which
// replaces an earlier one. It returns by how many more are pending; the caller counts them. A deal that has ended is
// forgotten.
func (d *dueDeal) fire(w state.Writer, at time.Time, now uint64) (more int, err error) {
	w.Delete(timers, d.timer)
	to := Address{Wallet: party(d.key()), Subject: dealOf(d.key())}
	switch {
	case d.Deal.ID == "":
		return 0, nil
	case d.Ended != 0:
		w.Delete(dealsOf, d.key())
		return 0, cancelDeal(w, to.Wallet, to.Subject)
	}
	terms := d.Deal.terms()
	told := d.After != d.Deal.FundedAt // otherwise nothing of this funding was ever fired
	for _, to.Channel = range Channels {
		wanted := d.wanted[to.Channel]
		var ok bool
		if to.Stage, ok = d.last(now, wanted.prefs); !ok {
			continue
		}
		alert := Alert{
			Terms: terms, Stage: to.Stage, Due: to.Stage.due(&d.Deal), FiredAt: now, Next: at.Add(SettleTime).UnixMilli(), Waits: wanted.waits, Deal: &d.Deal,
		}
		if told {
			gone, err := remove(w, dealPrefix(to.Wallet, to.Channel, to.Subject), everyAlert)
			if err != nil {
				return 0, err
			}
			more -= gone
		}
		w.Put(outbox, to.Row(), alert.appendFired(make([]byte, 0, firedBytes)))
		if d.publishes(to) {
			alert.publish(w, to)
		}
		if alert.pends() {
			more++
		}
	}
	d.After = now
	arm(w, d.key(), &d.openDeal)
	return more, nil
}
