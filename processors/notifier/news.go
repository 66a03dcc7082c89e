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
	news  = &state.Table{ID: 9, Name: "news"}   // epoch ‖ stage ‖ term: what has become of it, and who was told
	wants = &state.Table{ID: 10, Name: "wants"} // kind ‖ wallet ‖ channel: who asked for what is not of a deal of theirs
)

// newsKinds are the kinds that everybody may ask for.
var newsKinds = []Kind{Budget, EpochOpens}

// newsRow is a row: news, and how far down the list of those who asked they were told.
type newsRow struct {
	News    News   `json:"news"`
	Removed bool   `json:"removed,omitempty"` // a reorg took it back
	Told    []byte `json:"told,omitempty"`    // the last who was told
	Done    bool   `json:"done,omitempty"`
}

func newsKey(n *News) []byte {
	key := append(binary.BigEndian.AppendUint32(nil, n.Epoch), byte(n.Stage))
	return binary.BigEndian.AppendUint32(key, n.Term)
}

// subject is what the news is about, as no deal is numbered.
func (n *News) subject() (s common.Hash) {
	s[0] = 0xff
	copy(s[len(s)-len(newsKey(n)):], newsKey(n))
	return s
}

// due is when it may be told: an epoch that opens in advance begins later.
func (n *News) due() uint64 {
	if n.Stage == EpochOpen {
		return max(n.At, n.StartsAt)
	}
	return n.At
}

// want lists a subscription under the kinds of news that it asks for.
func want(w state.Writer, subscription []byte, prefs Prefs) {
	for _, k := range newsKinds {
		key := append([]byte{byte(k)}, subscription...)
		if prefs.Has(k) {
			w.Put(wants, key, []byte{})
		} else {
			w.Delete(wants, key)
		}
	}
}

// keptEpochs are as many as news are remembered of, so that what is taken back and comes again is told once.
const keptEpochs = 3

// tell takes news in, or back. What was told already of news that come again is not told twice.
func tell(w state.Writer, n *News, removed bool) error {
	var row newsRow
	if err := getRow(w, news, newsKey(n), &row); err != nil {
		return err
	}
	if row.News.Stage == 0 && removed {
		return nil // forgotten
	}
	row.News, row.Removed = *n, removed
	if err := putRow(w, news, newsKey(n), &row); err != nil || n.Epoch < keptEpochs {
		return err
	}
	var old [][]byte
	until := binary.BigEndian.AppendUint32(nil, n.Epoch-keptEpochs+1)
	err := w.Scan(news, nil, nil, func(key, _ []byte) bool {
		if string(key) >= string(until) {
			return false
		}
		old = append(old, slices.Clone(key))
		return true
	})
	for _, key := range old {
		w.Delete(news, key)
	}
	return err
}

// announce tells those who asked of the news that are due, as far as one tick may; the next goes on.
func announce(w state.Writer, at time.Time, now uint64) error {
	var due []newsRow
	var fault error
	err := w.Scan(news, nil, nil, func(_, value []byte) bool {
		var row newsRow
		if fault = json.Unmarshal(value, &row); fault != nil {
			return false
		}
		// Strictly later than the event: blocks share timestamps, and one of them is not confirmed yet.
		if n := &row.News; !row.Done && !row.Removed && n.At < now && n.due() <= now {
			due = append(due, row)
		}
		return true
	})
	if err := errors.Join(err, fault); err != nil {
		return err
	}
	left := maxFired
	for i := range due {
		row := &due[i]
		if superseded(due, &row.News) {
			row.Done = true
		} else if err := row.announce(w, at, now, &left); err != nil {
			return err
		}
		if err := putRow(w, news, newsKey(&row.News), row); err != nil {
			return err
		}
	}
	return nil
}

// superseded says whether later news make these needless: a newer epoch, or a budget that is used up.
func superseded(all []newsRow, n *News) bool {
	return slices.ContainsFunc(all, func(other newsRow) bool {
		o := &other.News
		return o.Stage == EpochOpen && o.Epoch > n.Epoch || o.Stage == Budget100 && n.Stage == Budget90 && o.Epoch == n.Epoch && o.Term == n.Term
	})
}

// announce tells those who come next on the list.
func (row *newsRow) announce(w state.Writer, at time.Time, now uint64, left *int) error {
	n := &row.News
	kind := []byte{byte(n.Stage.Kind())}
	var who [][]byte
	row.Done = true
	err := w.Scan(wants, kind, row.Told, func(key, _ []byte) bool {
		if len(who) == *left {
			row.Done = false
			return false
		}
		who = append(who, slices.Clone(key))
		return true
	})
	if err != nil {
		return err
	}
	for _, key := range who {
		to := Address{common.Address(key[1 : 1+common.AddressLength]), Channel(key[len(key)-1]), n.subject(), n.Stage}
		alert := Alert{News: n, Stage: n.Stage, Due: n.due(), FiredAt: now, Next: at.Add(SettleTime).UnixMilli()}
		if err := post(w, to, &alert); err != nil {
			return err
		}
		row.Told = key
	}
	*left -= len(who)
	return count(w, len(who), 0, at)
}
