package notifier

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// tolerated is by how many seconds a reorg may set the chain's time back while alerts stay fired: they will be due
// again soon. Alerts that were fired by a time further ahead, which a node that makes up blocks can cause under the
// policy `latest`, were not due, and are fired again when they are.
const tolerated = 600

// takenBack is the row of tallies with the last deal that takeBack has checked; none: it is done.
var takenBack = []byte("back")

// takeBack begins to hold the alerts that were fired too early when the chain's time goes back, or goes on with it.
func (a *App) takeBack(w state.Writer, before, now uint64) error {
	from, err := w.Get(tallies, takenBack)
	if err != nil {
		return err
	}
	switch {
	case before > now+tolerated:
		from = nil
		if err := notOver(w, now); err != nil {
			return err
		}
	case from == nil:
		return nil
	}
	var early [][]byte
	var last []byte
	var fault error
	looked := 0
	err = w.Scan(dealsOf, nil, from, func(key, row []byte) bool {
		if looked++; looked > a.most {
			last = from
			return false
		}
		from = slices.Clone(key)
		var d struct {
			After uint64 `json:"after"`
		}
		fault = json.Unmarshal(row, &d)
		if d.After > now+tolerated {
			early = append(early, from)
		}
		return fault == nil
	})
	if err := errors.Join(err, fault); err != nil {
		return err
	}
	if last != nil {
		w.Put(tallies, takenBack, last)
	} else {
		w.Delete(tallies, takenBack)
	}
	held := 0
	for _, key := range early {
		n, err := hold(w, key, now)
		if err != nil {
			return err
		}
		held += n
	}
	return count(w, -held, 0, time.Time{})
}

// hold holds the alerts of a deal that are not due yet, and arms its timer anew. It returns how many of them were
// pending.
func hold(w state.Writer, key []byte, now uint64) (pending int, err error) {
	var d openDeal
	if err := d.read(w, key); err != nil {
		return 0, err
	}
	for _, channel := range Channels {
		var fault error
		err := eachAlert(w, dealPrefix(party(key), channel, dealOf(key)), func(row []byte, a *Alert) {
			if a.Held || a.Due <= now+tolerated {
				return
			}
			if a.pends() {
				pending++
			}
			a.Held = true
			fault = errors.Join(fault, putRow(w, outbox, row, a))
		})
		if err := errors.Join(err, fault); err != nil {
			return 0, err
		}
	}
	w.Delete(timers, timerKey(d.Armed, key))
	d.After = now + tolerated
	arm(w, key, &d)
	return pending, nil
}

// notOver lets news be announced again whose epoch has not ended.
func notOver(w state.Writer, now uint64) error {
	rows, err := allNews(w)
	for i := range rows {
		if r := &rows[i]; r.Ended && r.News.EndsAt > now {
			r.Ended = false
			err = errors.Join(err, putRow(w, news, newsKey(&r.News), r))
		}
	}
	return err
}
