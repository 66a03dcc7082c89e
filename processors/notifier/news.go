package notifier

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

var (
	news  = &state.Table{ID: 9, Name: "news"}   // epoch ‖ stage ‖ term: the news, and how far they were announced
	wants = &state.Table{ID: 10, Name: "wants"} // kind ‖ wallet ‖ channel: the subscribers of news, and since when
)

// newsKinds are the kinds of news, which any subscriber may choose.
var newsKinds = []Kind{Budget, EpochOpens}

// newsRow is a row: news, and how far in the list of subscribers they were announced.
type newsRow struct {
	News    News   `json:"news"`
	Removed bool   `json:"removed,omitempty"` // it is not true: a reorg removed it, or an amount was returned to the budget
	Told    []byte `json:"told,omitempty"`    // the last subscriber that the announcement has reached
	Done    bool   `json:"done,omitempty"`
	Ended   bool   `json:"over,omitempty"` // the epoch has ended: the news are not announced any more

	// News that were retracted and are true again are announced again, to those who subscribed since the last
	// announcement began.
	Began int64 `json:"began,omitempty"` // of the announcement, in unix milliseconds; 0: by an older build
	Since int64 `json:"since,omitempty"` // those who subscribed up to then got an earlier announcement; 0: there was none
	Again bool  `json:"again,omitempty"` // announce again, once this announcement is done
	Waits bool  `json:"waits,omitempty"` // true again, but the clock has not reached it
}

// holds reports whether the news are true as of the clock.
func (row *newsRow) holds() bool { return !row.Removed && !row.Waits }

// announced reports whether the news are true and were sent to some subscribers.
func (row *newsRow) announced() bool {
	return row.holds() && !row.Ended && (row.Done || row.Told != nil)
}

func newsKey(n *News) []byte {
	key := append(binary.BigEndian.AppendUint32(nil, n.Epoch), byte(n.Stage))
	return binary.BigEndian.AppendUint32(key, n.Term)
}

// subject identifies the news in the key of an alert; no deal has this ID.
func (n *News) subject() (s common.Hash) {
	s[0] = 0xff
	copy(s[len(s)-len(newsKey(n)):], newsKey(n))
	return s
}

// Due is when the news may be announced: an epoch may open before it starts.
func (n *News) Due() uint64 {
	if n.Stage == EpochOpen {
		return max(n.At, n.StartsAt)
	}
	return n.At
}

// want adds a subscription to the lists of the news that it asks for, or leaves it where it is.
func want(w state.Writer, at time.Time, subscription []byte, prefs Prefs) error {
	for _, k := range newsKinds {
		key := append([]byte{byte(k)}, subscription...)
		if !prefs.Has(k) {
			w.Delete(wants, key)
			continue
		}
		since, err := w.Get(wants, key)
		if err != nil {
			return err
		}
		if since != nil {
			continue
		}
		now, err := newsTime(w, at)
		if err != nil {
			return err
		}
		row := binary.BigEndian.AppendUint64(nil, uint64(now))
		w.Put(wants, key, row)
		w.Put(tallies, newsClock, row)
	}
	return nil
}

// newsClock is the row of tallies with the least time of the next subscription to news and of the next announcement,
// in unix milliseconds.
var newsClock = []byte("newsClock")

// newsTime is a command's time by a clock that never goes back, unlike the brokers', and that each announcement
// advances: several commands may have the same millisecond.
func newsTime(r rowReader, at time.Time) (int64, error) {
	least, err := r.Get(tallies, newsClock)
	return max(at.UnixMilli(), wantedSince(least)), err
}

// wantedSince is when a subscription came into a list, in unix milliseconds; 0: by an older build.
func wantedSince(row []byte) int64 {
	if len(row) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(row))
}

// tell adds or retracts news. Subscribers that were already told are not told again.
func (a *App) tell(w state.Writer, at time.Time, n *News, holds bool) error {
	var row newsRow
	if err := getRow(w, news, newsKey(n), &row); err != nil {
		return err
	}
	if !holds && row.Told == nil && !row.Done { // no subscriber was told, or they are too old
		w.Delete(news, newsKey(n))
		return nil
	}
	if row.Began == 0 && (row.Told != nil || row.Done) { // an older build announced them
		row.Began = at.UnixMilli()
	}
	now, err := a.now(w)
	if err != nil {
		return err
	}
	row.Again = row.Again || row.Removed && holds
	row.News, row.Removed, row.Waits = *n, !holds, holds && n.At >= now
	return putRow(w, news, newsKey(n), &row)
}

