package notifier

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// dead has the dead letters under unix milliseconds ‖ row of the outbox: alerts that were given up, with the reason.
var dead = &state.Table{ID: 8, Name: "dead"}

// Bounds of the dead letters of a wallet. There is no bound for all wallets together, because anyone can have any
// number of wallets, whose letters would evict those of others. A wallet with a dead letter had a subscription, which
// takes more room.
const (
	deadTime = 30 * 24 * time.Hour
	maxDead  = 16
)

// deadTally is the row of tallies with the number of all dead letters, which older builds bounded.
var deadTally = []byte("dead")

// lettersPrefix is the prefix of the rows of tallies with the keys of a wallet's dead letters, the oldest first: prefix
// ‖ wallet.
const lettersPrefix = "letters"

func lettersKey(wallet common.Address) []byte { return append([]byte(lettersPrefix), wallet[:]...) }

// walletOf is the wallet of a dead letter.
func walletOf(key []byte) common.Address { return common.Address(key[8:]) }

func deadKey(at time.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())) }

// bury keeps an alert that was given up.
func bury(w state.Writer, at time.Time, row []byte, a *Alert) error {
	key := append(deadKey(at), row...)
	letter := *a
	if q := a.Request; q != nil { // without the address, whose key may be removed before the letter is
		letter.Request = &Request{Wallet: q.Wallet, Stranger: q.Stranger}
	}
	if err := putRow(w, dead, key, &letter); err != nil {
		return err
	}
	var letters [][]byte
	of := lettersKey(walletOf(key))
	if err := getRow(w, tallies, of, &letters); err != nil {
		return err
	}
	letters = append(without(letters, key), key)
	for ; len(letters) > maxDead; letters = letters[1:] {
		w.Delete(dead, letters[0])
	}
	if err := putRow(w, tallies, of, letters); err != nil {
		return err
	}
	if was, err := w.Get(tallies, deadTally); err != nil {
		return err
	} else if was != nil {
		w.Delete(tallies, deadTally)
	}
	if err := forgetUndated(w); err != nil {
		return err
	}
	return forgetDead(w, at)
}

func without(letters [][]byte, key []byte) [][]byte {
	return slices.DeleteFunc(letters, func(one []byte) bool { return bytes.Equal(one, key) })
}

// forgetUndated removes dead letters of older builds. Their keys have no time and sort last.
func forgetUndated(w state.Writer) error {
	var old [][]byte
	err := w.Scan(dead, nil, []byte{0, 1}, func(key, _ []byte) bool {
		old = append(old, slices.Clone(key))
		return len(old) < maxForgotten
	})
	for _, key := range old {
		w.Delete(dead, key)
	}
	return err
}

// forgetDead removes old dead letters.
func forgetDead(w state.Writer, at time.Time) error {
	var old [][]byte
	until := deadKey(at.Add(-deadTime))
	err := w.Scan(dead, nil, nil, func(key, _ []byte) bool {
		if len(old) == maxForgotten || bytes.Compare(key, until) >= 0 {
			return false
		}
		old = append(old, slices.Clone(key))
		return true
	})
	if err != nil {
		return err
	}
	for _, key := range old {
		w.Delete(dead, key)
		if err := forgetLetter(w, key); err != nil {
			return err
		}
	}
	return nil
}

// forgetLetter removes a dead letter from the list of its wallet. Older builds have no such list.
func forgetLetter(w state.Writer, key []byte) error {
	var letters [][]byte
	of := lettersKey(walletOf(key))
	if err := getRow(w, tallies, of, &letters); err != nil || letters == nil {
		return err
	}
	if letters = without(letters, key); len(letters) > 0 {
		return putRow(w, tallies, of, letters)
	}
	w.Delete(tallies, of)
	return nil
}
