package notifier

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// Indexes of the outbox by the time of the next attempt. Alerts other than news are in both, so that a flood of news
// cannot delay them. In the store of an older build they are only in the first, until they are written again.
const (
	OutboxByTime  byte = 1 // unix milliseconds ‖ row: 1, if it is in OutboxByClass too
	OutboxByClass byte = 2 // class ‖ unix milliseconds ‖ row: the deadline of the deal ‖ the end of its grace period, which older builds left out
)

// Classes of alerts, in the order in which they are sent.
const (
	DueDeals byte = iota
	DueRequests
	DueStrangers // requests of wallets without a deal; older builds put them into DueRequests
)

var (
	outbox  = &state.Table{ID: 6, Name: "outbox", Index: indexDue} // wallet ‖ channel ‖ subject ‖ stage: an alert not sent yet
	tallies = &state.Table{ID: 7, Name: "tallies"}                 // counts of alerts, of dead letters by wallet, and of requests to confirm an address by hour; assets; progress of scans
)

// SettleTime is how long an alert waits before the first attempt: in a burst after a downtime, later stages
// have then replaced earlier ones.
const SettleTime = 2 * time.Second

// Alert is a row of the outbox.
type Alert struct {
	Terms   *Terms   `json:"deal,omitempty"`
	News    *News    `json:"news,omitempty"`    // one of these three is set
	Request *Request `json:"request,omitempty"` // a mail that waits at its address's place
	Stage   Stage    `json:"stage"`
	Due     uint64   `json:"due"`
	FiredAt uint64   `json:"firedAt"` // block time
	Attempt int      `json:"attempt,omitempty"`
	Next    int64    `json:"next"` // time of the next attempt: unix milliseconds
	Reason  string   `json:"reason,omitempty"`
	By      string   `json:"by,omitempty"` // claim of the attempt that may be running
	To      string   `json:"to,omitempty"` // Taker of the last address that has got it, if the wallet named another one since

	// Held: the deal has ended, or was funded anew. The alert is not sent unless a reorg reverts that, and does not
	// count as pending.
	Held bool `json:"held,omitempty"`

	// Waits: the address refuses, or is not confirmed. The alert is sent once the wallet has another, and does not
	// count as pending.
	Waits bool `json:"waits,omitempty"`

	// Apart: it is a request, not an alert, and is not counted as one. Older builds counted requests.
	Apart bool `json:"apart,omitempty"`

	// Set by Pending.
	Deal       *Deal  `json:"-"`
	Collateral *Asset `json:"-"` // of the deal; nil: its token is unknown
	Obsolete   bool   `json:"-"` // it can never become true again
}

// Terms are the part of a deal that an alert's row has. The rest is read from the deal's own row. Older builds wrote
// the whole deal.
type Terms struct {
	FundedAt uint64 `json:"fundedAt,omitempty"`
	Expiry   uint64 `json:"expiry,omitempty"`
	GraceEnd uint64 `json:"graceEnd,omitempty"`
}

// pends reports whether the alert is to be sent, by its row alone.
func (a *Alert) pends() bool { return !a.Held && !a.Waits }

// counts reports whether it counts as a pending alert.
func (a *Alert) counts() bool { return a.pends() && !a.Apart }

func (d *Deal) terms() *Terms { return &Terms{d.FundedAt, d.Expiry, d.GraceEnd} }

// indexDue indexes an alert that may be sent.
func indexDue(key, row []byte, to *state.IndexEntries) {
	var a dueRow
	if _, err := decodeRow(&a, row); err != nil || a.Held || a.Waits {
		return
	}
	at := binary.BigEndian.AppendUint64(nil, uint64(a.Next))
	switch stage := Stage(key[len(key)-1]); {
	case stage.OfNews():
		to.Put(OutboxByTime, nil, at, key)
	case stage.OfDeal():
		to.Put(OutboxByTime, []byte{1}, at, key)
		times := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, stage.deadline(&a.Terms)), a.Terms.GraceEnd)
		to.Put(OutboxByClass, times, []byte{DueDeals}, at, key)
	default:
		to.Put(OutboxByTime, []byte{1}, at, key)
		class := DueRequests
		if a.Request.Stranger {
			class = DueStrangers
		}
		to.Put(OutboxByClass, nil, []byte{class}, at, key)
	}
}

// Address is the key of an alert: recipient, channel, subject and stage.
type Address struct {
	Wallet  common.Address
	Channel Channel
	Subject common.Hash // a deal, or the subject of news
	Stage   Stage
}

const outboxKeyBytes = common.AddressLength + 1 + common.HashLength + 1

