package topics

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/ethereum/go-ethereum/common"
)

// Alert is a record of evt.alert: something that a wallet is due to be told.
type Alert struct {
	Wallet   common.Address
	Channel  string
	Kind     string // t48, t24, t6, t1, expiry or graceEnd
	DealID   string // decimal
	Role     string // borrower or lender
	Due      uint64 // unix seconds, in block time
	FiredAt  uint64 // block time by which it was fired
	Expiry   uint64
	GraceEnd uint64
}

// ID names the alert: it is the same whenever it is fired or sent again.
func (a *Alert) ID() common.Hash {
	h := sha256.New()
	for _, part := range [][]byte{a.Wallet[:], []byte(a.Channel), []byte(a.Kind), []byte(a.DealID), binary.BigEndian.AppendUint64(nil, a.Due)} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write(part)
	}
	return common.Hash(h.Sum(nil))
}

// AppendAlert appends the value of a record of evt.alert.
func AppendAlert(b []byte, a *Alert) []byte {
	id := a.ID()
	b = append(AppendHeader(b, SchemaAlert), id[:]...)
	b = append(b, a.Wallet[:]...)
	for _, s := range []string{a.Channel, a.Kind, a.DealID, a.Role} {
		b = appendString(b, s)
	}
	for _, n := range []uint64{a.Due, a.FiredAt, a.Expiry, a.GraceEnd} {
		b = appendUint(b, n)
	}
	return b
}
