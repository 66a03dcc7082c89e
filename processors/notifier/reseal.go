package notifier

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Reseal seals the address of a subscription with another key. Nothing else of it changes, so a wallet's own command
// wins.
type Reseal struct {
	Wallet  common.Address `json:"wallet"`
	Channel Channel        `json:"channel"`
	Was     []byte         `json:"was"` // the address as sealed before
	Sealed  []byte         `json:"sealed"`

	// Row is the row of the outbox with a request to confirm the address; then Wallet is its place. Older builds skip
	// it, because a place has no subscription.
	Row []byte `json:"row,omitempty"`
}

func reseal(w state.Writer, c *Reseal) error {
	if len(c.Row) > 0 {
		return resealRequest(w, c)
	}
	s, err := getSubscription(w, c.Wallet, c.Channel)
	switch {
	case err != nil || !s.Active():
		return err
	case bytes.Equal(s.Sealed, c.Was):
		s.Sealed = c.Sealed
	case s.Awaited != nil && bytes.Equal(s.Awaited.Sealed, c.Was):
		s.Awaited.Sealed = c.Sealed
	default:
		return nil
	}
	return putRow(w, subscriptions, subscriptionKey(c.Wallet, c.Channel), &s)
}

func resealRequest(w state.Writer, c *Reseal) error {
	if to, ok := ParseRow(c.Row); !ok || to.Wallet != c.Wallet {
		return nil
	}
	var a Alert
	if err := getRow(w, outbox, c.Row, &a); err != nil || a.Request == nil || !bytes.Equal(a.Request.Sealed, c.Was) {
		return err
	}
	a.Request.Sealed = c.Sealed
	return putRow(w, outbox, c.Row, &a)
}

// Sealed is the sealed address of a subscription, or of a request to confirm one that waits in the outbox.
type Sealed struct {
	Wallet  common.Address
	Channel Channel
	Text    []byte
	Row     []byte // of a request
}

// SealedAddresses reads a page of a partition's sealed addresses after a position, and the position of the last; nil:
// there are no more.
func SealedAddresses(v state.View, after []byte, most int) (some []Sealed, last []byte, err error) {
	var fault error
	looked := 0
	err = v.Scan(subscriptions, nil, after, func(key, row []byte) bool {
		last = slices.Clone(key)
		type address struct {
			Sealed []byte `json:"sealed"`
		}
		var s struct {
			address
			Awaited address `json:"awaited"`
		}
		if fault = json.Unmarshal(row, &s); fault != nil {
			return false
		}
		for _, sealed := range [][]byte{s.Sealed, s.Awaited.Sealed} {
			if len(key) == common.AddressLength+1 && len(sealed) > 0 {
				some = append(some, Sealed{common.Address(key), Channel(key[common.AddressLength]), sealed, nil})
			}
		}
		looked++
		return looked < most
	})
	if looked < most {
		last = nil
	}
	return some, last, errors.Join(err, fault)
}

// SealedRequests is SealedAddresses for requests to confirm an address.
func SealedRequests(v state.View, after []byte, most int) (some []Sealed, last []byte, err error) {
	if after == nil {
		after = []byte{DueRequests} // DueStrangers follows
	}
	var rows [][]byte
	err = v.ScanIndex(OutboxByClass, nil, after, func(entry, _ []byte) bool {
		last = slices.Clone(entry)
		rows = append(rows, last[max(0, len(last)-outboxKeyBytes):])
		return len(rows) < most
	})
	if len(rows) < most {
		last = nil
	}
	for _, row := range rows {
		var a Alert
		to, ok := ParseRow(row)
		if err = errors.Join(err, getRow(v, outbox, row, &a)); ok && a.Request != nil {
			some = append(some, Sealed{to.Wallet, to.Channel, a.Request.Sealed, row})
		}
	}
	return some, last, err
}