// Row is the key of the alert in the outbox.
func (a Address) Row() []byte {
	return slices.Concat(a.Wallet[:], []byte{byte(a.Channel)}, a.Subject[:], []byte{byte(a.Stage)})
}

// ParseRow decodes the key of an outbox row.
func ParseRow(key []byte) (a Address, ok bool) {
	if len(key) != outboxKeyBytes {
		return a, false
	}
	a.Wallet = common.Address(key[:common.AddressLength])
	a.Channel = Channel(key[common.AddressLength])
	a.Subject = common.Hash(key[common.AddressLength+1 : outboxKeyBytes-1])
	a.Stage = Stage(key[outboxKeyBytes-1])
	return a, channelNames[a.Channel] != "" && int(a.Stage) < len(stages)
}

// Event is the alert as a record of evt.alert.
func (a *Alert) Event(to Address) topics.Alert {
	event := topics.Alert{Wallet: to.Wallet, Channel: to.Channel.String(), Kind: a.Stage.String(), Due: a.Due, FiredAt: a.FiredAt}
	if a.News != nil {
		event.Epoch, event.Term = uint64(a.News.Epoch), uint64(a.News.Term)
		return event
	}
	if a.Deal == nil { // a request, which is never published
		if a.Request != nil {
			event.Wallet = a.Request.Wallet
		}
		return event
	}
	event.DealID, event.Expiry, event.GraceEnd = a.Deal.ID, a.Deal.Expiry, a.Deal.GraceEnd
	event.Role = "lender"
	if a.Deal.Borrower == to.Wallet {
		event.Role = "borrower"
	}
	return event
}

// post puts an alert into the outbox and publishes it. The caller updates the counts.
func post(w state.Writer, to Address, alert *Alert) error {
	if err := putRow(w, outbox, to.Row(), alert); err != nil {
		return err
	}
	alert.publish(w, to)
	return nil
}

func (a *Alert) publish(w state.Writer, to Address) {
	event := a.Event(to)
	id := event.ID()
	w.Emit(topics.FamilyAlert, id[:], topics.AppendAlert(make([]byte, 0, 256), id, &event))
}

// dealPrefix begins the rows of a deal's alerts in a wallet's channel.
func dealPrefix(wallet common.Address, channel Channel, deal common.Hash) []byte {
	return slices.Concat(wallet[:], []byte{byte(channel)}, deal[:])
}

func everyAlert(Address) bool { return true }

// cancelDeal removes a deal's unsent alerts from a wallet's outbox.
func cancelDeal(w state.Writer, wallet common.Address, deal common.Hash) error {
	for _, channel := range Channels {
		if err := cancel(w, dealPrefix(wallet, channel, deal), everyAlert); err != nil {
			return err
		}
	}
	return nil
}

// review updates a wallet's unsent alerts of a deal after the deal has changed. An alert is held while the deal has
// ended, while it belongs to another funding or another due time, and if the chain's time went back behind it.
func review(w state.Writer, wallet common.Address, subject common.Hash, deal *Deal, now uint64) error {
	more := 0
	for _, channel := range Channels {
		var fault error
		err := eachAlert(w, dealPrefix(wallet, channel, subject), func(key []byte, a *Alert) {
			if a.pends() {
				more--
			}
			if same := a.Terms != nil && a.Terms.FundedAt == deal.FundedAt && a.Stage.due(deal) == a.Due; same {
				a.Terms, a.Held = deal.terms(), !deal.Open || a.Due > now+tolerated
			} else {
				a.Held = true
			}
			if a.pends() {
				more++
			}
			fault = errors.Join(fault, putRow(w, outbox, key, a))
		})
		if err := errors.Join(err, fault); err != nil {
			return err
		}
	}
	return count(w, more, 0, time.Time{})
}

// eachAlert calls fn for the alerts with a prefix. fn may write.
func eachAlert(w state.Writer, prefix []byte, fn func(key []byte, a *Alert)) error {
	_, err := someAlerts(w, prefix, nil, 0, fn)
	return err
}

// someAlerts calls fn for the alerts after a row, at most `most`; 0: all. last is the last of them, if there are more.
func someAlerts(w state.Writer, prefix, after []byte, most int, fn func(key []byte, a *Alert)) (last []byte, err error) {
	type row struct {
		key   []byte
		alert Alert
	}
	var rows []row
	var fault error
	err = w.Scan(outbox, prefix, after, func(key, value []byte) bool {
		if most > 0 && len(rows) == most {
			last = rows[most-1].key
			return false
		}
		r := row{key: slices.Clone(key)}
		fault = json.Unmarshal(value, &r.alert)
		rows = append(rows, r)
		return fault == nil
	})
	if err := errors.Join(err, fault); err != nil {
		return nil, err
	}
	for i := range rows {
		fn(rows[i].key, &rows[i].alert)
	}
	return last, nil
}

