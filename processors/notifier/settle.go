package notifier

import (
	"errors"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// maxSettled bounds the alerts of a wallet that one command settles, so that a wallet with many deals does not delay
// the others of the partition. Ticks settle the rest; meanwhile Pending keeps unwanted alerts from being sent.
const maxSettled = 1000

// settlingPrefix is the prefix of the rows of tallies with unfinished settling: prefix ‖ wallet ‖ channel.
const settlingPrefix = "settle"

// settling is how far the alerts of a subscription are settled.
type settling struct {
	After []byte `json:"after"`           // the last alert
	Moved bool   `json:"moved,omitempty"` // of Subscription
}

// settle removes alerts that are no longer subscribed to. While nothing may be sent to the address, alerts of deals
// wait; once the wallet has another address, they go there at once. There is at most one of each deal.
func settle(w state.Writer, at time.Time, wallet common.Address, s *Subscription) error {
	return settleAfter(w, at, wallet, s, nil)
}

// settleMore goes on with a subscription that is not settled completely.
func settleMore(w state.Writer, at time.Time) error {
	var key []byte
	var row settling
	err := w.Scan(tallies, []byte(settlingPrefix), nil, func(found, _ []byte) bool {
		key = slices.Clone(found)
		return false
	})
	if err != nil || key == nil {
		return err
	}
	if err := getRow(w, tallies, key, &row); err != nil {
		return err
	}
	of := key[len(settlingPrefix):]
	s, err := getSubscription(w, common.Address(of), Channel(of[common.AddressLength]))
	if err != nil {
		return err
	}
	s.moved = row.Moved
	return settleAfter(w, at, common.Address(of), &s, row.After)
}

func settleAfter(w state.Writer, at time.Time, wallet common.Address, s *Subscription, after []byte) error {
	more := 0
	var fault error
	of := subscriptionKey(wallet, s.Channel)
	last, err := someAlerts(w, of, after, maxSettled, func(key []byte, a *Alert) {
		to, ok := ParseRow(key)
		if !ok {
			return
		}
		if a.counts() {
			more--
		}
		waits := s.Disabled != ""
		if !s.Active() || !s.Prefs.Has(to.Stage.Kind()) || waits && !to.Stage.OfDeal() {
			w.Delete(outbox, key)
			return
		}
		if a.Waits != waits || s.moved && a.Attempt > 0 {
			if a.Waits = waits; !waits {
				a.Attempt, a.Next = 0, at.UnixMilli()
			}
			fault = errors.Join(fault, putRow(w, outbox, key, a))
		}
		if a.counts() {
			more++
		}
	})
	if err := errors.Join(err, fault); err != nil {
		return err
	}
	row := append([]byte(settlingPrefix), of...)
	was, err := w.Get(tallies, row)
	switch {
	case last != nil:
		err = errors.Join(err, putRow(w, tallies, row, &settling{last, s.moved}))
	case was != nil:
		w.Delete(tallies, row)
	}
	return errors.Join(err, count(w, more, 0, time.Time{}))
}
