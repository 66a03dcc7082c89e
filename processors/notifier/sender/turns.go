package sender

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/ethereum/go-ethereum/common"
)

// turns are the alerts of deals that a look finds due, by wallet: each wallet has one started before any has its second, and who
// had one longest ago is first. Of a wallet's own the nearest deadline is first.
type turns struct {
	due   map[common.Address][]turn
	order []common.Address // the oldest first
	n     int              // of all
	last  map[common.Address]uint64
	count uint64
}

// turn is an alert that is due.
type turn struct {
	row      []byte
	deadline uint64 // block time
}

const (
	maxWalletDue = 64      // alerts that a look weighs, of a wallet
	maxDue       = 1 << 17 // and of all
)

// begin begins a look.
func (t *turns) begin() { t.due, t.order, t.n = map[common.Address][]turn{}, nil, 0 }

// add adds a row and its deadline, big-endian; empty: it is not known, and comes first.
func (t *turns) add(row, deadline []byte) {
	var by uint64
	if len(deadline) == 8 {
		by = binary.BigEndian.Uint64(deadline)
	}
	wallet := common.Address(row[:common.AddressLength])
	mine := t.due[wallet]
	full := len(mine) == maxWalletDue
	if full && by >= mine[maxWalletDue-1].deadline || !full && t.n == maxDue {
		return
	}
	if full {
		mine = mine[:maxWalletDue-1]
		t.n--
	}
	if len(mine) == 0 {
		t.order = append(t.order, wallet)
	}
	at, _ := slices.BinarySearchFunc(mine, by+1, func(o turn, by uint64) int { return cmp.Compare(o.deadline, by) })
	t.due[wallet] = slices.Insert(mine, at, turn{slices.Clone(row), by})
	t.n++
}

// list lists rows by turns.
func (t *turns) list(most int) (rows [][]byte) {
	last := make(map[common.Address]uint64, len(t.last)) // who has nothing due is forgotten
	for wallet, at := range t.last {
		if t.due[wallet] != nil {
			last[wallet] = at
		}
	}
	t.last = last
	slices.SortStableFunc(t.order, func(a, b common.Address) int { return cmp.Compare(last[a], last[b]) })
	for round := 0; len(rows) < min(most, t.n); round++ {
		for _, wallet := range t.order {
			if mine := t.due[wallet]; round < len(mine) && len(rows) < most {
				rows = append(rows, mine[round].row)
			}
		}
	}
	return rows
}

// took notes that a wallet has had a turn.
func (t *turns) took(wallet common.Address) {
	if t.last == nil {
		t.last = map[common.Address]uint64{}
	}
	t.count++
	t.last[wallet] = t.count
}
