package notifier

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Tables. Their IDs are stored on disk.
var (
	subscriptions = &state.Table{ID: 1, Name: "subscriptions"} // wallet ‖ channel
	outcomes      = &state.Table{ID: 2, Name: "outcomes"}      // wallet: the outcomes of the last commands
)

// Subscription is a row: a wallet's address on a channel, and its preferences. An ended one keeps only Unix.
type Subscription struct {
	Channel   Channel `json:"channel"`
	Sealed    []byte  `json:"sealed,omitempty"`
	Mask      string  `json:"mask,omitempty"`
	Prefs     Prefs   `json:"prefs"`
	CreatedAt int64   `json:"createdAt,omitempty"` // unix seconds; 0: it has ended
	Unix      int64   `json:"unix"`                // time of the last accepted message
	Disabled  string  `json:"disabled,omitempty"`  // why nothing is sent
	ConfirmBy int64   `json:"confirmBy,omitempty"` // unix seconds; 0: the address is confirmed, or need not be

	// Awaited is a newer address that the wallet named by the message of Unix, and that must be confirmed. Until then
	// alerts go to the address above. Older builds ignore it and go on with that one.
	Awaited *Awaited `json:"awaited,omitempty"`
	NamedAt int64    `json:"namedAt,omitempty"` // time of the message that named the address; 0: Unix

	moved bool // the address may differ from that in the row
}

// Awaited is what a subscription will be once its address is confirmed.
type Awaited struct {
	Sealed    []byte `json:"sealed"`
	Mask      string `json:"mask"`
	Prefs     Prefs  `json:"prefs"`
	ConfirmBy int64  `json:"confirmBy"` // unix seconds
}

// Active reports whether the subscription has not ended.
func (s *Subscription) Active() bool { return s.CreatedAt != 0 }

// Named is the subscription with the wallet's newest address, confirmed or not.
func (s *Subscription) Named() Subscription {
	named := *s
	if a := s.Awaited; a != nil {
		named.Sealed, named.Mask, named.Prefs, named.ConfirmBy = a.Sealed, a.Mask, a.Prefs, a.ConfirmBy
		named.Disabled, named.Awaited, named.NamedAt, named.moved = Unconfirmed, nil, 0, true
	}
	return named
}

// Of is the time of the message that named the address. An address that replaces it has a later one.
func (s *Subscription) Of() int64 { return cmp.Or(s.NamedAt, s.Unix) }

// Outcome is the outcome of a command.
type Outcome uint8

// The outcomes.
const (
	Unknown  Outcome = iota // the command is too old, or was never applied
	Accepted                // it was executed
	Reused                  // its message is no newer than an earlier one
	Missing                 // there is no subscription to end, or no address to confirm
	Changed                 // it was meant for a subscription that has changed since
	Limited                 // too many requests to confirm an address in this hour
	Expired                 // the time to confirm the address is over
)

// maxOutcomes is how many outcomes are kept per wallet, and so how many commands can be in flight.
const maxOutcomes = 32

type outcome struct {
	ID      ID      `json:"id"`
	Outcome Outcome `json:"outcome"`
	At      int64   `json:"at,omitempty"` // unix seconds; 0: from an older build
}

func subscriptionKey(wallet common.Address, channel Channel) []byte {
	return append(slices.Clone(wallet[:]), byte(channel))
}

// getSubscription reads a row; a missing row is a zero value.
func getSubscription(r rowReader, wallet common.Address, channel Channel) (s Subscription, err error) {
	err = getRow(r, subscriptions, subscriptionKey(wallet, channel), &s)
	s.Channel = channel
	return s, err
}

// preferences is the kinds that a wallet wants on a channel. waits: nothing may be sent there for now.
type preferences struct {
	prefs Prefs
	waits bool
}

// wantedBy is a wallet's preferences by channel. It is one scan, because a read for each channel, most of which find no
// row, would be most of the cost of an alert.
func wantedBy(w state.Writer, wallet common.Address) (all [Push + 1]preferences, err error) {
	var fault error
	err = w.Scan(subscriptions, wallet[:], nil, func(key, row []byte) bool {
		var s subscribeRow
		if _, fault = decodeRow(&s, row); fault != nil {
			return false
		}
		if c := int(key[len(key)-1]); c < len(all) && s.CreatedAt != 0 {
			all[c] = preferences{s.Prefs, s.Disabled != ""}
		}
		return true
	})
	return all, errors.Join(err, fault)
}

// endedRow is the row of a subscription that has ended.
type endedRow struct {
	Unix int64 `json:"unix"`
}

// putSubscription writes a row, and settles queued alerts.
func putSubscription(w state.Writer, at time.Time, wallet common.Address, s *Subscription) error {
	key := subscriptionKey(wallet, s.Channel)
	var row any = s
	if !s.Active() {
		row = endedRow{s.Unix}
	}
	if err := putRow(w, subscriptions, key, row); err != nil {
		return err
	}
	var prefs Prefs
	if s.Active() && s.Disabled == "" {
		prefs = s.Prefs
	}
	if err := want(w, at, key, prefs); err != nil {
		return err
	}
	return settle(w, at, wallet, s)
}

// maxSubscribed bounds the rows that Subscribed reads.
const maxSubscribed = 1 << 18

// Subscribed reports which of some channels have a subscription in a partition.
func Subscribed(v state.View, of []Channel) (found []Channel, err error) {
	var fault error
	looked := 0
	err = v.Scan(subscriptions, nil, nil, func(key, row []byte) bool {
		if looked++; looked > maxSubscribed || len(found) == len(of) {
			return false
		}
		c := Channel(key[len(key)-1])
		if !slices.Contains(of, c) || slices.Contains(found, c) {
			return true
		}
		var s Subscription
		if fault = json.Unmarshal(row, &s); fault == nil && s.Active() {
			found = append(found, c)
		}
		return fault == nil
	})
	return found, errors.Join(err, fault)
}

