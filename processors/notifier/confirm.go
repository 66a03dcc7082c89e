package notifier

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// Permit sends one more mail that asks for an address to be confirmed, within the limits. It is applied at the
// address's own partition, where the mails for all wallets are counted and wait. No wallet can take such a mail back:
// so if the limit is reached, the owner of the address has got one.
type Permit struct {
	ID    ID             `json:"id"`
	Place common.Address `json:"place"`          // of Keys.Place
	Mail  *Request       `json:"mail,omitempty"` // from older builds none: their Ask queues the mail
}

// Request is the content of a mail that asks for an address to be confirmed.
type Request struct {
	Wallet common.Address `json:"wallet"` // that named the address
	Sealed []byte         `json:"sealed"` // the address, for its place

	// Stranger: the wallet had no open deal. Requests of other wallets are sent first.
	Stranger bool `json:"stranger,omitempty"`
}

// Confirmation is the answer of an address's owner: this wallet's alerts may go there.
type Confirmation struct {
	ID      ID             `json:"id"`
	Wallet  common.Address `json:"wallet"`
	Channel Channel        `json:"channel"`
	Unix    int64          `json:"unix"` // of the signed message that named the address
}

// Unconfirmed is the Disabled reason of an address that was not confirmed. Builds that know no confirmation take it for
// a disabled subscription, and send nothing either.
const Unconfirmed = "the address is not confirmed"

const (
	confirmSeconds = 24 * 3600 // time to confirm an address
	maxPlaceAsks   = 3         // mails to an address in an hour, for all wallets
	maxPlaceDay    = 6         // mails to an address in a day
	maxWalletAsks  = 10        // requests of a wallet in an hour, for all addresses
)

// MailSeconds is how long the code in a mail is good. That is longer than mails are counted: while the limit is
// reached, a mail that came is still good.
const MailSeconds = 2 * 24 * 3600

// ask is subscribe for an address that must be confirmed first: by a link in a mail, or by a message of the chat.
// mails: it queues the mail itself, as for commands of older builds.
func (a *App) ask(w state.Writer, at time.Time, c *Subscribe, mails bool) error {
	s, err := getSubscription(w, c.Wallet, c.Channel)
	if err != nil {
		return err
	}
	if c.Unix <= s.Unix {
		return note(w, at, c.Wallet, c.ID, Reused)
	}
	free, err := takePermit(w, at, c.Wallet, maxWalletAsks, maxWalletAsks*24)
	if err != nil {
		return err
	}
	if !free {
		return note(w, at, c.Wallet, c.ID, Limited)
	}
	by := at.Unix() + confirmSeconds
	if s.Active() && s.Disabled == "" { // a mistyped address must not end alerts to one that works
		s.NamedAt = s.Of()
		s.Unix, s.Awaited = c.Unix, &Awaited{Sealed: c.Sealed, Mask: c.Mask, Prefs: c.Prefs, ConfirmBy: by}
	} else {
		s = s.replaced(at, c)
		s.Disabled, s.ConfirmBy = Unconfirmed, by
	}
	if err := putSubscription(w, at, c.Wallet, &s); err != nil {
		return err
	}
	if c.Mail != nil {
		if c.Mail.Mail != nil {
			holds, err := holdsDeal(w, c.Wallet)
			if err != nil {
				return err
			}
			c.Mail.Mail.Stranger = !holds
		}
		mail, err := (&Command{Permit: c.Mail}).Encode()
		if err != nil {
			return err
		}
		place := c.Mail.Place[:]
		w.Emit(topics.CommandFamily(topics.AppNotifier), topics.Routed(topics.Partition(place, int32(a.partitions)), place), mail)
	}
	if mails && c.Channel == Email {
		var of [8]byte
		binary.BigEndian.PutUint64(of[:], uint64(c.Unix))
		if err := queueMail(w, at, c.Wallet, askSubject(of[:]), &Alert{Due: uint64(c.Unix)}); err != nil {
			return err
		}
	}
	return note(w, at, c.Wallet, c.ID, Accepted)
}

// maxHeld bounds the deals that holdsDeal reads. Ended ones are dropped soon.
const maxHeld = 256

// holdsDeal reports whether a wallet has an open deal.
func holdsDeal(r scanner, wallet common.Address) (holds bool, err error) {
	var fault error
	looked := 0
	err = r.Scan(dealsOf, wallet[:], nil, func(_, row []byte) bool {
		var d openDeal
		if fault = d.decode(row); fault != nil {
			return false
		}
		holds = d.Deal.Open
		looked++
		return !holds && looked < maxHeld
	})
	return holds, errors.Join(err, fault)
}

// scanner is implemented by both the overlay and views.
type scanner interface {
	Scan(t *state.Table, prefix, after []byte, fn func(key, row []byte) bool) error
}

// askSubject identifies a request in the key of the outbox; no deal and no news have this ID.
func askSubject(of []byte) (s common.Hash) {
	s[0] = 0xfe
	copy(s[len(s)-len(of):], of)
	return s
}

// queueMail queues a mail that asks for an address to be confirmed, under its place; for older builds under its wallet.
func queueMail(w state.Writer, at time.Time, who common.Address, subject common.Hash, a *Alert) error {
	a.Stage, a.FiredAt, a.Next, a.Apart = ToConfirm, a.Due, at.UnixMilli(), true
	return putRow(w, outbox, Address{who, Email, subject, ToConfirm}.Row(), a)
}

