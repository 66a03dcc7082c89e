package holders

import (
	"encoding/binary"
	"errors"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// joiningTokens has a row, a joining, under its address for each token whose ledger has not arrived completely.
//
// Meanwhile its transfers arrive, also those of accounts whose shares are in a later part. What such an account
// receives is its holding until then, and what it sends beyond that is its debt. So the cost of a part depends on its
// shares alone, and no task needs the memory for all shares at once.
//
// Invariants:
//  1. a token has no row in Tokens meanwhile, so its holders are not served;
//  2. an account has a row in Holdings or one in debts, or none: what came of its share and its transfers so far, where
//     that is above or below zero;
//  3. Count and Debtors are the numbers of these rows, and the holdings without the debts are Supply without Destroyed. An
//     account that is in debt when all parts have arrived sent more than it held.
var joiningTokens = &state.Table{ID: 37, Name: "joining tokens"}

// debts has a row, topics.Holding, for each account that has sent more than it has received so far, under HoldingKey.
var debts = &state.Table{ID: 38, Name: "debts"}

// joining is the state of a token whose ledger has not arrived completely.
type joining struct {
	topics.Holders
	Next      uint32 // the part that comes next
	Debtors   uint64
	Destroyed uint256.Int // since the first part
}

const (
	wordBytes = 32
	nextBytes = 4 + 8 + wordBytes // what comes before the token's row
)

var errLength = errors.New("row has the wrong length")

// AppendBinary appends the row.
func (j *joining) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, j.Next), j.Debtors)
	destroyed := j.Destroyed.Bytes32()
	return j.Holders.AppendBinary(append(b, destroyed[:]...))
}

// UnmarshalBinary reads a row.
func (j *joining) UnmarshalBinary(b []byte) error {
	if len(b) < nextBytes {
		return errLength
	}
	j.Next, j.Debtors = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])
	j.Destroyed.SetBytes32(b[nextBytes-wordBytes:])
	return j.Holders.UnmarshalBinary(b[nextBytes:])
}

// ApplyLedger applies a part of a ledger, or an origin that it came without. A token that is followed already keeps its
// rows: they say the same.
func ApplyLedger(w state.Writer, l *topics.Ledger) error {
	if l.Parts == 0 {
		var t topics.Holders
		known, err := family.Get(w, Tokens, l.Token[:], &t)
		if err != nil || !known || t.First != (common.Hash{}) {
			return err
		}
		t.First = l.First
		return family.Put(w, Tokens, l.Token[:], &t)
	}
	if known, err := w.Get(Tokens, l.Token[:]); err != nil || known != nil {
		return err
	}
	j := joining{Holders: topics.Holders{Token: l.Token, First: l.First, Since: l.Block.Number}}
	begun, err := family.Get(w, joiningTokens, l.Token[:], &j)
	if err != nil || l.Part != j.Next {
		return err // it came before
	}
	j.Next++
	fault := l.Fault
	for i := range l.Shares {
		s := &l.Shares[i]
		if _, over := j.Supply.AddOverflow(&j.Supply, &s.Amount); over {
			fault = contracts.FaultBeyond
		} else if fault, err = j.credit(w, s.Account, &s.Amount); err != nil {
			return err
		}
		if fault != "" {
			break
		}
	}
	return j.put(w, begun, j.Next >= l.Parts, fault)
}

// put writes the row, or that of Tokens after the last part or a fault.
func (j *joining) put(w state.Writer, begun, last bool, fault string) error {
	if fault == "" && !last {
		return family.Put(w, joiningTokens, j.Token[:], j)
	}
	if begun {
		w.Delete(joiningTokens, j.Token[:])
	}
	t := j.Holders
	_, below := t.Supply.SubOverflow(&t.Supply, &j.Destroyed)
	t.Faulted = fault != "" || below || j.Debtors > 0
	return family.Put(w, Tokens, j.Token[:], &t)
}

// move applies a transfer as TokenTransferred.Move does, but that accounts may give what is in a later part.
func (j *joining) move(w state.Writer, e *contracts.TokenTransferred) (fault string, err error) {
	if e.Amount.IsZero() {
		return "", nil
	}
	if e.From == (common.Address{}) {
		if _, over := j.Supply.AddOverflow(&j.Supply, &e.Amount); over {
			fault = contracts.FaultBeyond
		}
	} else {
		fault, err = j.settle(w, Holdings, debts, e.From, &e.Amount)
	}
	if fault != "" || err != nil {
		return fault, err
	}
	if e.To != (common.Address{}) {
		return j.credit(w, e.To, &e.Amount)
	}
	if _, over := j.Destroyed.AddOverflow(&j.Destroyed, &e.Amount); over {
		fault = contracts.FaultBelowZero
	}
	return fault, nil
}

func (j *joining) credit(w state.Writer, account common.Address, amount *uint256.Int) (fault string, err error) {
	return j.settle(w, debts, Holdings, account, amount)
}

// settle takes an amount from what an account has in one table, as far as it has, and adds the rest in the other.
func (j *joining) settle(w state.Writer, less, more *state.Table, account common.Address, amount *uint256.Int) (fault string, err error) {
	from, to := j.rows(w, less), j.rows(w, more)
	has, err := from.Held(account)
	if err != nil {
		return "", err
	}
	rest := amount
	if !has.IsZero() {
		left, below := new(uint256.Int).SubOverflow(&has, amount)
		if !below {
			return "", from.SetHeld(account, &has, left)
		}
		rest = left.Neg(left)
		if err := from.SetHeld(account, &has, new(uint256.Int)); err != nil {
			return "", err
		}
	}
	if has, err = to.Held(account); err != nil {
		return "", err
	}
	sum, over := new(uint256.Int).AddOverflow(&has, rest)
	if over {
		return contracts.FaultBeyond, nil
	}
	return "", to.SetHeld(account, &has, sum)
}

func (j *joining) rows(w state.Writer, t *state.Table) rows {
	count := &j.Count
	if t == debts {
		count = &j.Debtors
	}
	return rows{w: w, of: t, token: j.Token, count: count}
}