func subscribe(w state.Writer, at time.Time, c *Subscribe) error {
	s, err := getSubscription(w, c.Wallet, c.Channel)
	if err != nil {
		return err
	}
	switch {
	case c.Unix <= s.Unix:
		return note(w, at, c.Wallet, c.ID, Reused)
	case c.Since != 0 && (c.Since != s.CreatedAt || s.ConfirmBy != 0):
		return note(w, at, c.Wallet, c.ID, Changed)
	}
	s = s.replaced(at, c)
	if err := putSubscription(w, at, c.Wallet, &s); err != nil {
		return err
	}
	return note(w, at, c.Wallet, c.ID, Accepted)
}

// replaced is the subscription by which a command replaces s.
func (s *Subscription) replaced(at time.Time, c *Subscribe) Subscription {
	created := s.CreatedAt
	if !s.Active() {
		created = at.Unix()
	}
	next := Subscription{Channel: c.Channel, Sealed: c.Sealed, Mask: c.Mask, Prefs: c.Prefs, CreatedAt: created, Unix: c.Unix, moved: true}
	if s.Active() && c.Keeps == s.Of() {
		next.NamedAt, next.moved = c.Keeps, false
	}
	return next
}

func unsubscribe(w state.Writer, at time.Time, c *Unsubscribe) error {
	s, err := getSubscription(w, c.Wallet, c.Channel)
	if err != nil {
		return err
	}
	switch {
	case !s.Active(), c.Unix == 0 && c.Since != s.CreatedAt:
		return note(w, at, c.Wallet, c.ID, Missing)
	case c.Unix != 0 && c.Unix <= s.Unix:
		return note(w, at, c.Wallet, c.ID, Reused)
	case c.Of != 0 && c.Of != s.Unix:
		return note(w, at, c.Wallet, c.ID, Changed)
	}
	if c.Unix == 0 && s.Awaited != nil { // the link ends alerts to its own address, not to one that the wallet named since
		s = s.Named()
	} else {
		s = Subscription{Channel: c.Channel, Unix: max(s.Unix, c.Unix)}
	}
	if err := putSubscription(w, at, c.Wallet, &s); err != nil {
		return err
	}
	return note(w, at, c.Wallet, c.ID, Accepted)
}

// note records the outcome of a command. If its sender sent the command twice, the first outcome stays.
func note(w state.Writer, at time.Time, wallet common.Address, id ID, what Outcome) error {
	var list []outcome
	if err := getRow(w, outcomes, wallet[:], &list); err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(o outcome) bool { return o.ID == id }) {
		return nil
	}
	list = append(list, outcome{id, what, at.Unix()})
	list = list[max(0, len(list)-maxOutcomes):]
	return putRow(w, outcomes, wallet[:], list)
}

const (
	outcomeTime = time.Hour // how long an outcome is kept; a client waits for seconds
	maxOutdated = 2000      // wallets whose outcomes one tick checks; the next one continues
)

// outdated is the row of tallies with the expiryScan of the outcomes.
var outdated = []byte("outdated")

// expiryScan is the progress of removing old rows of a table, a part with each tick.
type expiryScan struct {
	Next  int64  `json:"next"`            // unix seconds: nothing expires before
	After []byte `json:"after,omitempty"` // the last row that was looked at
	Least int64  `json:"least,omitempty"` // oldest time of the rows that stay, so far
}

// forgetOutcomes removes old outcomes: anyone can cause any number of them.
func forgetOutcomes(w state.Writer, at time.Time) error {
	const kept = int64(outcomeTime / time.Second)
	now := at.Unix()
	var s expiryScan
	if err := getRow(w, tallies, outdated, &s); err != nil {
		return err
	}
	switch {
	case s.Next == 0: // no scan was ever made
		return putRow(w, tallies, outdated, &expiryScan{Next: now + kept})
	case s.Next > now:
		return nil
	case len(s.After) == 0:
		s.Least = now
	}
	var old [][]byte
	var fault error
	looked, whole := 0, true
	err := w.Scan(outcomes, nil, s.After, func(wallet, row []byte) bool {
		if looked++; looked > maxOutdated {
			whole = false
			return false
		}
		s.After = slices.Clone(wallet)
		var list []struct {
			At int64 `json:"at"`
		}
		if fault = json.Unmarshal(row, &list); fault != nil {
			return false
		}
		if last := len(list) - 1; last < 0 || list[last].At <= now-kept {
			old = append(old, s.After)
		} else {
			s.Least = min(s.Least, list[last].At)
		}
		return true
	})
	if err := errors.Join(err, fault); err != nil {
		return err
	}
	for _, wallet := range old {
		w.Delete(outcomes, wallet)
	}
	if whole {
		s = expiryScan{Next: s.Least + kept}
	}
	return putRow(w, tallies, outdated, &s)
}

// rowReader is implemented by both the overlay and views.
type rowReader interface {
	Get(t *state.Table, key []byte) ([]byte, error)
}

// getRow reads a row into v, which stays unchanged if there is no row.
func getRow(r rowReader, t *state.Table, key []byte, v any) error {
	row, err := r.Get(t, key)
	if err != nil || row == nil {
		return err
	}
	if err := json.Unmarshal(row, v); err != nil {
		return fmt.Errorf("row of %s: %w", t.Name, err)
	}
	return nil
}

func putRow(w state.Writer, t *state.Table, key []byte, v any) error {
	row, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Put(t, key, row)
	return nil
}