func cancel(w state.Writer, prefix []byte, untrue func(Address) bool) error {
	gone, err := remove(w, prefix, untrue)
	if err != nil {
		return err
	}
	return count(w, -gone, 0, time.Time{})
}

// remove removes alerts, and returns how many of them were pending.
func remove(w state.Writer, prefix []byte, untrue func(Address) bool) (pending int, err error) {
	err = eachAlert(w, prefix, func(key []byte, a *Alert) {
		if to, ok := ParseRow(key); !ok || !untrue(to) {
			return
		}
		if a.counts() {
			pending++
		}
		w.Delete(outbox, key)
	})
	return pending, err
}

// claim gives an attempt to the first claim of it, or to the first that replaces the present, lapsed one.
func claim(w state.Writer, c *Claim) error {
	to, ok := ParseRow(c.Row)
	if !ok || to.Wallet != c.Wallet {
		return nil
	}
	var a Alert
	err := getRow(w, outbox, c.Row, &a)
	if err != nil || a.Next == 0 || !a.pends() || a.Attempt != c.Attempt || a.FiredAt != c.FiredAt || a.By != c.Lapsed {
		return err
	}
	a.By = c.By
	return putRow(w, outbox, c.Row, &a)
}

// report applies the report of an attempt. It is ignored if the alert is gone, or was tried again since, unless it
// reports that the alert was sent.
func report(w state.Writer, at time.Time, r *Delivery) error {
	to, ok := ParseRow(r.Row)
	if !ok || to.Wallet != r.Wallet {
		return nil
	}
	row, err := w.Get(outbox, r.Row)
	if err != nil || row == nil {
		return err
	}
	var a Alert
	if err := getRow(w, outbox, r.Row, &a); err != nil || a.FiredAt != r.FiredAt {
		return err
	}
	if r.Result != Sent && (a.Attempt != r.Attempt || a.By != r.By) {
		return nil
	}
	s, err := getSubscription(w, to.Wallet, to.Channel)
	if err != nil {
		return err
	}
	a.Reason, a.By = r.Reason, ""
	result, next := r.Result, r.Next
	of, beside := s.Of(), to.Stage == ToConfirm && s.Awaited != nil // an older build queued it while another address is confirmed
	if beside {
		named := s.Named()
		of = named.Of()
	}
	if former := r.Unix != 0 && r.Unix != of; former && (result != Sent || r.To != "") { // send it to the address that replaced that one
		result, next, a.Attempt, a.To = Retry, at.UnixMilli(), -1, cmp.Or(r.To, a.To)
	}
	pending, sent := 0, 1
	if a.counts() {
		pending = -1
	}
	if to.Stage == ToConfirm {
		sent = 0
	}
	switch result {
	case Sent:
		w.Delete(outbox, r.Row)
		return count(w, pending, sent, at)
	case Retry:
		a.Attempt++
		a.Next = next
		return putRow(w, outbox, r.Row, &a)
	case Dead, Gone:
		if result == Gone && a.Request != nil {
			if err := givePermit(w, int64(a.Due), to.Wallet); err != nil {
				return err
			}
		}
		if err := bury(w, at, r.Row, &a); err != nil {
			return err
		}
		if result == Dead || beside || !s.Active() { // the confirmed address does not refuse
			w.Delete(outbox, r.Row)
			return count(w, pending, 0, at)
		}
		// The address accepts nothing until the wallet subscribes again: this alert waits for that, too.
		if err := putRow(w, outbox, r.Row, &a); err != nil {
			return err
		}
		s.Disabled = r.Reason
		return putSubscription(w, at, to.Wallet, &s)
	}
	return nil
}

// tally is the number of alerts that are pending and sent.
type tally struct {
	Pending int           `json:"pending"`
	Sent    map[int64]int `json:"sent,omitempty"` // by minute, of the last hour
}

func getTally(r rowReader) (t tally, err error) {
	err = getRow(r, tallies, []byte("all"), &t)
	return t, err
}

func count(w state.Writer, pending, sent int, at time.Time) error {
	if pending == 0 && sent == 0 {
		return nil
	}
	t, err := getTally(w)
	if err != nil {
		return err
	}
	t.Pending = max(t.Pending+pending, 0) // an older build that writes a request again subtracts one that was never added
	if sent > 0 {
		minute := at.Unix() / 60
		if t.Sent == nil {
			t.Sent = map[int64]int{}
		}
		t.Sent[minute] += sent
		for m := range t.Sent {
			if m <= minute-60 {
				delete(t.Sent, m)
			}
		}
	}
	return putRow(w, tallies, []byte("all"), &t)
}
