package topics

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
)

// Alert is a record of evt.alert: something that a wallet is due to be told.
type Alert struct {
	Wallet   common.Address
	Channel  string
	Kind     string // t48, t24, t6, t1, expiry or graceEnd, of a deal; epoch, budget90 or budget100, of an epoch
	DealID   string // decimal; empty: of an epoch
	Role     string // borrower or lender; empty: of an epoch
	Due      uint64 // unix seconds, in block time
	FiredAt  uint64 // block time by which it was fired
	Expiry   uint64
	GraceEnd uint64
	Epoch    uint64
	Term     uint64 // seconds: of the deals whose budget it is
}

// ID names the alert: it is the same whenever it is fired or sent again.
func (a *Alert) ID() common.Hash {
	b := make([]byte, 0, 128)
	for _, part := range []string{string(a.Wallet[:]), a.Channel, a.Kind, a.subject()} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), a.Due)
	return sha256.Sum256(b)
}

// subject is the deal, or the epoch with the term.
func (a *Alert) subject() string {
	if a.DealID != "" {
		return a.DealID
	}
	return fmt.Sprintf("epoch %d %d", a.Epoch, a.Term)
}

// AppendAlert appends the value of a record of evt.alert, whose ID the caller knows.
func AppendAlert(b []byte, id common.Hash, a *Alert) []byte {
	b = append(AppendHeader(b, SchemaAlert), id[:]...)
	b = append(b, a.Wallet[:]...)
	for _, s := range []string{a.Channel, a.Kind, a.DealID, a.Role} {
		b = appendString(b, s)
	}
	for _, n := range []uint64{a.Due, a.FiredAt, a.Expiry, a.GraceEnd, a.Epoch, a.Term} {
		b = appendUint(b, n)
	}
	return b
}