// keptEpochs is the number of epochs whose news are kept, so that news that are retracted and come again are announced
// once.
const keptEpochs = 3

// forgotten reports whether the news are too old to keep. The confirmed clock must have passed them too, because a node
// may make up an epoch and its times.
func (n *News) forgotten(newest uint32, now uint64) bool {
	ended := max(n.At, n.EndsAt)
	return newest-n.Epoch >= keptEpochs && ended < now && now-ended > endedSeconds
}

// maxAnnounced is how many subscribers one tick tells of news, so that alerts of deals and commands of wallets do not
// wait longer.
const maxAnnounced = 500

// announce sends due news to their subscribers, as many as one tick allows; more: others are left. Once the epoch has
// ended, its news are not sent any more.
func announce(w state.Writer, at time.Time, now uint64) (more bool, err error) {
	all, err := allNews(w)
	if err != nil {
		return false, err
	}
	var due []newsRow // including those already announced
	for _, row := range all {
		n := &row.News
		switch {
		case n.forgotten(all[len(all)-1].News.Epoch, now): // they are in the order of epochs
			w.Delete(news, newsKey(n))
		case row.Ended:
		case n.EndsAt != 0 && n.EndsAt <= now:
			row.Ended = true
			if err := putRow(w, news, newsKey(n), &row); err != nil {
				return false, err
			}
		// Strictly later than the event: blocks share timestamps, and one of them may be unconfirmed.
		case !row.Removed && n.At < now && n.Due() <= now:
			if row.Waits {
				row.Waits = false
				if err := putRow(w, news, newsKey(n), &row); err != nil {
					return false, err
				}
			}
			due = append(due, row)
		}
	}
	left := maxAnnounced
	for i := range due {
		row := &due[i]
		if row.Done && row.Again {
			row.Since, row.Began, row.Told, row.Done, row.Again = row.Began, 0, nil, false, false
		}
		if row.Done || superseded(due, &row.News) {
			continue
		}
		if err := row.announce(w, at, now, &left); err != nil {
			return false, err
		}
		more = more || !row.Done || row.Again
		if err := putRow(w, news, newsKey(&row.News), row); err != nil {
			return false, err
		}
	}
	return more, nil
}

func allNews(w state.Writer) (all []newsRow, err error) {
	var fault error
	err = w.Scan(news, nil, nil, func(_, value []byte) bool {
		var row newsRow
		fault = json.Unmarshal(value, &row)
		all = append(all, row)
		return fault == nil
	})
	return all, errors.Join(err, fault)
}

// superseded reports whether later news replace these: a newer epoch, or an exhausted budget.
func superseded(all []newsRow, n *News) bool {
	return slices.ContainsFunc(all, func(other newsRow) bool {
		o := &other.News
		return o.Stage == EpochOpen && o.Epoch > n.Epoch || o.Stage == Budget100 && n.Stage == Budget90 && o.Epoch == n.Epoch && o.Term == n.Term
	})
}

// maxPassed is how many subscribers one tick skips because they were told before.
const maxPassed = 20 * maxAnnounced

// announce sends the news to the next subscribers in the list.
func (row *newsRow) announce(w state.Writer, at time.Time, now uint64, left *int) error {
	n := &row.News
	kind := []byte{byte(n.Stage.Kind())}
	var who [][]byte
	if row.Began == 0 && row.Told == nil {
		now, err := newsTime(w, at)
		if err != nil {
			return err
		}
		row.Began = now
		w.Put(tallies, newsClock, binary.BigEndian.AppendUint64(nil, uint64(now)+1))
	}
	row.Done = true
	looked, last := 0, row.Told
	err := w.Scan(wants, kind, row.Told, func(key, since []byte) bool {
		if looked++; len(who) == *left || looked > maxPassed {
			row.Done = false
			return false
		}
		last = slices.Clone(key)
		// One that subscribes during the announcement is told by the next one, wherever in the list it is.
		if at := wantedSince(since); (row.Since == 0 || at > row.Since) && (row.Began == 0 || at <= row.Began) {
			who = append(who, last)
		}
		return true
	})
	if err != nil {
		return err
	}
	row.Told = last
	for _, key := range who {
		to := Address{common.Address(key[1 : 1+common.AddressLength]), Channel(key[len(key)-1]), n.subject(), n.Stage}
		alert := Alert{News: n, Stage: n.Stage, Due: n.Due(), FiredAt: now, Next: at.Add(SettleTime).UnixMilli()}
		if err := post(w, to, &alert); err != nil {
			return err
		}
	}
	*left -= len(who)
	return count(w, len(who), 0, at)
}