// confirm lets alerts go to an address. A request is good once; a later message of the wallet makes a new one.
func confirm(w state.Writer, at time.Time, c *Confirmation) error {
	s, err := getSubscription(w, c.Wallet, c.Channel)
	if err != nil {
		return err
	}
	s = s.Named()
	switch {
	case !s.Active() || s.ConfirmBy == 0 || s.Unix != c.Unix:
		return note(w, at, c.Wallet, c.ID, Missing)
	case at.Unix() > s.ConfirmBy:
		return note(w, at, c.Wallet, c.ID, Expired)
	}
	s.Disabled, s.ConfirmBy = "", 0
	if err := putSubscription(w, at, c.Wallet, &s); err != nil {
		return err
	}
	return note(w, at, c.Wallet, c.ID, Accepted)
}

// refuse ends a request to confirm an address. Alerts to a confirmed one go on.
func refuse(w state.Writer, at time.Time, c *Confirmation) error {
	s, err := getSubscription(w, c.Wallet, c.Channel)
	if err != nil {
		return err
	}
	if named := s.Named(); !s.Active() || named.ConfirmBy == 0 || s.Unix != c.Unix {
		return note(w, at, c.Wallet, c.ID, Missing)
	}
	if s.Awaited == nil {
		s = Subscription{Channel: c.Channel, Unix: s.Unix}
	}
	s.Awaited = nil
	if err := putSubscription(w, at, c.Wallet, &s); err != nil {
		return err
	}
	return note(w, at, c.Wallet, c.ID, Accepted)
}

// permit queues and counts a mail to an address, or refuses it.
func permit(w state.Writer, at time.Time, c *Permit) error {
	free, err := takePermit(w, at, c.Place, maxPlaceAsks, maxPlaceDay)
	if err != nil {
		return err
	}
	if !free {
		return note(w, at, c.Place, c.ID, Limited)
	}
	if c.Mail != nil {
		if err := queueMail(w, at, c.Place, askSubject(c.ID[:]), &Alert{Due: uint64(at.Unix()), Request: c.Mail}); err != nil {
			return err
		}
	}
	return note(w, at, c.Place, c.ID, Accepted)
}

// askedPrefix is the prefix of the rows of tallies that count requests: prefix ‖ hour ‖ wallet or place.
const askedPrefix = "asked"

func askedKey(hour int64, who common.Address) []byte {
	return append(binary.BigEndian.AppendUint64([]byte(askedPrefix), uint64(hour)), who[:]...)
}

// takePermit counts one more request of a wallet or place, unless there were `most` in this hour of the clock and the
// last, or `daily` in this and the 24 before. So no hour and no day, whenever it begins, has more.
func takePermit(w state.Writer, at time.Time, who common.Address, most, daily int) (bool, error) {
	this := at.Unix() / 3600
	var now, day int
	for ago := range int64(25) {
		var n int
		if err := getRow(w, tallies, askedKey(this-ago, who), &n); err != nil {
			return false, err
		}
		if ago == 0 {
			now = n
		}
		if day += n; day >= daily || ago < 2 && day >= most {
			return false, nil
		}
	}
	return true, putRow(w, tallies, askedKey(this, who), now+1)
}

// givePermit takes back the count of a mail that no mailbox accepted: made-up tags must not use up the mails of real
// ones.
func givePermit(w state.Writer, taken int64, who common.Address) error {
	key := askedKey(taken/3600, who)
	var n int
	if err := getRow(w, tallies, key, &n); err != nil || n == 0 {
		return err
	}
	return putRow(w, tallies, key, n-1)
}

// maxForgotten bounds the counts that one tick removes; the next tick continues.
const maxForgotten = 1000

// keptAsked is for how many hours the counts are kept: until the address can no longer be confirmed.
const keptAsked = confirmSeconds/3600 + 1

// forgetAsked removes the counts of past hours, and the addresses of their wallets that were not confirmed.
func forgetAsked(w state.Writer, at time.Time) error {
	until := askedKey(at.Unix()/3600-keptAsked, common.Address{})
	var old [][]byte
	err := w.Scan(tallies, []byte(askedPrefix), nil, func(key, _ []byte) bool {
		if len(old) == maxForgotten || string(key) >= string(until) {
			return false
		}
		old = append(old, slices.Clone(key))
		return true
	})
	if err != nil {
		return err
	}
	for _, key := range old {
		w.Delete(tallies, key)
		if err := forgetUnconfirmed(w, at, common.Address(key[len(key)-common.AddressLength:])); err != nil {
			return err
		}
	}
	return nil
}

func forgetUnconfirmed(w state.Writer, at time.Time, wallet common.Address) error {
	for _, channel := range Channels {
		s, err := getSubscription(w, wallet, channel)
		if err != nil {
			return err
		}
		named := s.Named()
		if named.ConfirmBy == 0 || at.Unix() <= named.ConfirmBy {
			continue
		}
		if s.Awaited == nil {
			s = Subscription{Channel: channel, Unix: s.Unix}
		}
		s.Awaited = nil
		if err := putSubscription(w, at, wallet, &s); err != nil {
			return err
		}
	}
	return nil
}
