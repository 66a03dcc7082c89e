package notifier

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Reseal seals the address of a subscription with another key. Nothing else of it changes, so a wallet's own command wins.
type Reseal struct {
	Wallet  common.Address `json:"wallet"`
	Channel Channel        `json:"channel"`
	Was     []byte         `json:"was"` // as it was sealed
	Sealed  []byte         `json:"sealed"`
}

func reseal(w state.Writer, c *Reseal) error {
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

// Sealed is the sealed address of a subscription.
type Sealed struct {
	Wallet  common.Address
	Channel Channel
	Text    []byte
}

// SealedAddresses reads a partition's sealed addresses: some of those that follow a place, and the place of the last; nil: there
// are no more.
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
				some = append(some, Sealed{common.Address(key), Channel(key[common.AddressLength]), sealed})
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
